//! Progress of long work for a caller that wants to show it, and requests to stop.

use qpair::{Error, ErrorKind};

/// Returns the error of work that was stopped on request.
pub(crate) fn interrupted() -> Error {
    Error::new(ErrorKind::Closed, "the run was interrupted")
}

/// Receives the phases of the work and their progress, a few times a second.
pub trait Progress: Sync {
    /// Begins a phase with its name, and its size in its own unit (seconds, or records).
    fn begin(&self, phase: &str, total: u64);

    /// Reports the progress of the phase.
    fn at(&self, done: u64);

    /// Reports additional information about the phase, such as its speed.
    fn note(&self, _: &str) {}

    /// Ends the phase.
    fn end(&self);

    /// Whether the work should stop early.
    fn stop(&self) -> bool {
        false
    }
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: u64) {}
    fn at(&self, _: u64) {}
    fn end(&self) {}
}
