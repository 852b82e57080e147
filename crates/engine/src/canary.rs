//! Bugs that can be planted in a store, to prove that the simulation finds them. Nothing else
//! plants them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Canary {
    /// Closing does not flush the device before the superblocks say that the store is complete.
    CloseBeforeFlush,
    /// Commits are acknowledged when their record is written, not when it survives power loss.
    AcknowledgeBeforeFlush,
    /// Pages that only the last durable checkpoint needs are reused before the next checkpoint is
    /// durable.
    ReuseBeforeRecord,
    /// Log segments that only the last durable checkpoint needs are reused before the next
    /// checkpoint is durable.
    ReuseLogBeforeRecord,
    /// A commit is acknowledged before the pages of its large values survive power loss.
    LargeBeforeFlush,
    /// A transaction overwrites a change that was committed after its snapshot.
    LostUpdate,
    /// A serializable transaction does not validate its reads.
    UncheckedReads,
    /// The records of a dropped table are removed before the drop is in the log.
    EmptyBeforeDrop,
    /// A sorted load is acknowledged without the checkpoint that has it.
    LoadWithoutCheckpoint,
    /// A backup copies the last checkpoint instead of making a new one.
    BackupWithoutCheckpoint,
    /// Pages from the device are accepted whatever their checksum is.
    UncheckedPages,
    /// Recovery counts unacknowledged commits of an earlier incarnation beside commits of a later
    /// incarnation that have the same timestamps.
    EndlessLogs,
    /// Recovery relies on the end of an earlier incarnation's log, which may be in a volatile cache
    /// only.
    UnwrittenLogs,
    /// A snapshot ignores the older values on the device.
    UnreadHistory,
    /// Recovery of a table's rename leaves the table its old name.
    RenameKeepsOldName,
    /// A deleted key that is smaller than the others of its shard does not lower the shard's bound,
    /// so that ranges of snapshots miss it.
    DeletedKeysOutOfOrder,
    /// A checkpoint frees pages of the one before although readers in other processes use it.
    ForgottenReaders,
    /// A reader beside a writer does not check, after a read, that its checkpoint is still there.
    UncheckedReader,
    /// Readers see records as expired before that is durable.
    HorizonBeforeDurable,
    /// A key of more than 1,024 bytes is put before the superblocks say that there are such keys.
    UnmarkedLongKeys,
    /// The older of two writes to a key that a transaction has on the device counts.
    StaleSpilledWrite,
    /// Rows that leave memory while a transaction has them locked are unlocked.
    ForgottenTags,
    /// Only the last part of a commit's record is in the log.
    UnloggedPart,
    /// A panic while a page is split. This and the following ones are not in [`Canary::ALL`]: the
    /// store must withstand them.
    PanicInSplit,
    /// A panic in a checkpoint, with the barrier closed.
    PanicInCheckpoint,
    /// A panic in a commit that has its timestamp.
    PanicInCommit,
    /// A panic in a worker's loop, after a page was read.
    PanicInLoop,
    /// A panic in the row table, when a transaction locks a row.
    PanicInLock,
}

#[derive(Debug, Default)]
pub(crate) struct Planted {
    canary: Option<Canary>,
    /// The number of times that the panic is still skipped.
    passes: AtomicU64,
}

impl Planted {
    pub(crate) fn new(canary: Option<Canary>, passes: u64) -> Self {
        Self { canary, passes: passes.into() }
    }

    pub(crate) fn is(&self, canary: Canary) -> bool {
        self.canary == Some(canary)
    }

    /// Panics if this bug is planted and its panic was skipped as often as configured.
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
    /// All bugs that the simulation must catch.
    pub const ALL: [Self; 23] = [
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
        Self::ForgottenReaders,
        Self::UncheckedReader,
        Self::HorizonBeforeDurable,
        Self::UnmarkedLongKeys,
        Self::StaleSpilledWrite,
        Self::ForgottenTags,
        Self::UnloggedPart,
    ];

    /// All panics that can be planted.
    pub const PANICS: [Self; 5] = [
        Self::PanicInSplit,
        Self::PanicInCheckpoint,
        Self::PanicInCommit,
        Self::PanicInLoop,
        Self::PanicInLock,
    ];

    /// The name of the bug on the command line.
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
            Self::ForgottenReaders => "forgotten-readers",
            Self::UncheckedReader => "unchecked-reader",
            Self::HorizonBeforeDurable => "horizon-before-durable",
            Self::UnmarkedLongKeys => "unmarked-long-keys",
            Self::StaleSpilledWrite => "stale-spilled-write",
            Self::ForgottenTags => "forgotten-tags",
            Self::UnloggedPart => "unlogged-part",
            Self::PanicInSplit => "panic-in-split",
            Self::PanicInCheckpoint => "panic-in-checkpoint",
            Self::PanicInCommit => "panic-in-commit",
            Self::PanicInLoop => "panic-in-loop",
            Self::PanicInLock => "panic-in-lock",
        }
    }
}
