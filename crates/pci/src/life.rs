//! The state of a controller in one word, which its driver's channels read before they use the
//! controller.

/// The phase of a controller's life, which says what channels may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Channels create their queues and use them.
    Running,
    /// The controller is being stopped or reset and may still access memory. Channels send nothing,
    /// and give back only requests that complete.
    Stopping,
    /// The controller no longer accesses memory: all requests have ended.
    Quiet,
    /// The controller is gone for good, and accesses no memory.
    Gone,
}

/// The number of a controller's life, and its phase. Each reset begins a new life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeWord(u64);

impl LifeWord {
    /// A word that belongs to no controller, because no life reaches this number.
    pub const NEVER: Self = Self(u64::MAX);

    #[must_use]
    pub fn new(life: u64, phase: Phase) -> Self {
        Self(life << 2 | phase as u64)
    }

    /// Restores a word from [`LifeWord::bits`].
    #[inline(always)]
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the number of the life, counted from the first.
    #[must_use]
    pub fn life(self) -> u64 {
        self.0 >> 2
    }

    #[inline(always)]
    #[must_use]
    pub fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Running,
            1 => Phase::Stopping,
            2 => Phase::Quiet,
            _ => Phase::Gone,
        }
    }
}
