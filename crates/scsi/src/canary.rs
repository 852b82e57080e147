//! Bugs that can be planted, for simulations that must catch them. See docs/design/simulation.md.

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Canary {
    /// A disk with a volatile cache is taken for one without: flushes do not reach it.
    CacheNotFlushed,
    /// A unit that tells of a loss of power is not heard.
    LossNotHeard,
    /// A command that ended unseen is not taken for one that may hide a loss of power.
    UnseenIsTrusted,
    /// A command that a task or a reset ended is taken for done.
    EndedIsDone,
}

impl Canary {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::CacheNotFlushed, Self::LossNotHeard, Self::UnseenIsTrusted, Self::EndedIsDone];

    /// Its name in options.
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
