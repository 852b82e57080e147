//! The common tally of the clients of one thread.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hdrhistogram::Histogram;
use qpair::{Error, ErrorKind, Result};

use super::client::Done;
use super::measured::KindTally;
use super::window::{Live, Window};

/// The longest latency that a histogram distinguishes, in nanoseconds.
const LONGEST_NS: u64 = 100_000_000_000;

/// The counts of one thread.
pub(super) struct Tally {
    pub(super) kinds: Vec<KindTally>,
    pub(super) by_second: Vec<u64>,
    /// The weight of all finished requests. The next field publishes it to the other threads.
    done: u64,
    live: Arc<Live>,
}

fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_NS, 2)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("creating a histogram: {error}")))
}

impl Tally {
    pub(super) fn new(window: &Window) -> Result<Self> {
        let kind = |_| {
            let histogram = new_histogram()?;
            Ok(KindTally { rolled_back: 0, conflicts: 0, retried: 0, histogram })
        };
        let kinds = (0..window.kinds).map(kind).collect::<Result<_>>()?;
        Ok(Self { kinds, by_second: Vec::new(), done: 0, live: window.new_live() })
    }

    /// Counts a request.
    #[inline]
    pub(super) fn count(
        &mut self,
        window: &Window,
        done: Done,
        conflicts: u32,
        began_ns: u64,
        ended_ns: u64,
    ) {
        self.done += u64::from(done.weight);
        self.live.0.store(self.done, Ordering::Relaxed);
        if !window.measures(ended_ns) {
            return;
        }
        let kind = &mut self.kinds[done.kind];
        kind.histogram.saturating_record(ended_ns - began_ns);
        kind.rolled_back += u64::from(done.rolled_back);
        if conflicts > 0 {
            kind.conflicts += u64::from(conflicts);
            kind.retried += 1;
        }
        let second = ((ended_ns - window.from_ns) / 1_000_000_000) as usize;
        if self.by_second.len() <= second {
            self.by_second.resize(second + 1, 0);
        }
        self.by_second[second] += u64::from(done.weight);
    }

    pub(super) fn add(&mut self, other: &Self) -> Result<()> {
        for (kind, more) in self.kinds.iter_mut().zip(&other.kinds) {
            kind.rolled_back += more.rolled_back;
            kind.conflicts += more.conflicts;
            kind.retried += more.retried;
            kind.histogram.add(&more.histogram).map_err(|error| {
                Error::new(ErrorKind::Invalid, format!("adding histograms: {error}"))
            })?;
        }
        if self.by_second.len() < other.by_second.len() {
            self.by_second.resize(other.by_second.len(), 0);
        }
        for (total, more) in self.by_second.iter_mut().zip(&other.by_second) {
            *total += more;
        }
        Ok(())
    }
}

thread_local! {
    static TALLY: RefCell<Weak<RefCell<Tally>>> = const { RefCell::new(Weak::new()) };
}

/// Returns the tally of this thread, which its first client makes.
pub(super) fn of_this_thread(window: &Window) -> Result<Rc<RefCell<Tally>>> {
    TALLY.with(|shared| {
        let mut shared = shared.borrow_mut();
        if let Some(tally) = shared.upgrade()
            && tally.borrow().kinds.len() == window.kinds
        {
            return Ok(tally);
        }
        let tally = Rc::new(RefCell::new(Tally::new(window)?));
        *shared = Rc::downgrade(&tally);
        Ok(tally)
    })
}

/// Returns the counts if no other client of this thread is still counting.
pub(super) fn taken_by_the_last(tally: Rc<RefCell<Tally>>) -> Option<Tally> {
    Rc::try_unwrap(tally).ok().map(RefCell::into_inner)
}
