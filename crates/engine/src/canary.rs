//! Bugs that can be planted in a store, to prove that the simulation sees such bugs. Never set outside of it.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Canary {
    /// Closing does not flush before the superblocks say that all is there.
    CloseBeforeFlush,
    /// Commits are acknowledged when their record is written, not when it survives power loss.
    AcknowledgeBeforeFlush,
    /// The pages that only the last durable checkpoint needs are used again before the next one is durable.
    ReuseBeforeRecord,
    /// Segments of the log that only the last durable checkpoint needs are used again before the next one is durable.
    ReuseLogBeforeRecord,
    /// A commit is acknowledged before the pages of its large values survive power loss.
    LargeBeforeFlush,
    /// A transaction writes over what was committed since its snapshot.
    LostUpdate,
    /// A serializable transaction does not look whether what it has read is as it was.
    UncheckedReads,
    /// The records of a dropped table are removed before the drop is in the log.
    EmptyBeforeDrop,
    /// A sorted load is acknowledged without the checkpoint that has it.
    LoadWithoutCheckpoint,
    /// A backup is of the last checkpoint, without a new one.
    BackupWithoutCheckpoint,
    /// Pages from the device are taken for what they should be, whatever their checksum says.
    UncheckedPages,
    /// Of the logs of an earlier incarnation, unacknowledged commits count beside those with the same timestamps in a later incarnation.
    EndlessLogs,
    /// The end of an earlier incarnation's log is relied on, though it may be in a cache only.
    UnwrittenLogs,
    /// A snapshot does not look at the older values that went to the device.
    UnreadHistory,
    /// A rename of a table that is made again from the log leaves its old name.
    RenameKeepsOldName,
    /// A deleted key that is smaller than those that snapshots may see does not lower the bound of its part: ranges of snapshots miss it.
    DeletedKeysOutOfOrder,
    /// A panic while a page is split. Not one of [`Canary::ALL`], as those below: the store must hold with it.
    PanicInSplit,
    /// A panic in a checkpoint, with the barrier closed.
    PanicInCheckpoint,
    /// A panic in a commit that has its timestamp.
    PanicInCommit,
    /// A panic in the loop of a worker, when a page was read.
    PanicInLoop,
    /// A panic in the row table, when a transaction locks a row.
    PanicInLock,
}

/// The bug that is planted in a store, if one is.
#[derive(Debug, Default)]
pub(crate) struct Planted {
    canary: Option<Canary>,
    /// How often a panic is still passed.
    passes: AtomicU64,
}

impl Planted {
    pub(crate) fn new(canary: Option<Canary>, passes: u64) -> Self {
        Self { canary, passes: passes.into() }
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, canary: Canary) -> bool {
        self.canary == Some(canary)
    }

    /// Panics if that is planted, and was passed as often as it says.
    #[inline]
    #[expect(clippy::panic, reason = "it was asked for")]
    pub(crate) fn strike(&self, canary: Canary) {
        if !self.is(canary) {
            return;
        }
        let passes = |left: u64| left.checked_sub(1);
        let passed = self.passes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, passes).is_ok();
        if !passed {
            panic!("planted: {canary:?}");
        }
    }
}

impl Canary {
    /// All that the simulation must catch.
    pub const ALL: [Self; 16] = [
        Self::CloseBeforeFlush,
        Self::AcknowledgeBeforeFlush,
        Self::ReuseBeforeRecord,
        Self::ReuseLogBeforeRecord,
        Self::LargeBeforeFlush,
        Self::LostUpdate,
        Self::UncheckedReads,
        Self::EmptyBeforeDrop,
        Self::LoadWithoutCheckpoint,
        Self::BackupWithoutCheckpoint,
        Self::UncheckedPages,
        Self::EndlessLogs,
        Self::UnwrittenLogs,
        Self::UnreadHistory,
        Self::RenameKeepsOldName,
        Self::DeletedKeysOutOfOrder,
    ];

    /// Panics to plant.
    pub const PANICS: [Self; 5] = [
        Self::PanicInSplit,
        Self::PanicInCheckpoint,
        Self::PanicInCommit,
        Self::PanicInLoop,
        Self::PanicInLock,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CloseBeforeFlush => "close-before-flush",
            Self::AcknowledgeBeforeFlush => "acknowledge-before-flush",
            Self::ReuseBeforeRecord => "reuse-before-record",
            Self::ReuseLogBeforeRecord => "reuse-log-before-record",
            Self::LargeBeforeFlush => "large-before-flush",
            Self::LostUpdate => "lost-update",
            Self::UncheckedReads => "unchecked-reads",
            Self::EmptyBeforeDrop => "empty-before-drop",
            Self::LoadWithoutCheckpoint => "load-without-checkpoint",
            Self::BackupWithoutCheckpoint => "backup-without-checkpoint",
            Self::UncheckedPages => "unchecked-pages",
            Self::EndlessLogs => "endless-logs",
            Self::UnwrittenLogs => "unwritten-logs",
            Self::UnreadHistory => "unread-history",
            Self::RenameKeepsOldName => "rename-keeps-old-name",
            Self::DeletedKeysOutOfOrder => "deleted-keys-out-of-order",
            Self::PanicInSplit => "panic-in-split",
            Self::PanicInCheckpoint => "panic-in-checkpoint",
            Self::PanicInCommit => "panic-in-commit",
            Self::PanicInLoop => "panic-in-loop",
            Self::PanicInLock => "panic-in-lock",
        }
    }
}
