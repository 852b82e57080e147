//! The power supply of simulated devices: all devices that share one lose power at the same moment.

use std::fmt;
use std::sync::Arc;

use qpair_block::time::SimClock;
use qpair_memory::locks::Mutex;

struct State {
    /// The time at which the power is cut; `u64::MAX` if that is not known yet.
    cut_ns: u64,
    /// The number of writes and flushes until the one at which the power is cut; 0 for none.
    countdown: u64,
    /// Only writes that begin before this byte of their device are counted down; `u64::MAX` counts
    /// all writes and flushes.
    counted_below: u64,
    /// The number of writes and flushes carried out so far.
    changes: u64,
}

/// A power supply that can be cut once. Clones are the same supply.
#[derive(Clone)]
pub struct SimPower {
    clock: SimClock,
    state: Arc<Mutex<State>>,
}

impl SimPower {
    /// Creates a supply that lasts until it is cut.
    #[must_use]
    pub fn new(clock: &SimClock) -> Self {
        let state = State { cut_ns: u64::MAX, countdown: 0, counted_below: u64::MAX, changes: 0 };
        Self { clock: clock.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        self.cut_at(self.clock.now_ns());
    }

    /// Cuts the power at a later time.
    pub fn cut_at(&self, at_ns: u64) {
        let mut state = self.state.lock();
        state.cut_ns = state.cut_ns.min(at_ns);
        self.clock.schedule(at_ns);
    }

    /// Cuts the power just before or just after the `nth` write or flush from now that a device
    /// executes.
    pub fn cut_at_change(&self, nth: u64) {
        self.cut_at_write_below(u64::MAX, nth);
    }

    /// Works like [`cut_at_change`](Self::cut_at_change), but counts only writes that begin in the
    /// first `offset_bytes_max` bytes of their device.
    pub fn cut_at_write_below(&self, offset_bytes_max: u64, nth: u64) {
        let mut state = self.state.lock();
        (state.counted_below, state.countdown) = (offset_bytes_max, nth);
    }

    /// Whether the power is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut_ns() <= self.clock.now_ns()
    }

    /// Returns the number of writes and flushes that the devices carried out.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    pub(super) fn cut_ns(&self) -> u64 {
        self.state.lock().cut_ns
    }

    /// Counts a write at an offset, or a flush, which is after all offsets. Returns whether the
    /// power cut hits it. For devices outside of this module.
    #[must_use]
    pub fn count_change(&self, offset: u64) -> bool {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        state.changes += 1;
        if state.countdown == 0 || offset >= state.counted_below {
            return false;
        }
        state.countdown -= 1;
        if state.countdown == 0 {
            state.cut_ns = state.cut_ns.min(now_ns);
        }
        state.countdown == 0
    }
}

impl fmt::Debug for SimPower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_cut() { "SimPower, cut" } else { "SimPower" })
    }
}
