//! The report of a repair: the saved records and the lost ones.

/// The step that a repair is at.
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
    /// Checking for damage. Progress is in pages.
    Check,
    /// Searching for the first pages of a store that has no superblock any more. Progress is in
    /// bytes.
    Search,
    /// Searching for leaves that no reference leads to. Progress is in pages.
    Scan,
    /// Saving records.
    Save,
    /// Applying the commits of the log.
    Replay,
}

/// A range of keys.
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
    /// The first key after the range; `None` if the range has no end.
    pub to: Option<Vec<u8>>,
    /// A description of the damage.
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
    /// The name in the new store.
    pub name: String,
    /// The number of records in the new store.
    pub records: u64,
    /// Ranges of keys for which no page was found. They have only records from the log.
    pub lost: Vec<KeyRange>,
    /// Ranges of keys for which only older pages were found. Records there may have an old value,
    /// may be back after they were deleted, or may be missing.
    pub stale: Vec<KeyRange>,
    /// The number of records that are missing in the new store because their large value could not
    /// be read.
    pub large_values_lost: u64,
    /// The first keys of the records in `large_values_lost`.
    pub large_keys_lost: Vec<Vec<u8>>,
}

/// The result of applying the log of the damaged store.
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
    /// The number of commits that were applied.
    pub commits: u64,
    /// The timestamp of the last commit that is in the new store.
    pub last_timestamp: u64,
    /// The number of commits that are in the log after a gap, and were left out.
    pub dropped: u64,
    /// Whether commits are, or may be, missing that were durable once, because the log could not be
    /// read to its end.
    pub damaged: bool,
}

/// The result of a repair.
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
    /// Whether all of the store can be read. No target was made then.
    pub healthy: bool,
    /// Damage to a healthy store that loses no data: superblocks and checkpoint records whose
    /// second copies are intact.
    pub harmless: Vec<String>,
    /// Remarks on the damage of the store.
    pub remarks: Vec<String>,
    /// Whether names of tables may be missing or out of date.
    pub names_uncertain: bool,
    /// The tables that were saved.
    pub tables: Vec<RepairedTable>,
    /// The result of applying the log; `None` if there was no log, or it could not be found.
    pub log: Option<RepairedLog>,
}

impl RepairReport {
    /// Whether everything that was committed is in the new store, as far as the repair can tell.
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
