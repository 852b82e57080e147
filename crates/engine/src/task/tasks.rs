//! A worker's tasks: their futures, their wakers, and which of them are ready.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::sync::{LocalFuture, TaskRef, WorkerHandle};

/// A task's future and waker, taken out of the table while it runs.
pub(crate) struct Body {
    pub(crate) future: LocalFuture,
    pub(crate) waker: Waker,
    /// The wakers of futures within the task that wait for the worker, if they are not the task's
    /// own.
    pub(crate) within: Vec<Waker>,
}

#[derive(Default)]
struct Slot {
    body: Option<Body>,
    generation: u32,
    queued: bool,
    alive: bool,
    /// Whether the task waits for others and holds what others wait for. It runs before tasks that
    /// are not urgent.
    urgent: bool,
    /// Whether the task is in the queue of tasks that wait for a frame.
    wants_frame: bool,
}

/// The maximum number of urgent tasks that run in a row while other tasks are ready.
const URGENT_IN_A_ROW_MAX: u32 = 3;

#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    ready: VecDeque<TaskRef>,
    ready_urgent: VecDeque<TaskRef>,
    urgent_in_a_row: u32,
    pub(crate) alive: usize,
}

struct TaskWaker {
    handle: Arc<WorkerHandle>,
    task: TaskRef,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let here = super::current(|worker| {
            let ours = Arc::ptr_eq(worker.handle(), &self.handle);
            if ours {
                worker.make_ready(self.task);
            }
            ours
        });
        if here != Some(true) {
            self.handle.wake_task(self.task);
        }
    }
}

impl Tasks {
    pub(crate) fn spawn(&mut self, future: LocalFuture, handle: &Arc<WorkerHandle>) {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        let task = TaskRef { slot, generation: entry.generation };
        let waker = Waker::from(Arc::new(TaskWaker { handle: handle.clone(), task }));
        entry.body = Some(Body { future, waker, within: Vec::new() });
        entry.alive = true;
        entry.queued = true;
        entry.urgent = false;
        entry.wants_frame = false;
        self.ready.push_back(task);
        self.alive += 1;
    }

    #[inline(always)]
    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len() + self.ready_urgent.len()
    }

    /// Notes whether a task is to go before others when it is ready.
    pub(crate) fn set_urgent(&mut self, task: TaskRef, urgent: bool) {
        if let Some(slot) = self.slots.get_mut(task.slot as usize)
            && slot.generation == task.generation
        {
            slot.urgent = urgent;
        }
    }

    /// Notes whether a task is in the queue of tasks that wait for a frame; returns whether it was.
    pub(crate) fn set_wants_frame(&mut self, task: TaskRef, wants: bool) -> bool {
        let slot = self.slots.get_mut(task.slot as usize);
        let Some(slot) = slot.filter(|slot| slot.generation == task.generation) else {
            return false;
        };
        std::mem::replace(&mut slot.wants_frame, wants)
    }

    pub(crate) fn is_alive(&self, task: TaskRef) -> bool {
        let slot = self.slots.get(task.slot as usize);
        slot.is_some_and(|slot| slot.generation == task.generation && slot.alive)
    }

    /// Puts a task into a ready queue, unless it is in one already or has ended.
    #[inline]
    pub(crate) fn make_ready(&mut self, task: TaskRef) {
        let Some(slot) = self.slots.get_mut(task.slot as usize) else { return };
        if slot.generation == task.generation && slot.alive && !slot.queued {
            slot.queued = true;
            match slot.urgent {
                true => self.ready_urgent.push_back(task),
                false => self.ready.push_back(task),
            }
        }
    }

    pub(crate) fn make_all_ready(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            self.make_ready(TaskRef { slot, generation: self.slots[slot as usize].generation });
        }
    }

    /// Puts the task that was just running before those that are not urgent.
    #[inline]
    pub(crate) fn make_ready_urgent(&mut self, task: TaskRef) {
        let Some(slot) = self.slots.get_mut(task.slot as usize) else { return };
        if slot.generation == task.generation && slot.alive && !slot.queued {
            slot.queued = true;
            self.ready_urgent.push_back(task);
        }
    }

    fn pop(&mut self) -> Option<TaskRef> {
        let first = self.urgent_in_a_row < URGENT_IN_A_ROW_MAX || self.ready.is_empty();
        if first && let Some(task) = self.ready_urgent.pop_front() {
            self.urgent_in_a_row = self.urgent_in_a_row.saturating_add(1);
            return Some(task);
        }
        self.urgent_in_a_row = 0;
        self.ready.pop_front()
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<(TaskRef, Body)> {
        loop {
            let task = self.pop()?;
            let slot = &mut self.slots[task.slot as usize];
            slot.queued = false;
            if slot.generation == task.generation
                && let Some(body) = slot.body.take()
            {
                return Some((task, body));
            }
        }
    }

    /// Sets whether waking a task that was just taken out puts it into a ready queue.
    pub(crate) fn set_wakeable(&mut self, task: TaskRef, wakeable: bool) {
        self.slots[task.slot as usize].queued = !wakeable;
    }

    #[inline]
    pub(crate) fn put_back(&mut self, task: TaskRef, body: Body) {
        self.slots[task.slot as usize].body = Some(body);
    }

    pub(crate) fn finish(&mut self, task: TaskRef) {
        let slot = &mut self.slots[task.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.alive = false;
        self.vacant.push(task.slot);
        self.alive -= 1;
    }

    pub(crate) fn clear(&mut self) -> Vec<Body> {
        self.ready.clear();
        self.ready_urgent.clear();
        self.alive = 0;
        self.slots.iter_mut().filter_map(|slot| slot.body.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(count: usize) -> (Tasks, Vec<TaskRef>) {
        let handle = Arc::new(WorkerHandle::new(Arc::new(qpair_block::WakeEvent::new().unwrap())));
        let mut tasks = Tasks::default();
        (0..count).for_each(|_| tasks.spawn(Box::pin(std::future::pending()), &handle));
        let refs = (0..count as u32).map(|slot| TaskRef { slot, generation: 0 }).collect();
        (tasks, refs)
    }

    /// Takes the next task, and makes it ready again.
    fn turn(tasks: &mut Tasks) -> u32 {
        let (task, body) = tasks.next().unwrap();
        tasks.put_back(task, body);
        tasks.make_ready(task);
        task.slot
    }

    #[test]
    fn urgent_tasks_go_first_and_do_not_starve_others() {
        let (mut tasks, refs) = tasks(5);
        (0..5).for_each(|slot| assert_eq!(turn(&mut tasks), slot));
        tasks.set_urgent(refs[4], true);
        (0..5).for_each(|slot| assert_eq!(turn(&mut tasks), slot));
        // Tasks that were urgent when they became ready get three turns for each turn of another
        // task.
        let order: Vec<u32> = (0..8).map(|_| turn(&mut tasks)).collect();
        assert_eq!(order, [4, 4, 4, 0, 4, 4, 4, 1]);
        tasks.set_urgent(refs[4], false);
        assert_eq!(tasks.ready_len(), 5);
        let order: Vec<u32> = (0..6).map(|_| turn(&mut tasks)).collect();
        assert_eq!(order, [4, 2, 3, 0, 1, 4]);
    }

    #[test]
    fn a_slot_used_again_is_not_urgent() {
        let (mut tasks, refs) = tasks(2);
        tasks.set_urgent(refs[0], true);
        let (task, body) = tasks.next().unwrap();
        drop(body);
        tasks.finish(task);
        tasks.set_urgent(refs[0], true);
        let handle = Arc::new(WorkerHandle::new(Arc::new(qpair_block::WakeEvent::new().unwrap())));
        tasks.spawn(Box::pin(std::future::pending()), &handle);
        assert_eq!([turn(&mut tasks), turn(&mut tasks), turn(&mut tasks)], [1, 0, 1]);
    }
}
