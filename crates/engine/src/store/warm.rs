//! Reading a store into memory in advance: level by level, and within a level in the order of the
//! device.
//!
//! - A page is brought into memory through the reference in its parent, as always, so its parent
//!   must be in memory first. Therefore each level is read after the one above it, and inner pages
//!   before leaves.
//! - The caller's thread hands out batches, which the workers read beside their other tasks. Many
//!   reads of adjacent pages are under way at once, which the kernel merges into large requests.
//! - Warming takes free frames only, and stops before so few are left that pages would be evicted.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_format::{Error, ErrorKind, Result};

use super::{Store, StoreInner};
use crate::pool::Root;
use crate::shared::Shared;
use crate::task::{JoinHandle, current, run, spawn_to};
use crate::tree::{Absent, Arrival, Below, Fetch, Fetched, Resident};

/// The number of pages that are sorted together: 24 MiB of references.
const SORTED: usize = 1 << 20;
/// The number of pages that a task reads.
const BATCH: usize = 1024;
/// The number of tasks under way for each worker.
const BATCHES_PER_WORKER: usize = 2;
/// The number of reads that one task has under way.
const WINDOW: usize = 64;

/// The result of [`Store::warm`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmReport {
    /// The number of pages that were read.
    pub pages: u64,
    /// The size of these pages, in bytes.
    pub bytes: u64,
    /// The number of pages that could not be read, or were damaged. An operation that needs such a
    /// page returns the error.
    pub unread: u64,
    /// Whether memory was full before all pages were read.
    pub full: bool,
    /// The time that warming took.
    pub elapsed: Duration,
}

#[derive(Clone, Copy, Default)]
struct Outcome {
    pages: u64,
    unread: u64,
    full: bool,
}

struct Warming<'a> {
    inner: &'a StoreInner,
    progress: &'a dyn Fn(u64, u64) -> ControlFlow<()>,
    batches: VecDeque<JoinHandle<Result<Outcome>>>,
    outcome: Outcome,
    /// The number of pages to read in all, as far as it is known.
    total: u64,
}

impl Store {
    /// Reads the pages of all tables into memory, as many as there are free frames for. Inner pages
    /// are read first, and each level in the order in which its pages lie on the device. Other
    /// calls continue meanwhile, and no page in memory is evicted for this. Large values are not
    /// read, since they are never kept in memory. `progress` receives the number of pages read and
    /// of pages to read, and may break the warming off.
    ///
    /// Tables that are not open are opened, as long as their roots take only a small share of the
    /// memory ([`Store::table`]).
    ///
    /// # Errors
    /// `Interrupted` if `progress` broke the warming off: pages that were read stay in memory.
    /// `Invalid` on a worker; `Closed`; and errors of the device for the catalog. Other pages that
    /// cannot be read are counted.
    pub fn warm(&self, progress: &dyn Fn(u64, u64) -> ControlFlow<()>) -> Result<WarmReport> {
        let began = Instant::now();
        self.inner.shared.check_caller()?;
        let (roots, some_left_out) = self.roots_to_warm()?;
        let mut warming = Warming {
            inner: &self.inner,
            progress,
            batches: VecDeque::new(),
            outcome: Outcome::default(),
            total: 0,
        };
        warming.read(roots)?;
        let Outcome { pages, unread, full } = warming.outcome;
        let bytes = pages * self.inner.shared.page_size as u64;
        let full = full || some_left_out;
        Ok(WarmReport { pages, bytes, unread, full, elapsed: began.elapsed() })
    }

    /// Returns the roots of all open trees, after opening as many as possible; and whether some
    /// tables were left out.
    fn roots_to_warm(&self) -> Result<(Vec<Resident>, bool)> {
        let shared = &self.inner.shared;
        let roots_max = self.inner.opened_for_all_max();
        let names = self.table_names()?;
        for name in names.iter().take(roots_max).take_while(|_| room(shared) > 0) {
            // If a table cannot be opened, a caller that needs the table gets the error.
            let _ = self.existing_table(name);
        }
        let roots = shared.forest.roots();
        let open = roots.iter().filter_map(|(tree_id, root)| match root {
            Root::Open(frame) => Some(Resident { tree_id: *tree_id, frame: *frame }),
            Root::Closed(_) => None,
        });
        Ok((open.collect(), names.len() > roots_max))
    }
}

impl Warming<'_> {
    /// Reads the pages below the roots, down to the leaves.
    fn read(&mut self, roots: Vec<Resident>) -> Result<()> {
        let shared = &self.inner.shared;
        self.total = shared.space.counts().0.min(room(shared) as u64);
        let of_task = shared.clone();
        let mut found =
            self.inner.block_on(move || async move { levels(&of_task, roots).await })?;
        let mut waiting: BTreeMap<u8, Vec<Resident>> = BTreeMap::new();
        loop {
            for (level, page) in found.drain(..) {
                waiting.entry(level).or_default().push(page);
            }
            let Some((level, pages)) = waiting.pop_last() else { break };
            let pages: Arc<[Resident]> = pages.into();
            self.read_below(level, &pages)?;
            if self.outcome.full {
                break;
            }
            if level > 1 {
                let of_task = shared.clone();
                let below = move || async move { inner_below(&of_task, &pages).await };
                found = self.inner.block_on(below)?;
            }
        }
        let done = self.outcome.pages;
        let _ = (self.progress)(done, done);
        Ok(())
    }

    /// Reads the pages one level below these that are not in memory, in the order of the device.
    fn read_below(&mut self, level: u8, pages: &Arc<[Resident]>) -> Result<()> {
        let shared = &self.inner.shared;
        let mut from = 0;
        while from < pages.len() && !self.outcome.full {
            let most = room(shared).min(SORTED);
            let (of_task, above) = (shared.clone(), pages.clone());
            let below = move || async move { absent_below(&of_task, &above[from..], most).await };
            let (looked_at, mut absent) = self.inner.block_on(below)?;
            from += looked_at;
            if level == 1 && from == pages.len() {
                self.total = self.outcome.pages + absent.len().min(most) as u64;
            }
            absent.sort_unstable_by_key(Absent::page_id);
            self.load(&absent)?;
        }
        Ok(())
    }

    fn load(&mut self, absent: &[Absent]) -> Result<()> {
        let shared = &self.inner.shared;
        let workers = shared.worker_handles.len();
        for batch in absent.chunks(BATCH) {
            self.settle(BATCHES_PER_WORKER * workers - 1)?;
            if self.outcome.full {
                break;
            }
            let (of_task, batch) = (shared.clone(), batch.to_vec());
            let read = move || async move { read_batch(&of_task, batch).await };
            self.batches.push_back(spawn_to(shared, self.inner.next_worker(), read));
        }
        self.settle(0)
    }

    /// Waits until at most `batches_max` batches are under way, and reports the progress.
    fn settle(&mut self, batches_max: usize) -> Result<()> {
        while self.batches.len() > batches_max
            && let Some(batch) = self.batches.pop_front()
        {
            let Outcome { pages, unread, full } = batch.join()??;
            self.outcome.pages += pages;
            self.outcome.unread += unread;
            self.outcome.full |= full;
            let done = self.outcome.pages;
            if (self.progress)(done, self.total.max(done)).is_break() {
                let what = "reading the store into memory was interrupted";
                return Err(Error::new(ErrorKind::Interrupted, what));
            }
        }
        Ok(())
    }
}

/// Returns the number of free frames that may be taken: with fewer left a worker would begin to
/// evict, and each worker may take some at once.
fn room(shared: &Shared) -> usize {
    let pool = &shared.pool;
    let kept = pool.free_low() + shared.worker_handles.len() * pool.local_max().div_ceil(2);
    pool.free_count().saturating_sub(kept)
}

/// Returns the roots that are not leaves, with their levels.
async fn levels(shared: &Shared, roots: Vec<Resident>) -> Result<Vec<(u8, Resident)>> {
    let mut levels = Vec::with_capacity(roots.len());
    for root in roots {
        levels.push((run(shared, Below::new(root)).await?.level, root));
    }
    levels.retain(|(level, _)| *level > 0);
    Ok(levels)
}

/// Returns the inner pages in memory one level below these, with their level.
async fn inner_below(shared: &Shared, pages: &[Resident]) -> Result<Vec<(u8, Resident)>> {
    let mut inner = Vec::new();
    for page in pages {
        let below = run(shared, Below::new(*page)).await?;
        if below.level > 1 {
            inner.extend(below.resident.into_iter().map(|page| (below.level - 1, page)));
        }
    }
    Ok(inner)
}

/// Collects the pages one level below these that are not in memory, until there are more than
/// `most`; returns also the number of pages that were looked at.
async fn absent_below(
    shared: &Shared,
    pages: &[Resident],
    most: usize,
) -> Result<(usize, Vec<Absent>)> {
    let (mut absent, mut looked_at) = (Vec::new(), 0);
    for page in pages {
        absent.append(&mut run(shared, Below::new(*page)).await?.absent);
        looked_at += 1;
        if absent.len() > most {
            break;
        }
    }
    Ok((looked_at, absent))
}

/// Reads pages, in this order, as long as there are free frames.
async fn read_batch(shared: &Shared, batch: Vec<Absent>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut begun = VecDeque::with_capacity(WINDOW);
    for page in batch {
        outcome.full = room(shared) == 0;
        if outcome.full {
            break;
        }
        if begun.len() == WINDOW
            && let Some(frame) = begun.pop_front()
        {
            run(shared, Arrival::new(frame)).await?;
        }
        match run(shared, Fetch::new(page)).await? {
            Fetched::Begun(frame) => {
                outcome.pages += 1;
                begun.push_back(frame);
            }
            Fetched::Nothing => {}
            Fetched::Failed => outcome.unread += 1,
            Fetched::NoFrame => {
                outcome.full = true;
                break;
            }
        }
    }
    for frame in begun {
        run(shared, Arrival::new(frame)).await?;
    }
    // The task asks for none of these pages again.
    let failed = current(|worker| worker.forget_load_errors()).unwrap_or(0) as u64;
    outcome.pages -= failed;
    outcome.unread += failed;
    Ok(outcome)
}
