//! The state of a controller, and the gates that keep posts apart from resets.
//!
//! The state is one word. A channel posts inside its [`Gate`] if the word is still the one that it
//! knows. The thread that resets the controller stores another word, and waits until no gate is
//! entered. After that nothing of the old life is posted any more.

use crate::sync::{AtomicBool, AtomicU64, Ordering, fence, yield_now};

pub(crate) use qpair_pci::{LifeWord as Word, Phase};

pub(crate) struct State(AtomicU64);

impl State {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(Word::new(0, Phase::Quiet).bits()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Word {
        // Acquire: a thread that sees that the controller is quiet sees what it wrote before. Pairs
        // with `set`.
        Word::from_bits(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, word: Word) {
        // Release: pairs with `get`.
        self.0.store(word.bits(), Ordering::Release);
    }
}

/// The gate of a channel, by which it posts.
#[derive(Debug)]
pub(crate) struct Gate(AtomicBool);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Does `work` if the word is still `seen`. No reset begins meanwhile.
    #[inline]
    pub(crate) fn pass<R>(&self, state: &State, seen: Word, work: impl FnOnce() -> R) -> Option<R> {
        self.0.store(true, Ordering::Relaxed);
        // Partner of the fence in `wait`: either the new word is seen here, or the entered gate
        // there.
        fence(Ordering::SeqCst);
        let is_same = state.get() == seen;
        let done = is_same.then(work);
        self.0.store(false, Ordering::Release);
        done
    }

    /// Waits until no thread is in the gate, after the word was changed. All posts through the gate
    /// have then been made.
    pub(crate) fn wait(&self) {
        // Partner of the fence in `pass`.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release at the end of `pass`.
        while self.0.load(Ordering::Acquire) {
            yield_now();
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool as LoomBool;

    use super::*;

    /// Nothing is posted once the reset has waited for the gate.
    #[test]
    fn no_post_passes_a_reset() {
        loom::model(|| {
            let state = Arc::new(State::new());
            let running = Word::new(1, Phase::Running);
            state.set(running);
            let gate = Arc::new(Gate::new());
            let is_reset = Arc::new(LoomBool::new(false));
            let poster = {
                let (state, gate, is_reset) = (state.clone(), gate.clone(), is_reset.clone());
                loom::thread::spawn(move || {
                    gate.pass(&state, running, || {
                        assert!(!is_reset.load(Ordering::SeqCst), "posted into the next life");
                    });
                })
            };
            state.set(Word::new(1, Phase::Stopping));
            gate.wait();
            is_reset.store(true, Ordering::SeqCst);
            poster.join().unwrap();
        });
    }
}
