//! Bugs that can be planted, for simulations that must detect them. See docs/design/simulation.md.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Canary {
    /// Treats a disk with a volatile cache as one without a cache: flushes do not reach it.
    CacheNotFlushed,
    /// Ignores a unit's report of a loss of power.
    LossNotHeard,
    /// Assumes that a command which ended unseen hides no loss of power.
    UnseenIsTrusted,
    /// Treats a command that a task or a reset ended as done.
    EndedIsDone,
}

impl Canary {
    pub const ALL: [Self; 4] =
        [Self::CacheNotFlushed, Self::LossNotHeard, Self::UnseenIsTrusted, Self::EndedIsDone];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CacheNotFlushed => "cache-not-flushed",
            Self::LossNotHeard => "loss-not-heard",
            Self::UnseenIsTrusted => "unseen-is-trusted",
            Self::EndedIsDone => "ended-is-done",
        }
    }
}
