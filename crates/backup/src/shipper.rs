//! The writer of a backup, in steps. One step does a little: it ships the changes since the last
//! point, or makes one piece of a greater part.
//!
//! - At most one journal entry is being written. Whatever changes with it changes once it is
//!   written.
//! - A step that fails with `Io` may be repeated at any time.

use std::sync::Arc;

use qpair_engine::{ChangeFeed, ErrorKind, FeedBreak, Next, Result, Store};

use crate::canary::Canary;
use crate::change::{Merge, Scan, list};
use crate::job::{Job, Sizes, Source};
use crate::journal::Journal;
use crate::manifest::{FULL, Part};
use crate::objects::{Costs, Counted, Objects};
use crate::plan::{Keep, expired, to_merge};

/// How a store is backed up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackupOptions {
    /// The time between two points, in milliseconds. Default: 1,000.
    pub every_ms: u64,
    /// The bytes of commits after which a point is shipped before its time. Default: 4 MiB.
    pub every_bytes: u64,
    /// The memory for commits that are not shipped, in bytes. Beyond it the backup begins anew with
    /// a full part, since commits do not wait. Default: 64 MiB.
    pub memory_bytes: u64,
    /// The greatest length of a piece of a part, in bytes, but for its last change. Default: 8 MiB.
    pub piece_bytes: usize,
    /// The greatest part that lies in its journal entry, in bytes: it costs one request instead of
    /// two. Default: 256 KiB.
    pub inline_bytes: usize,
    /// The number of parts that are merged into one. Default: 16.
    pub fan_in: usize,
    /// A full part is made when the changes since the last one have this many percent of its bytes.
    /// Default: 100.
    pub full_percent: u64,
    /// The changes in bytes below which no full part is made. Default: 64 MiB.
    pub full_bytes_min: u64,
    /// How long points are kept, in milliseconds. Default: 30 days.
    pub keep_ms: u64,
    /// How long all points are kept, in milliseconds. Of older ones, the ends of parts that were
    /// merged once are kept for 8 times this time, those merged twice for 64 times, and so on.
    /// Default: one hour.
    pub keep_all_ms: u64,
    /// The time between two searches for objects that are no longer needed, in milliseconds.
    /// Default: one hour.
    pub sweep_ms: u64,
    /// A bug to plant, to prove that tests find it.
    #[doc(hidden)]
    pub canary: Option<Canary>,
}

impl Default for BackupOptions {
    fn default() -> Self {
        const DAY_MS: u64 = 86_400_000;
        Self {
            every_ms: 1000,
            every_bytes: 4 << 20,
            memory_bytes: 64 << 20,
            piece_bytes: 8 << 20,
            inline_bytes: 256 << 10,
            fan_in: 16,
            full_percent: 100,
            full_bytes_min: 64 << 20,
            keep_ms: 30 * DAY_MS,
            keep_all_ms: DAY_MS / 24,
            sweep_ms: DAY_MS / 24,
            canary: None,
        }
    }
}

/// The state of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupStatus {
    /// The newest commit that a restore would have; 0 before the first full part.
    pub shipped: u64,
    /// The time of that point, in milliseconds since 1970.
    pub shipped_ms: u64,
    /// Whether a full part is complete, so that there is a point to restore to.
    pub is_restorable: bool,
    /// How often the backup began anew because the feed of changes broke.
    pub breaks: u64,
    /// The reason of the last time.
    pub last_break: Option<FeedBreak>,
    /// Requests and bytes so far.
    pub costs: Costs,
    /// Bytes of the parts that lie there.
    pub stored_bytes: u64,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something was done, and there may be more.
    Worked,
    /// There is nothing to do until this time, in milliseconds since 1970.
    Idle(u64),
}

/// The effect of the entry that is being written.
enum Staged {
    /// A point is shipped.
    Point {
        to: u64,
        time_ms: u64,
    },
    /// A part is complete.
    Part {
        level: u8,
        bytes: u64,
        chain: u64,
    },
    Expired,
}

/// The writer of a backup.
pub struct Shipper {
    journal: Journal,
    feed: ChangeFeed,
    options: BackupOptions,
    /// The chain of the feed, and the last point in it that is shipped; `None` until the feed has
    /// begun.
    chain: Option<(u64, u64)>,
    chains: u64,
    next_part: u64,
    shipping: Option<Job>,
    job: Option<Job>,
    /// Whether the job's full part needs only its point.
    is_scanned: bool,
    staged: Option<Staged>,
    due_ms: u64,
    /// Whether the last step completed a point.
    has_shipped: bool,
    swept_ms: u64,
    /// The bytes of the last full part of the chain, and of the changes since.
    full_bytes: Option<u64>,
    changed_bytes: u64,
    status: BackupStatus,
}

impl Shipper {
    /// Begins to back a store up. Another writer of this backup ends.
    ///
    /// # Errors
    /// `Exists` if the place has the backup of another store; `Busy` if the store is being backed
    /// up by this process; errors of the place.
    pub fn open(
        store: &Store,
        objects: Arc<dyn Objects>,
        options: BackupOptions,
        now_ms: u64,
    ) -> Result<Self> {
        let feed = store.change_feed(options.memory_bytes)?;
        let objects = Arc::new(Counted::new(objects));
        let report = store.report();
        let mut journal = Journal::open(objects, &report.id, report.page_size as u64, now_ms)?;
        journal.canary = options.canary;
        let chains = journal.manifest.parts.values().map(|part| part.chain + 1).max().unwrap_or(1);
        let next_part = journal.manifest.next_part.max(1);
        Ok(Self {
            journal,
            feed,
            options,
            chain: None,
            chains,
            next_part,
            shipping: None,
            job: None,
            is_scanned: false,
            staged: None,
            due_ms: now_ms,
            has_shipped: false,
            swept_ms: now_ms,
            full_bytes: None,
            changed_bytes: 0,
            status: BackupStatus::default(),
        })
    }

    /// Returns the state of the backup.
    #[must_use]
    pub fn status(&self) -> BackupStatus {
        let costs = self.journal.objects.costs();
        let stored_bytes = self.journal.manifest.parts.values().map(|part| part.bytes).sum();
        BackupStatus { costs, stored_bytes, ..self.status }
    }

    /// Does the next piece of work.
    ///
    /// # Errors
    /// `Io` if the place does not answer: the step may be repeated. `Busy` if another process has
    /// taken the backup over; `Closed`; other errors of the place and the store.
    pub fn step(&mut self, store: &Store, now_ms: u64) -> Result<Step> {
        self.flush()?;
        if self.chain.is_none() {
            self.begin(store)?;
            return Ok(Step::Worked);
        }
        let is_due = now_ms >= self.due_ms || self.feed.waiting_bytes() >= self.options.every_bytes;
        // A slow place may make a point due at each step; other work then has every second one.
        if self.shipping.is_some() || (is_due && !self.has_shipped) {
            self.ship(store, now_ms)?;
            self.has_shipped = self.shipping.is_none();
            return Ok(Step::Worked);
        }
        self.has_shipped = false;
        self.journal.write_manifest()?;
        if self.work(store, now_ms)? || is_due {
            return Ok(Step::Worked);
        }
        Ok(Step::Idle(self.due_ms))
    }

    /// Ships everything that is committed by now, and finishes the first full part.
    ///
    /// # Errors
    /// As [`Shipper::step`].
    pub fn finish(&mut self, store: &Store, now_ms: u64) -> Result<()> {
        while !self.is_whole() {
            self.step(store, now_ms)?;
        }
        (self.due_ms, self.has_shipped) = (now_ms, false);
        self.step(store, now_ms)?;
        while !self.is_whole() {
            self.step(store, now_ms)?;
        }
        Ok(())
    }

    /// Whether there is a full part, and no point is being shipped.
    fn is_whole(&self) -> bool {
        self.chain.is_some()
            && self.full_bytes.is_some()
            && self.shipping.is_none()
            && self.staged.is_none()
    }

    fn is_planted(&self, canary: Canary) -> bool {
        self.options.canary == Some(canary)
    }

    fn sizes(&self) -> Sizes {
        let (piece_bytes, inline_bytes) = (self.options.piece_bytes, self.options.inline_bytes);
        Sizes { piece_bytes, inline_bytes }
    }

    /// Begins a chain with a full part.
    fn begin(&mut self, store: &Store) -> Result<()> {
        let begin = self.feed.begin(store)?;
        let chain = self.chains;
        self.chains += 1;
        self.chain = Some((chain, begin.timestamp));
        (self.full_bytes, self.changed_bytes) = (None, 0);
        self.status.is_restorable = false;
        self.scan(chain, begin.timestamp, begin.tables);
        Ok(())
    }

    fn scan(&mut self, chain: u64, timestamp: u64, tables: Vec<(u32, String)>) {
        let part = self.part(FULL, chain, 0, timestamp, 0);
        let source = Source::Scan(Scan::new(tables));
        self.job = Some(Job::new(part, source, self.journal.manifest.epoch));
        self.is_scanned = false;
    }

    fn part(&mut self, level: u8, chain: u64, from: u64, to: u64, time_ms: u64) -> Part {
        let id = self.next_part;
        self.next_part += 1;
        let (usable_from, changes, bytes, pieces) = (to, 0, 0, Vec::new());
        Part { id, level, chain, from, to, usable_from, time_ms, changes, bytes, pieces }
    }

    /// Ships the changes since the last point, or the next piece of them.
    fn ship(&mut self, store: &Store, now_ms: u64) -> Result<()> {
        let Some((chain, at)) = self.chain else { return Ok(()) };
        if self.shipping.is_none() {
            let next = match self.feed.next(store) {
                // The records in memory are not those that the store has committed.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    Next::Broken(FeedBreak::Overflow)
                }
                next => next?,
            };
            match next {
                Next::Nothing => {
                    self.due_ms = now_ms + self.options.every_ms;
                    return self.note_point(at, now_ms);
                }
                Next::Broken(why) => {
                    self.status.breaks += 1;
                    self.status.last_break = Some(why);
                    (self.chain, self.job) = (None, None);
                    return Ok(());
                }
                Next::Changes(changes) => {
                    let part = self.part(0, chain, changes.from, changes.to, now_ms);
                    let source = Source::Changes(list(changes));
                    self.shipping = Some(Job::new(part, source, self.journal.manifest.epoch));
                }
            }
        }
        let sizes = self.sizes();
        let Some(job) = &mut self.shipping else { return Ok(()) };
        if !job.step(&*self.journal.objects, store, &self.feed, sizes)? {
            return Ok(());
        }
        let Some(job) = self.shipping.take() else { return Ok(()) };
        let (to, time_ms) = (job.part.to, job.part.time_ms);
        self.changed_bytes += job.part.bytes;
        self.due_ms = time_ms + self.options.every_ms;
        self.stage(Staged::Point { to, time_ms }, job, Vec::new(), now_ms)
    }

    fn stage(&mut self, staged: Staged, job: Job, remove: Vec<u64>, now_ms: u64) -> Result<()> {
        self.journal.stage(vec![job.part], remove, &job.inline, now_ms)?;
        if let Staged::Point { to, .. } = &staged
            && self.is_planted(Canary::ShippedBeforeWritten)
        {
            self.status.shipped = *to;
        }
        self.staged = Some(staged);
        self.flush()
    }

    /// Writes the entry that is set, and notes its effect, which may set another one.
    fn flush(&mut self) -> Result<()> {
        loop {
            self.journal.flush()?;
            match self.staged.take() {
                None => return Ok(()),
                Some(Staged::Point { to, time_ms }) => {
                    self.chain = self.chain.map(|(chain, _)| (chain, to));
                    self.note_point(to, time_ms)?;
                }
                Some(Staged::Part { level: FULL, bytes, chain }) => {
                    // The feed may have broken meanwhile.
                    if let Some((_, at)) = self.chain.filter(|(of, _)| *of == chain) {
                        (self.full_bytes, self.changed_bytes) = (Some(bytes), 0);
                        self.status.is_restorable = true;
                        self.note_point(at, self.status.shipped_ms)?;
                    }
                }
                Some(Staged::Part { .. } | Staged::Expired) => {}
            }
        }
    }

    /// Notes that a point is shipped.
    fn note_point(&mut self, to: u64, time_ms: u64) -> Result<()> {
        self.status.shipped_ms = time_ms;
        if self.full_bytes.is_some() {
            self.status.shipped = to;
            let costs = self.journal.objects.costs();
            self.feed.note_shipped(to, costs.requests(), costs.sent_bytes);
        }
        if self.is_scanned {
            self.complete_scan(to, time_ms)?;
        }
        Ok(())
    }

    /// Adds the full part, all of whose records are of commits up to this point.
    fn complete_scan(&mut self, to: u64, time_ms: u64) -> Result<()> {
        let Some(mut job) = self.job.take() else { return Ok(()) };
        self.is_scanned = false;
        (job.part.usable_from, job.part.time_ms) = (to, time_ms);
        if self.is_planted(Canary::UsableTooEarly) {
            job.part.usable_from = job.part.to;
        }
        let staged = Staged::Part { level: FULL, bytes: job.part.bytes, chain: job.part.chain };
        self.journal.stage(vec![job.part], Vec::new(), &job.inline, time_ms)?;
        self.staged = Some(staged);
        Ok(())
    }

    /// Does a piece of the work that is not urgent; returns whether there was any.
    fn work(&mut self, store: &Store, now_ms: u64) -> Result<bool> {
        let Some((chain, at)) = self.chain else { return Ok(false) };
        let sizes = self.sizes();
        if let Some(job) = self.job.as_mut().filter(|_| !self.is_scanned) {
            if job.step(&*self.journal.objects, store, &self.feed, sizes)? {
                if job.part.level == FULL {
                    // Its point is the next one: by then all that was read is durable.
                    (self.is_scanned, self.due_ms) = (true, now_ms);
                } else if let Some(job) = self.job.take() {
                    let Part { level, bytes, .. } = job.part;
                    let staged = Staged::Part { level, bytes, chain };
                    self.stage(staged, job, Vec::new(), now_ms)?;
                }
            }
            return Ok(true);
        }
        if self.job.is_some() {
            return Ok(false);
        }
        let grown = self.full_bytes.is_some_and(|full| {
            let limit = full / 100 * self.options.full_percent;
            self.changed_bytes > limit.max(self.options.full_bytes_min)
        });
        if grown {
            // What is committed since the last point may be in the full part or not: the changes
            // from that point on come after it.
            self.scan(chain, at, ChangeFeed::tables(store)?);
            return Ok(true);
        }
        if let Some((level, mut parts)) =
            to_merge(&self.journal.manifest, chain, self.options.fan_in)
            && let (Some(first), Some(last)) = (parts.first(), parts.last())
        {
            let (from, to, time_ms) = (first.from, last.to, last.time_ms);
            if self.is_planted(Canary::MergeInReverse) {
                parts.reverse();
            }
            let is_whole = self.is_planted(Canary::MergeWithoutRemovals);
            let source = Source::Merge(Merge::new(parts, is_whole));
            let part = self.part(level, chain, from, to, time_ms);
            self.job = Some(Job::new(part, source, self.journal.manifest.epoch));
            return Ok(true);
        }
        if now_ms >= self.swept_ms + self.options.sweep_ms {
            return self.sweep(now_ms).map(|()| true);
        }
        Ok(false)
    }

    /// Removes expired parts, and then objects that nothing refers to.
    fn sweep(&mut self, now_ms: u64) -> Result<()> {
        let keep = Keep { points_ms: self.options.keep_ms, fine_ms: self.options.keep_all_ms };
        let expired = expired(&self.journal.manifest, keep, now_ms);
        if !expired.is_empty() {
            self.journal.stage(Vec::new(), expired, &[], now_ms)?;
            self.staged = Some(Staged::Expired);
            return self.flush();
        }
        // No part is being made now, or its objects would be missing in the manifest.
        self.journal.sweep(self.next_part)?;
        self.swept_ms = now_ms;
        Ok(())
    }
}
