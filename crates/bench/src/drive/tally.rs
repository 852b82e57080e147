//! The common tally of the clients of one thread.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use hdrhistogram::Histogram;
use qpair::{Error, ErrorKind, Result};

use super::Done;

/// The longest latency that a histogram distinguishes, in nanoseconds.
const LONGEST_NS: u64 = 100_000_000_000;

/// The counts of one kind of operations.
pub(crate) struct KindTally {
    /// Operations.
    pub(crate) count: u64,
    /// The sum of the operations' weights.
    pub(crate) weight: u64,
    /// Operations that ended without a commit, as the workload intended.
    pub(crate) rolled_back: u64,
    /// Attempts that ended with a conflict.
    pub(crate) conflicts: u64,
    /// Operations that needed more than one attempt.
    pub(crate) retried: u64,
    /// Latencies, nanoseconds.
    pub(crate) histogram: Histogram<u64>,
}

/// The counts of one thread.
pub(crate) struct Tally {
    pub(crate) kinds: Vec<KindTally>,
    /// The weight of the operations of each second.
    pub(crate) by_second: Vec<u64>,
}

fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST_NS, 2)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("creating a histogram: {error}")))
}

impl Tally {
    pub(crate) fn new(kinds: usize) -> Result<Self> {
        let kind = || {
            let histogram = new_histogram()?;
            let (count, weight, rolled_back, conflicts, retried) = Default::default();
            Ok(KindTally { count, weight, rolled_back, conflicts, retried, histogram })
        };
        Ok(Self { kinds: (0..kinds).map(|_| kind()).collect::<Result<_>>()?, by_second: vec![] })
    }

    #[inline]
    pub(super) fn count(&mut self, done: &Done, took_ns: u64, at_ns: u64) {
        let kind = &mut self.kinds[done.kind];
        kind.count += 1;
        kind.weight += u64::from(done.weight);
        kind.rolled_back += u64::from(done.rolled_back);
        kind.conflicts += u64::from(done.conflicts);
        kind.retried += u64::from(done.conflicts > 0);
        kind.histogram.saturating_record(took_ns);
        let second = (at_ns / 1_000_000_000) as usize;
        if self.by_second.len() <= second {
            self.by_second.resize(second + 1, 0);
        }
        self.by_second[second] += u64::from(done.weight);
    }

    pub(super) fn add(&mut self, other: &Self) -> Result<()> {
        for (kind, more) in self.kinds.iter_mut().zip(&other.kinds) {
            kind.count += more.count;
            kind.weight += more.weight;
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
pub(super) fn of_this_thread(kinds: usize) -> Result<Rc<RefCell<Tally>>> {
    TALLY.with(|shared| {
        let mut shared = shared.borrow_mut();
        if let Some(tally) = shared.upgrade()
            && tally.borrow().kinds.len() == kinds
        {
            return Ok(tally);
        }
        let tally = Rc::new(RefCell::new(Tally::new(kinds)?));
        *shared = Rc::downgrade(&tally);
        Ok(tally)
    })
}

/// Returns the counts if no other client of this thread is still counting.
pub(super) fn taken_by_the_last(tally: Rc<RefCell<Tally>>) -> Option<Tally> {
    Rc::try_unwrap(tally).ok().map(RefCell::into_inner)
}
