//! The images of a part of a range, from all runs.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

use qpair_format::Result;

use super::run::SortedRun;
use super::{History, pages};
use crate::shared::Shared;
use crate::tree::Direction;
use crate::tx::versions::{Bounds, Version, is_within};

/// The number of pages that are read for a part, unless there are more runs.
const PAGES_MAX: usize = 64;
/// The number of parts of a range that are read one by one before read-ahead begins.
const PARTS_BEFORE_AHEAD: usize = 4;
/// The number of pages that are read ahead, for all runs together.
const PAGES_AHEAD: usize = 256;

/// The images of all runs for a part of a range: for each key the oldest image above the snapshot.
#[derive(Default)]
pub(in crate::tx) struct Part {
    /// The generation of the list of runs that the part was read from.
    generation: u64,
    pub(in crate::tx) images: BTreeMap<Vec<u8>, Version>,
    /// The key at which the part ends, and the next part begins; in reverse, the part ends after
    /// it.
    pub(in crate::tx) cut: Option<Vec<u8>>,
}

impl Part {
    /// Whether no run that the snapshot may need was added since. Must be called after looking into
    /// the row table.
    pub(in crate::tx) fn is_current(&self, history: &History, snapshot: u64) -> bool {
        self.generation == history.generation_of(snapshot)
    }
}

/// Pages of runs that a range has read, and may need again.
#[derive(Default)]
pub(in crate::tx) struct Reader {
    /// The pages by the number of the run, and the page's index in it.
    pages: BTreeMap<(u64, usize), Vec<u8>>,
    /// The number of parts that were read.
    parts: usize,
}

/// Returns the key at which to cut a part, so that this run has about `most` pages for it, or one
/// more, in the direction of the range. Returns `None` if the run has no page beyond that.
fn cut_of(
    run: &SortedRun,
    pages: &Range<usize>,
    most: usize,
    direction: Direction,
    (low, high): Bounds<'_>,
) -> Option<Vec<u8>> {
    let key = |bound: Bound<&[u8]>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    };
    let (low, high) = (key(low), key(high));
    let mut firsts: Box<dyn Iterator<Item = usize>> = match direction {
        Direction::Forward => Box::new(pages.start + most..pages.end),
        Direction::Reverse => {
            Box::new((pages.start + 1..(pages.end + 1).saturating_sub(most)).rev())
        }
    };
    firsts
        .find(|index| {
            let first = run.first(*index).1;
            match direction {
                Direction::Forward => low.as_deref().is_none_or(|low| first > low),
                Direction::Reverse => high.as_deref().is_none_or(|high| first < high),
            }
        })
        .map(|index| run.first(index).1.to_vec())
}

/// A part of a range, and the pages of runs that may have images of it.
struct Plan<'r> {
    tree: u32,
    snapshot: u64,
    cut: Option<Vec<u8>>,
    wanted: Vec<(&'r Arc<SortedRun>, usize)>,
}

impl<'r> Plan<'r> {
    fn new(
        runs: &'r [Arc<SortedRun>],
        tree: u32,
        direction: Direction,
        bounds: Bounds<'_>,
        snapshot: u64,
    ) -> Self {
        let of_runs = |(low, high): Bounds<'_>| -> Vec<Range<usize>> {
            runs.iter().map(|run| run.pages_of_range(tree, low, high)).collect()
        };
        let mut pages = of_runs(bounds);
        let mut cut: Option<Vec<u8>> = None;
        if pages.iter().map(ExactSizeIterator::len).sum::<usize>() > PAGES_MAX.max(runs.len()) {
            let most = (PAGES_MAX / runs.len().max(1)).max(1);
            let cuts = runs
                .iter()
                .zip(&pages)
                .filter_map(|(run, pages)| cut_of(run, pages, most, direction, bounds));
            cut = match direction {
                Direction::Forward => cuts.min(),
                Direction::Reverse => cuts.max(),
            };
            pages = of_runs(bounds_of(bounds, cut.as_deref(), direction));
        }
        let pages = runs.iter().zip(pages);
        let wanted = pages.flat_map(|(run, pages)| pages.map(move |page| (run, page))).collect();
        Self { tree, snapshot, cut, wanted }
    }

    /// Collects the part's images from pages that were read.
    fn gather(
        self,
        reader: &Reader,
        direction: Direction,
        bounds: Bounds<'_>,
        generation: u64,
    ) -> Result<Part> {
        let Self { tree, snapshot, cut, wanted } = self;
        let bounds = bounds_of(bounds, cut.as_deref(), direction);
        let mut images: BTreeMap<Vec<u8>, Version> = BTreeMap::new();
        for (run, index) in wanted {
            let Some(page) = reader.page(run, index) else { continue };
            for image in run.images(index, page)? {
                let image = image?;
                if image.tree != tree
                    || image.timestamp <= snapshot
                    || !is_within(bounds, image.key)
                    || images.get(image.key).is_some_and(|known| known.timestamp <= image.timestamp)
                {
                    continue;
                }
                images.insert(image.key.to_vec(), image.version());
            }
        }
        Ok(Part { generation, images, cut })
    }
}

/// Returns the bounds of a part that is cut.
fn bounds_of<'a>(
    (low, high): Bounds<'a>,
    cut: Option<&'a [u8]>,
    direction: Direction,
) -> Bounds<'a> {
    match (cut, direction) {
        (None, _) => (low, high),
        (Some(cut), Direction::Forward) => (low, Bound::Excluded(cut)),
        (Some(cut), Direction::Reverse) => (Bound::Excluded(cut), high),
    }
}

impl History {
    /// Reads the images of all runs for the part of a range between two keys, or for the beginning
    /// of it.
    ///
    /// # Errors
    /// As [`History::find`].
    pub(in crate::tx) async fn part(
        &self,
        shared: &Shared,
        reader: &mut Reader,
        tree: u32,
        direction: Direction,
        bounds: Bounds<'_>,
        snapshot: u64,
    ) -> Result<Part> {
        let (runs, generation) = self.behind(snapshot);
        let plan = Plan::new(&runs, tree, direction, bounds, snapshot);
        reader.read(shared, &runs, &plan.wanted, direction).await?;
        plan.gather(reader, direction, bounds, generation)
    }

    /// Like [`History::part`], without waiting; returns `None` if some of the pages were not read
    /// yet.
    ///
    /// # Errors
    /// As [`History::part`].
    pub(in crate::tx) fn part_now(
        &self,
        reader: &Reader,
        tree: u32,
        direction: Direction,
        bounds: Bounds<'_>,
        snapshot: u64,
    ) -> Result<Option<Part>> {
        let (runs, generation) = self.behind(snapshot);
        let plan = Plan::new(&runs, tree, direction, bounds, snapshot);
        match reader.has_all(&plan.wanted) {
            true => plan.gather(reader, direction, bounds, generation).map(Some),
            false => Ok(None),
        }
    }
}

impl Reader {
    /// Reads the newest of a transaction's own writes in these runs, for a part of a range.
    ///
    /// # Errors
    /// As [`History::find`].
    pub(in crate::tx) async fn own_part(
        &mut self,
        shared: &Shared,
        runs: &[Arc<SortedRun>],
        tree: u32,
        direction: Direction,
        bounds: Bounds<'_>,
    ) -> Result<Part> {
        let plan = Plan::new(runs, tree, direction, bounds, 0);
        self.read(shared, runs, &plan.wanted, direction).await?;
        plan.gather(self, direction, bounds, 0)
    }

    fn page(&self, run: &SortedRun, index: usize) -> Option<&[u8]> {
        self.pages.get(&(run.number(), index)).map(Vec::as_slice)
    }

    fn has_all(&self, wanted: &[(&Arc<SortedRun>, usize)]) -> bool {
        wanted.iter().all(|(run, index)| self.page(run, *index).is_some())
    }

    /// Reads the pages that the reader does not have, and drops those that it has passed. After
    /// some parts of a range, also reads some of the next pages ahead.
    async fn read(
        &mut self,
        shared: &Shared,
        runs: &[Arc<SortedRun>],
        wanted: &[(&Arc<SortedRun>, usize)],
        direction: Direction,
    ) -> Result<()> {
        for of_run in wanted.chunk_by(|(a, _), (b, _)| Arc::ptr_eq(a, b)) {
            let [(run, first), ..] = of_run else { continue };
            let last = of_run.last().map_or(*first, |(_, last)| *last);
            let number = run.number();
            self.pages.retain(|(of, index), _| {
                *of != number
                    || match direction {
                        Direction::Forward => index >= first,
                        Direction::Reverse => *index <= last,
                    }
            });
        }
        self.pages.retain(|(of, _), _| runs.iter().any(|run| run.number() == *of));
        self.parts += 1;
        if self.has_all(wanted) {
            return Ok(());
        }
        // Each run gets its share, so that all runs are read up to about the same key, and waited
        // for together.
        let all: usize = runs.iter().map(|run| run.pages()).sum();
        let ahead = |run: &SortedRun| match self.parts <= PARTS_BEFORE_AHEAD {
            true => 0,
            false => PAGES_AHEAD * run.pages() / all.max(1),
        };
        let mut missing = Vec::new();
        for (run, index) in wanted {
            let also = match direction {
                Direction::Forward => *index..run.pages().min(index + 1 + ahead(run)),
                Direction::Reverse => index.saturating_sub(ahead(run))..index + 1,
            };
            missing.extend(also.map(|index| (*run, index)));
        }
        missing.retain(|(run, index)| self.page(run, *index).is_none());
        missing.sort_unstable_by_key(|(run, index)| (run.number(), *index));
        missing.dedup_by_key(|(run, index)| (run.number(), *index));
        let pages = pages::read(shared, &missing).await?;
        let keys = missing.iter().map(|(run, index)| (run.number(), *index));
        self.pages.extend(keys.zip(pages));
        Ok(())
    }
}
