//! What a repair saved and what it did not.

/// What a repair is doing.
///
/// ```
/// # use std::sync::Arc;
/// # use qpair_block::{BlockDevice, RamDevice};
/// # let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(RamDevice::new(Default::default())?)];
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let store = qpair_engine::Store::open(members.clone(), &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// use qpair_engine::{Store, StoreOptions};
///
/// let options = StoreOptions::default();
/// let mut make_target = |page_size| {
///     let target = Arc::new(RamDevice::new(Default::default()).expect("memory"));
///     Store::open(vec![target], &StoreOptions { format: true, page_size, ..Default::default() })
/// };
/// let told = |step, done, all| {
///     eprintln!("{step:?}: {done} of {all}");
///     std::ops::ControlFlow::Continue(())
/// };
/// let report = qpair_inspect::repair(&members, &options, &mut make_target, &told)?;
/// # let _ = report;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairStep {
    /// Looking whether there is damage: pages.
    Check,
    /// Looking for the first pages of a store that has no superblock any more: bytes.
    Search,
    /// Looking for leaves that nothing leads to: pages.
    Scan,
    /// Saving records.
    Save,
    /// Making commits of the log again.
    Replay,
}

/// Keys from one on, up to another.
///
/// ```
/// # use std::sync::Arc;
/// # use qpair_block::{BlockDevice, RamDevice};
/// # let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(RamDevice::new(Default::default())?)];
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let store = qpair_engine::Store::open(members.clone(), &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// use qpair_engine::{Store, StoreOptions};
///
/// let options = StoreOptions::default();
/// let mut make_target = |page_size| {
///     let target = Arc::new(RamDevice::new(Default::default()).expect("memory"));
///     Store::open(vec![target], &StoreOptions { format: true, page_size, ..Default::default() })
/// };
/// let report = qpair_inspect::repair(&members, &options, &mut make_target, &|_, _, _| std::ops::ControlFlow::Continue(()))?;
/// for range in report.tables.iter().flat_map(|table| &table.lost) {
///     println!("from {} on: {}", range.from.escape_ascii(), range.why);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub from: Vec<u8>,
    /// The first key behind the last; none if there is no end.
    pub to: Option<Vec<u8>>,
    /// What is wrong.
    pub why: String,
}

/// A table that was saved.
///
/// ```
/// # use std::sync::Arc;
/// # use qpair_block::{BlockDevice, RamDevice};
/// # let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(RamDevice::new(Default::default())?)];
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let store = qpair_engine::Store::open(members.clone(), &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// use qpair_engine::{Store, StoreOptions};
///
/// let options = StoreOptions::default();
/// let mut make_target = |page_size| {
///     let target = Arc::new(RamDevice::new(Default::default()).expect("memory"));
///     Store::open(vec![target], &StoreOptions { format: true, page_size, ..Default::default() })
/// };
/// let report = qpair_inspect::repair(&members, &options, &mut make_target, &|_, _, _| std::ops::ControlFlow::Continue(()))?;
/// for table in report.tables {
///     println!("{}: {} records saved, {} ranges lost", table.name, table.records, table.lost.len());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedTable {
    /// Its name in the new store.
    pub name: String,
    /// Records that are in the new store.
    pub records: u64,
    /// Keys of which nothing was found but what the log has.
    pub lost: Vec<KeyRange>,
    /// Keys of which only older pages were found: records may be as they were before, be back after they were deleted, or be missing.
    pub stale: Vec<KeyRange>,
    /// Records whose large value could not be read, and that are not in the new store.
    pub large_values_lost: u64,
    /// Keys of the first of those.
    pub large_keys_lost: Vec<Vec<u8>>,
}

/// What became of the log.
///
/// ```
/// # use std::sync::Arc;
/// # use qpair_block::{BlockDevice, RamDevice};
/// # let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(RamDevice::new(Default::default())?)];
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let store = qpair_engine::Store::open(members.clone(), &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// use qpair_engine::{Store, StoreOptions};
///
/// let options = StoreOptions::default();
/// let mut make_target = |page_size| {
///     let target = Arc::new(RamDevice::new(Default::default()).expect("memory"));
///     Store::open(vec![target], &StoreOptions { format: true, page_size, ..Default::default() })
/// };
/// let report = qpair_inspect::repair(&members, &options, &mut make_target, &|_, _, _| std::ops::ControlFlow::Continue(()))?;
/// if let Some(log) = report.log {
///     println!("{} commits of the log, the last is {}", log.commits, log.last_timestamp);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedLog {
    /// Commits that were made again.
    pub commits: u64,
    /// The last commit that is in the new store.
    pub last_timestamp: u64,
    /// Commits that are in the log behind a gap, and were left out.
    pub dropped: u64,
    /// Commits are missing that were durable once, or may be: the log could not be read to its end.
    pub damaged: bool,
}

/// What a repair did.
///
/// ```
/// # use std::sync::Arc;
/// # use qpair_block::{BlockDevice, RamDevice};
/// # let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(RamDevice::new(Default::default())?)];
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let store = qpair_engine::Store::open(members.clone(), &options)?;
/// # store.table("t")?.put(b"k", b"v")?;
/// # store.close()?;
/// use qpair_engine::{Store, StoreOptions};
///
/// let options = StoreOptions::default();
/// let mut make_target = |page_size| {
///     let target = Arc::new(RamDevice::new(Default::default()).expect("memory"));
///     Store::open(vec![target], &StoreOptions { format: true, page_size, ..Default::default() })
/// };
/// let report = qpair_inspect::repair(&members, &options, &mut make_target, &|_, _, _| std::ops::ControlFlow::Continue(()))?;
/// // Nothing is wrong with this one, so nothing was copied.
/// assert!(report.healthy && report.is_complete());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// All of the store can be read; no target was made.
    pub healthy: bool,
    /// Damage to a healthy store that costs nothing: superblocks and checkpoint records whose twins serve.
    pub harmless: Vec<String>,
    /// What is wrong with the store.
    pub remarks: Vec<String>,
    /// Names of tables may be missing or out of date.
    pub names_uncertain: bool,
    /// The tables that were saved.
    pub tables: Vec<RepairedTable>,
    /// What became of the log; none if there was none, or it could not be found.
    pub log: Option<RepairedLog>,
}

impl RepairReport {
    /// Whether all that was committed is in the new store, as far as can be told.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let whole = |table: &RepairedTable| {
            table.lost.is_empty() && table.stale.is_empty() && table.large_values_lost == 0
        };
        self.healthy
            || !self.names_uncertain
                && self.tables.iter().all(whole)
                && self.log.is_none_or(|log| !log.damaged)
    }
}
