//! The page reads of a worker: those in flight, and those held back because more in flight would
//! gain nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Instant;

use qpair_block::Request;

use super::Worker;
use super::limiter::Limiter;

pub(super) struct Reads {
    /// The number of reads that were submitted to the channel, or wait for room there.
    in_flight: Cell<u32>,
    limit: Cell<u32>,
    held: RefCell<VecDeque<Request>>,
    /// The number of reads that ended since the limiter was told.
    ended: Cell<u32>,
    /// The limiter; `None` if the limit is fixed.
    limiter: RefCell<Option<Limiter>>,
}

impl Reads {
    /// Creates the state with a fixed limit, or, if `fixed` is 0, with a limit of up to `depth`
    /// that the limiter chooses.
    pub(super) fn new(fixed: u32, depth: u32) -> Self {
        Self {
            in_flight: Cell::new(0),
            limit: Cell::new(if fixed == 0 { depth } else { fixed }),
            held: RefCell::default(),
            ended: Cell::new(0),
            limiter: RefCell::new((fixed == 0).then(|| Limiter::new(depth, Instant::now()))),
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit.get()
    }
}

impl Worker {
    /// Submits the read of a page to the channel, or keeps it until fewer are in flight.
    pub(super) fn submit_read(&self, request: Request) {
        let reads = &self.reads;
        if reads.in_flight.get() < reads.limit.get() && reads.held.borrow().is_empty() {
            reads.in_flight.set(reads.in_flight.get() + 1);
            self.submit(request);
        } else {
            reads.held.borrow_mut().push_back(request);
        }
    }

    /// Submits reads that were held back, as far as the limit allows.
    fn submit_held_reads(&self) {
        let reads = &self.reads;
        while reads.in_flight.get() < reads.limit.get() {
            let Some(request) = reads.held.borrow_mut().pop_front() else { return };
            reads.in_flight.set(reads.in_flight.get() + 1);
            self.submit(request);
        }
    }

    #[inline(always)]
    pub(super) fn read_ended(&self) {
        let reads = &self.reads;
        reads.in_flight.set(reads.in_flight.get() - 1);
        reads.ended.set(reads.ended.get() + 1);
    }

    /// Reports the reads that ended together to the limiter, and submits held-back reads in their
    /// place: nothing else makes room for them.
    #[inline]
    pub(super) fn take_ended_reads(&self) {
        let reads = &self.reads;
        let ended = reads.ended.take();
        if ended == 0 {
            return;
        }
        if let Some(limiter) = &mut *reads.limiter.borrow_mut() {
            limiter.ended(ended, reads.in_flight.get() + ended, Instant::now());
            reads.limit.set(limiter.limit());
            self.shared.counters.of(self.number).set_reads_max(limiter.settled());
        }
        self.submit_held_reads();
    }
}
