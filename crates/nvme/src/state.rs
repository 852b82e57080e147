//! Where a controller is in its life: one word, written under the lock of the controller's core and read by every channel.

use std::sync::atomic::{AtomicU64, Ordering};

/// What channels may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Make their queues, and use them.
    Running,
    /// The controller is being stopped: it may still touch memory. Nothing is sent, and nothing given back but what completes.
    Stopping,
    /// It touches no memory any more: what is under way is over.
    Quiet,
    /// As quiet, for good.
    Gone,
}

/// A life of the controller and its phase. Each reset begins a new life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    /// Of no controller: no life comes to this.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) fn new(life: u64, phase: Phase) -> Self {
        Self(life << 2 | phase as u64)
    }

    pub(crate) fn life(self) -> u64 {
        self.0 >> 2
    }

    pub(crate) fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Running,
            1 => Phase::Stopping,
            2 => Phase::Quiet,
            _ => Phase::Gone,
        }
    }
}

pub(crate) struct State(AtomicU64);

impl State {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Word::new(0, Phase::Quiet).0))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Word {
        // Acquire: whoever sees that the controller is quiet sees what it wrote before. Pairs with `set`.
        Word(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, word: Word) {
        self.0.store(word.0, Ordering::Release);
    }
}
