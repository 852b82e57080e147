//! Where a controller is in its life, as one word that its driver's channels read before they use it.

/// What channels may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Make their queues, and use them.
    Running,
    /// The controller is being stopped or reset: it may still touch memory. Nothing is sent, and nothing given back but what completes.
    Stopping,
    /// It touches no memory any more: what was under way is over.
    Quiet,
    /// As quiet, for good.
    Gone,
}

/// A life of the controller and its phase. Each reset begins a new life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeWord(u64);

impl LifeWord {
    /// Of no controller: no life comes to this.
    pub const NEVER: Self = Self(u64::MAX);

    /// The word of a phase of a life.
    #[must_use]
    pub fn new(life: u64, phase: Phase) -> Self {
        Self(life << 2 | phase as u64)
    }

    /// The word as it was kept by [`LifeWord::bits`].
    #[inline(always)]
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// What an atomic holds of it.
    #[inline(always)]
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Which life it is, counted from the first.
    #[must_use]
    pub fn life(self) -> u64 {
        self.0 >> 2
    }

    /// What may be done in it.
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
