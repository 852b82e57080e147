//! The state of a controller: one word, written under the lock of the controller's core and read by
//! every channel.

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use qpair_pci::{LifeWord as Word, Phase};

pub(crate) struct State(AtomicU64);

impl State {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Word::new(0, Phase::Quiet).bits()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Word {
        // Acquire: a thread that sees that the controller is quiet also sees everything that the
        // controller wrote before. Pairs with `set`.
        Word::from_bits(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, word: Word) {
        self.0.store(word.bits(), Ordering::Release);
    }
}
