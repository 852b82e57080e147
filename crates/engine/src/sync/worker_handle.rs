//! The handle through which other threads reach a worker: to wake a task, or to start one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair_block::WakeEvent;
use qpair_memory::locks::Mutex;

/// Names a task of one worker; a slot used again has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct TaskRef {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A task's future, which stays on its worker.
pub(crate) type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

pub(crate) type SpawnFn = Box<dyn FnOnce() -> LocalFuture + Send>;

#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) woken: Vec<TaskRef>,
    pub(crate) spawned: Vec<SpawnFn>,
    pub(crate) stop: bool,
    /// Whether the worker is gone, and accepts no more messages.
    pub(crate) closed: bool,
}

/// The part of a worker that other threads can reach.
pub(crate) struct WorkerHandle {
    inbox: Mutex<Inbox>,
    /// Whether the inbox may hold a message. The worker's loop reads this flag instead of taking
    /// the lock.
    pending: AtomicBool,
    pub(crate) wake: Arc<WakeEvent>,
}

impl std::fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorkerHandle")
    }
}

impl WorkerHandle {
    pub(crate) fn new(wake: Arc<WakeEvent>) -> Self {
        Self { inbox: Mutex::default(), pending: AtomicBool::new(false), wake }
    }

    fn put(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut self.inbox.lock());
        // Release: pairs with the swap in `take`; the inbox itself is under the lock.
        self.pending.store(true, Ordering::Release);
        self.wake.wake();
    }

    pub(crate) fn wake_up(&self) {
        self.put(|_| ());
    }

    pub(crate) fn wake_task(&self, task: TaskRef) {
        self.put(|inbox| inbox.woken.push(task));
    }

    /// Starts a task on this worker; gives it back if the worker is gone.
    pub(crate) fn spawn(&self, task: SpawnFn) -> Result<(), SpawnFn> {
        let mut refused = None;
        self.put(
            |inbox| if inbox.closed { refused = Some(task) } else { inbox.spawned.push(task) },
        );
        refused.map_or(Ok(()), Err)
    }

    /// Tells the worker to end once it has no tasks.
    pub(crate) fn stop(&self) {
        self.put(|inbox| inbox.stop = true);
    }

    #[inline(always)]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self, take: impl FnOnce(&mut Inbox)) {
        self.pending.swap(false, Ordering::AcqRel);
        take(&mut self.inbox.lock());
    }
}
