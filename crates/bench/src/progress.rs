//! Progress of long work, for a caller that wants to show it; and the wish to stop.

/// Told of phases and of how far they are. Called a few times a second.
pub trait Progress: Sync {
    /// A phase begins: what it is, and its size in its own unit (seconds, or records).
    fn begin(&self, phase: &str, total: u64);

    /// How far the phase is.
    fn at(&self, done: u64);

    /// What else is to be said of the phase now: its speed.
    fn note(&self, _: &str) {}

    /// The phase is over.
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
