//! One die: its current work, and its queue.
//!
//! A die does one thing at a time. Reads come before queued work (programs, and the reads, programs
//! and erases of garbage collection). Reads do not come before the work under way, unless the die
//! can suspend it. The state is brought up to date only when a caller asks ([`Die::advance`]), so
//! an unused die costs nothing. Invariant: after `advance(t)`, no queued work could have begun
//! before `t`.

use super::calendar::Calendar;

/// The times of the medium, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) read: u64,
    pub(super) program: u64,
    pub(super) slc_program: u64,
    pub(super) erase: u64,
    pub(super) suspend: u64,
    pub(super) slc_idle: u64,
    pub(super) jitter: f64,
    pub(super) page_bytes: u64,
}

impl Times {
    /// Returns a random time around its mean.
    fn stray(&self, mean_ns: u64, rng: &mut fastrand::Rng) -> u64 {
        if self.jitter == 0.0 {
            return mean_ns;
        }
        (mean_ns as f64 * (1.0 + self.jitter * (2.0 * rng.f64() - 1.0))) as u64
    }
}

/// The work of garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Collection {
    pub(super) reads: u32,
    pub(super) programs: u32,
    pub(super) erases: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Die {
    /// The time when the accepted reads are over.
    reads_until: u64,
    /// The time when the program or erase under way is over.
    work_until: u64,
    /// The time when the queued work came. The work cannot have begun before.
    work_since: u64,
    /// Whether the work under way programs a page of the host. The page stays in the cache until
    /// then.
    host_page_under_way: bool,
    /// The page in the die's register, plus one; 0 for no page.
    register: u64,
    /// Queued work of garbage collection, done before the pages of the host.
    collection: Collection,
    /// Pages of the host that wait to be programmed.
    pages: u32,
    /// The number of pages at the front of `pages` that are programmed with one bit a cell.
    slc_pages: u32,
    /// The number of pages in the SLC cache that are yet to be folded.
    folds: u32,
}

impl Die {
    /// Advances the die to `now`, and begins queued work in the times when the die was free.
    pub(super) fn advance(
        &mut self,
        now: u64,
        times: &Times,
        rng: &mut fastrand::Rng,
        bus: &mut Calendar,
    ) {
        loop {
            let free_ns = self.free_ns();
            if free_ns >= now {
                return;
            }
            if !self.begin(free_ns, times, rng, bus) {
                self.fold(free_ns, now, times);
                return;
            }
        }
    }

    /// Returns when the die is free for queued work.
    fn free_ns(&self) -> u64 {
        self.reads_until.max(self.work_until).max(self.work_since)
    }

    /// Begins the next piece of queued work. Returns false if the queue is empty.
    fn begin(
        &mut self,
        at: u64,
        times: &Times,
        rng: &mut fastrand::Rng,
        bus: &mut Calendar,
    ) -> bool {
        let (mean_ns, over_bus) = if self.collection.reads > 0 {
            self.collection.reads -= 1;
            (times.read, true)
        } else if self.collection.programs > 0 {
            self.collection.programs -= 1;
            (times.program, true)
        } else if self.collection.erases > 0 {
            self.collection.erases -= 1;
            (times.erase, false)
        } else if self.pages > 0 {
            self.pages -= 1;
            let slc = self.slc_pages > 0;
            self.slc_pages -= u32::from(slc);
            (if slc { times.slc_program } else { times.program }, true)
        } else {
            self.host_page_under_way = false;
            return false;
        };
        self.host_page_under_way = self.collection == Collection::default();
        self.register = 0;
        let over_ns = at + times.stray(mean_ns, rng);
        // The bus brings the next page while the die programs one, so the bus matters only where it
        // is slower than the cells.
        let brought_ns = if over_bus { bus.reserve(at, times.page_bytes) } else { at };
        self.work_until = over_ns.max(brought_ns);
        true
    }

    /// Folds the SLC cache in the time that no other work used.
    fn fold(&mut self, idle_since: u64, now: u64, times: &Times) {
        let begin_ns = idle_since + times.slc_idle;
        if self.folds == 0 || begin_ns >= now {
            return;
        }
        let each_ns = (times.read + times.program).max(1);
        let begun = ((now - begin_ns) / each_ns + 1).min(self.folds.into());
        self.folds -= begun as u32;
        self.work_until = begin_ns + begun * each_ns;
        self.register = 0;
    }

    /// Reads a page for a request that came at `now`, and returns when the data is in the register.
    /// The caller has advanced the die to `now`.
    pub(super) fn read(
        &mut self,
        now: u64,
        page: u64,
        mean_ns: u64,
        times: &Times,
        rng: &mut fastrand::Rng,
    ) -> u64 {
        let at = now.max(self.reads_until);
        if self.register == page + 1 && self.work_until <= at {
            return at;
        }
        let time_ns = times.stray(mean_ns, rng);
        let begin_ns = if self.work_until <= at {
            at
        } else if times.suspend > 0 && self.work_until > at + times.suspend {
            self.work_until += times.suspend + time_ns;
            at + times.suspend
        } else {
            self.work_until
        };
        self.register = page + 1;
        self.reads_until = begin_ns + time_ns;
        self.reads_until
    }

    /// Begins queued work before reads that come later. Callers use it when the cache is full,
    /// since reads would otherwise starve writes.
    pub(super) fn press(
        &mut self,
        now: u64,
        times: &Times,
        rng: &mut fastrand::Rng,
        bus: &mut Calendar,
    ) {
        if self.work_until <= now.max(self.reads_until) {
            self.begin(self.free_ns().max(now), times, rng, bus);
        }
    }

    /// Queues work of garbage collection that came at `now`. The caller has advanced the die to
    /// `now`.
    pub(super) fn add_collection(&mut self, now: u64, work: Collection) {
        self.wait_from(now);
        self.collection.reads += work.reads;
        self.collection.programs += work.programs;
        self.collection.erases += work.erases;
    }

    /// Queues a page of the host that came at `now`. The caller has advanced the die to `now`. The
    /// page is programmed with one bit a cell while fewer than `slc_max` pages are unfolded.
    pub(super) fn add_page(&mut self, now: u64, slc_max: u32) {
        self.wait_from(now);
        self.pages += 1;
        // The SLC pages come first in the queue: once the SLC cache is full, the queued pages have
        // to be programmed before the cache can be folded.
        if self.folds < slc_max && self.slc_pages + 1 == self.pages {
            self.slc_pages += 1;
            self.folds += 1;
        }
    }

    fn wait_from(&mut self, now: u64) {
        if self.pages == 0 && self.collection == Collection::default() {
            self.work_since = now;
        }
    }

    /// Returns the number of pages of the host that are not in the cells yet.
    pub(super) fn pages_cached(&self, now: u64) -> u32 {
        self.pages + u32::from(self.host_page_under_way && self.work_until > now)
    }

    /// Returns when all but `rest` of the pages queued now will have been programmed, if no reads
    /// come between.
    pub(super) fn programmed_ns(&self, now: u64, rest: u32, times: &Times) -> u64 {
        let Collection { reads, programs, erases } = self.collection;
        let under_way = u32::from(self.host_page_under_way && self.work_until > now);
        let begun_ns = self.free_ns().max(now);
        if self.pages + under_way <= rest {
            return now;
        }
        let count = (self.pages + under_way - rest).saturating_sub(under_way);
        if count == 0 {
            return self.work_until;
        }
        let collection_ns = u64::from(reads) * times.read
            + u64::from(programs) * times.program
            + u64::from(erases) * times.erase;
        let slc = count.min(self.slc_pages);
        begun_ns
            + collection_ns
            + u64::from(slc) * times.slc_program
            + u64::from(count - slc) * times.program
    }

    /// Clears the register, so that no read can use its content.
    pub(super) fn forget_register(&mut self) {
        self.register = 0;
    }

    pub(super) fn slc_pages_held(&self) -> u32 {
        self.folds
    }
}
