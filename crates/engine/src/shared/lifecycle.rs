//! The state of a store: its process, whether it may be changed, why it failed, and whether it is
//! being closed.

use std::any::Any;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::locks::Mutex;

/// The work of the recovery when the store was opened.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// if let Some(recovered) = store.report().recovered {
///     println!("{} commits were made again", recovered.commits);
/// }
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The number of commits of the log that were applied again.
    pub commits: u64,
    /// The number of unacknowledged commits in the log, which recovery left out.
    pub dropped: u64,
    /// The number of bytes of log that were read.
    pub bytes: u64,
    /// The memory in bytes that recovery took beyond the configured memory, because the log had
    /// changes of very many tables.
    pub more_memory_bytes: u64,
}

pub(crate) struct Lifecycle {
    pub(crate) read_only: bool,
    pub(crate) store_id: [u8; 16],
    /// The id of the process that has the workers.
    process_id: AtomicU32,
    /// The generation that the superblocks of all members have.
    pub(crate) generation: AtomicU64,
    pub(crate) recovered: OnceLock<Recovered>,
    /// The error of the first write or flush that failed. Never cleared.
    pub(super) failure: OnceLock<Error>,
    /// The error of an engine panic. Never cleared.
    panicked: OnceLock<Error>,
    /// Whether the superblocks of the members say that the store is being changed.
    marked_open: AtomicBool,
    /// Whether the store is being closed, so that no change may begin.
    closing: AtomicBool,
    ended: AtomicBool,
    /// Objects that are dropped when the store ends.
    companions: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            read_only: false,
            store_id: [0; 16],
            process_id: AtomicU32::new(std::process::id()),
            generation: AtomicU64::new(0),
            recovered: OnceLock::new(),
            failure: OnceLock::new(),
            panicked: OnceLock::new(),
            marked_open: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            companions: Mutex::default(),
        }
    }
}

impl Lifecycle {
    /// Refuses calls in a fork of the process that opened the store.
    pub(crate) fn check_process(&self) -> Result<()> {
        let (opened, own) = (self.process_id.load(Ordering::Relaxed), std::process::id());
        if opened == own {
            return Ok(());
        }
        Err(Error::with_hint(
            ErrorKind::Invalid,
            format!(
                "process {opened} opened the store and process {own} is a fork of it: a fork does not have the threads of the store's workers"
            ),
            "open stores after the fork, in the process that uses them",
        ))
    }

    /// Makes this process look like a fork of the one that opened the store, for tests.
    #[cfg(test)]
    pub(crate) fn pretend_fork(&self) {
        self.process_id.store(0, Ordering::Relaxed);
    }

    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if let Some(panicked) = self.panicked() {
            return Err(panicked.clone());
        }
        if let Some(failure) = self.failure() {
            return Err(Error::with_hint(
                ErrorKind::ReadOnly,
                format!("the store is read-only because a write failed: {failure}"),
                "repair the device, then open the store again: it recovers every acknowledged commit",
            ));
        }
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the store was opened for reading only"));
        }
        Ok(())
    }

    pub(crate) fn is_marked_open(&self) -> bool {
        // Acquire: pairs with `mark_open`, so that changes come after the superblocks were written.
        self.marked_open.load(Ordering::Acquire)
    }

    pub(crate) fn mark_open(&self) {
        self.marked_open.store(true, Ordering::Release);
    }

    /// Keeps something until the store is closed.
    pub(crate) fn keep(&self, companion: Box<dyn std::any::Any + Send>) {
        self.companions.lock().push(companion);
    }

    pub(crate) fn end_companions(&self) {
        let companions = std::mem::take(&mut *self.companions.lock());
        drop(companions);
    }

    #[inline(always)]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Refuses every call from now on: the workers have ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn panicked(&self) -> Option<&Error> {
        self.panicked.get()
    }

    /// Keeps the error that all callers get after a panic of the engine.
    pub(crate) fn set_panicked(&self, error: Error) {
        let _ = self.panicked.set(error);
    }

    pub(super) fn set_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }
}
