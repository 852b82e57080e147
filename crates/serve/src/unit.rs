//! What a worker turns.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use qpair_block::Result;

/// Makes a unit, on the thread of the worker that is to have it: channels belong to one thread.
pub(crate) type Start = Box<dyn FnOnce() -> Result<Box<dyn Unit>> + Send>;

/// What a unit was doing, when it stopped.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    /// Heads taken from its ring so far, modulo 2^16.
    pub(crate) taken: u16,
    pub(crate) kick: Option<OwnedFd>,
    /// The ring made no sense.
    pub(crate) is_broken: bool,
}

/// A queue, or a controller with its queues.
pub(crate) trait Unit {
    /// Descriptor by which others say that there is something to do.
    fn kick_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Descriptor that polls readable when something that is under way may have ended; `None`:
    /// nothing of it is ever waited for.
    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>>;

    /// A worker woke up for it.
    fn count_kick(&self);

    /// Whether requests are under way.
    fn is_busy(&self) -> bool;

    /// Does what there is to do. Whether there was something.
    fn turn(&mut self) -> bool;

    /// Asks to be kicked. False: there is something to do already, or no driver would kick.
    fn listen(&mut self) -> bool;

    /// Asks not to be kicked any more.
    fn be_quiet(&mut self);

    /// How soon it is to be turned though no driver kicks; `None`: it need not be.
    fn nap(&self) -> Option<Duration> {
        None
    }

    /// Waits for what is under way, and lets go of the guest's memory.
    fn stop(self: Box<Self>) -> Stopped;
}
