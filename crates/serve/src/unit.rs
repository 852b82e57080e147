//! The interface between a worker and the queues and controllers that it serves.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use qpair_block::Result;

/// Makes a unit, on the thread of the worker that will serve it: channels belong to one thread.
pub(crate) type Start = Box<dyn FnOnce() -> Result<Box<dyn Unit>> + Send>;

/// The state in which a unit stopped.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    /// Heads taken from the ring so far, modulo 2^16.
    pub(crate) taken: u16,
    pub(crate) kick: Option<OwnedFd>,
    /// Whether the ring was malformed.
    pub(crate) is_broken: bool,
}

/// A queue, or a controller with its queues.
pub(crate) trait Unit {
    /// Returns the descriptor that polls readable when the driver has something for the unit to do;
    /// `None` if it kicks by the descriptor of completions.
    fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns the descriptor that polls readable when a request under way may have ended. Without
    /// one, the worker polls while requests are under way.
    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>>;

    /// Counts a kick that woke the worker.
    fn count_kick(&self) {}

    /// Whether requests are under way.
    fn is_busy(&self) -> bool;

    /// Does what there is to do. Returns whether there was anything.
    fn turn(&mut self) -> bool;

    /// Asks the driver to kick. Returns false if there is something to do already, or if no driver
    /// would kick.
    fn listen(&mut self) -> bool;

    /// Asks the driver not to kick any more.
    fn be_quiet(&mut self);

    /// Returns after how long an idle unit is to be turned although no driver kicks; `None` if it
    /// need not be.
    fn nap(&self) -> Option<Duration> {
        None
    }

    /// Whether the unit goes idle as soon as it has nothing to do: looking for work costs it a
    /// system call, as much as a sleep does.
    fn sleeps_at_once(&self) -> bool {
        false
    }

    /// Waits for the requests under way, and releases the guest's memory.
    fn stop(self: Box<Self>) -> Stopped;
}
