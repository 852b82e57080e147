//! What a repair saved and what it did not.

/// What a repair is doing.
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
