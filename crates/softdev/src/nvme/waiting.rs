//! The queue of fetched commands that are not due yet. The soonest comes first; commands due at the
//! same time keep the order in which they came.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use qpair_nvme_wire::{Command, Status};

/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// The action on a command that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The command is executed and completed.
    Execute,
    /// The command is executed and not completed.
    ExecuteSilently,
    /// The command is a read, and one bit of the data is flipped; the number selects the bit.
    Corrupt(u64),
    /// The command is completed with this status, and not executed.
    Complete(Status),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) at_ns: u64,
    order: u64,
    pub(crate) command: Command,
    pub(crate) fate: Fate,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// Reverses the order: the heap pops the greatest, which is to be the soonest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    heap: BinaryHeap<Due>,
    order: u64,
}

impl Waiting {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(crate) fn push(&mut self, at_ns: u64, command: Command, fate: Fate) {
        self.order += 1;
        self.heap.push(Due { at_ns, order: self.order, command, fate });
    }

    /// Returns when the first command is due, or `None` if none ever is.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|due| due.at_ns).filter(|at_ns| *at_ns != NEVER)
    }

    /// Takes a command that is due.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<Due> {
        self.heap.peek().filter(|due| due.at_ns <= now_ns && due.at_ns != NEVER)?;
        self.heap.pop()
    }

    /// Completes command `cid` with `status` at once. Returns false if the command is not here.
    pub(crate) fn abort(&mut self, cid: u16, status: Status) -> bool {
        let mut list = std::mem::take(&mut self.heap).into_vec();
        let found = list
            .iter_mut()
            .find(|due| due.command.cid() == cid && !matches!(due.fate, Fate::ExecuteSilently));
        let is_found = found.is_some();
        if let Some(due) = found {
            due.at_ns = 0;
            due.fate = Fate::Complete(status);
        }
        self.heap = list.into();
        is_found
    }

    /// Takes all commands, in no particular order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Due> {
        self.heap.drain()
    }
}

#[cfg(test)]
mod tests {
    use qpair_nvme_wire::command::io;

    use super::*;

    #[test]
    fn soonest_first_then_in_order() {
        let mut waiting = Waiting::default();
        for (cid, at_ns) in [(0, 50), (1, 10), (2, NEVER), (3, 10), (4, 70)] {
            let mut command = Command::new(io::READ, 1);
            command.set_cid(cid);
            waiting.push(at_ns, command, Fate::Execute);
        }
        let taken = |waiting: &mut Waiting, now| waiting.pop(now).map(|due| due.command.cid());
        assert_eq!(waiting.next_ns(), Some(10));
        assert_eq!(taken(&mut waiting, 9), None);
        assert_eq!(taken(&mut waiting, 60), Some(1));
        assert_eq!(taken(&mut waiting, 60), Some(3));
        assert_eq!(taken(&mut waiting, 60), Some(0));
        assert_eq!(taken(&mut waiting, 60), None);
        assert!(
            waiting.abort(2, Status::ABORT_REQUESTED) && !waiting.abort(9, Status::ABORT_REQUESTED)
        );
        assert_eq!(waiting.next_ns(), Some(0));
        assert_eq!(waiting.pop(60).unwrap().fate, Fate::Complete(Status::ABORT_REQUESTED));
        assert_eq!(taken(&mut waiting, u64::MAX), Some(4));
        assert!(waiting.is_empty());
    }
}
