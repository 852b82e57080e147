//! Bugs that can be planted in a backup, to prove that the tests find them. Nothing else plants
//! them.

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A full part counts from the point at which its scan began, although it may have some changes
    /// after it.
    UsableTooEarly,
    /// The oldest part's records count where parts are merged.
    MergeInReverse,
    /// Merged parts lack removals, as if there were nothing older.
    MergeWithoutRemovals,
    /// A point is reported as shipped before its entry is written.
    ShippedBeforeWritten,
    /// Entries replace those of other writers.
    PutUnconditionally,
    /// An entry whose request failed counts as written.
    FailedIsWritten,
}

impl Canary {
    /// All bugs.
    pub const ALL: [Self; 6] = [
        Self::UsableTooEarly,
        Self::MergeInReverse,
        Self::MergeWithoutRemovals,
        Self::ShippedBeforeWritten,
        Self::PutUnconditionally,
        Self::FailedIsWritten,
    ];
}
