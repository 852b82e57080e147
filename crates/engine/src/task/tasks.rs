//! A worker's tasks: their futures, their wakers, and who is ready.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};

use super::remote::{LocalFuture, Remote};

/// Names a task of one worker; a slot used again has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct TaskRef {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A task's future and waker, taken out of the table while it runs.
pub(crate) struct Body {
    pub(crate) future: LocalFuture,
    pub(crate) waker: Waker,
}

struct Slot {
    body: Option<Body>,
    generation: u32,
    /// In the ready queue already.
    queued: bool,
    alive: bool,
}

/// The table and the ready queue.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    pub(crate) ready: VecDeque<TaskRef>,
    pub(crate) alive: usize,
}

struct TaskWaker {
    remote: Arc<Remote>,
    task: TaskRef,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let here = super::current(|worker| {
            let ours = Arc::ptr_eq(worker.remote(), &self.remote);
            if ours {
                worker.make_ready(self.task);
            }
            ours
        });
        if here != Some(true) {
            self.remote.wake_task(self.task);
        }
    }
}

impl Tasks {
    pub(crate) fn spawn(&mut self, future: LocalFuture, remote: &Arc<Remote>) {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot { body: None, generation: 0, queued: false, alive: false });
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        let task = TaskRef { slot, generation: entry.generation };
        let waker = Waker::from(Arc::new(TaskWaker { remote: remote.clone(), task }));
        entry.body = Some(Body { future, waker });
        entry.alive = true;
        entry.queued = true;
        self.ready.push_back(task);
        self.alive += 1;
    }

    /// Puts a task into the ready queue, unless it is there or over.
    #[inline]
    pub(crate) fn make_ready(&mut self, task: TaskRef) {
        let Some(slot) = self.slots.get_mut(task.slot as usize) else { return };
        if slot.generation == task.generation && slot.alive && !slot.queued {
            slot.queued = true;
            self.ready.push_back(task);
        }
    }

    /// Takes the next ready task to run it.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(TaskRef, Body)> {
        loop {
            let task = self.ready.pop_front()?;
            let slot = &mut self.slots[task.slot as usize];
            slot.queued = false;
            if slot.generation == task.generation
                && let Some(body) = slot.body.take()
            {
                return Some((task, body));
            }
        }
    }

    /// Puts back a task that waits.
    #[inline]
    pub(crate) fn put_back(&mut self, task: TaskRef, body: Body) {
        self.slots[task.slot as usize].body = Some(body);
    }

    /// Forgets a task that is over.
    pub(crate) fn finish(&mut self, task: TaskRef) {
        let slot = &mut self.slots[task.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.alive = false;
        self.vacant.push(task.slot);
        self.alive -= 1;
    }

    /// Takes all futures out, to drop them.
    pub(crate) fn clear(&mut self) -> Vec<Body> {
        self.ready.clear();
        self.alive = 0;
        self.slots.iter_mut().filter_map(|slot| slot.body.take()).collect()
    }
}
