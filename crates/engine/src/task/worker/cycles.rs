//! Measures what a worker spends its time on. Measuring is off by default and then costs one
//! branch.

use std::cell::Cell;

use qpair_memory::ticks;

use super::Worker;
use crate::metrics::Part;

/// The current activity of the worker and when it began. `None` if measuring is off.
#[derive(Debug)]
pub(super) struct Cycles(Option<Cell<(u64, Part)>>);

impl Cycles {
    pub(super) fn new(on: bool) -> Self {
        Self(on.then(|| Cell::new((ticks(), Part::Rest))))
    }
}

impl Worker {
    /// Sets the present activity of the worker and returns the previous one. Each tick is charged
    /// to one activity.
    #[inline(always)]
    pub(super) fn enter(&self, part: Part) -> Part {
        let Some(now) = &self.cycles.0 else { return part };
        let ticks = ticks();
        let (since, before) = now.replace((ticks, part));
        self.shared.counters.of(self.number).count_ticks(before, ticks.wrapping_sub(since));
        before
    }
}
