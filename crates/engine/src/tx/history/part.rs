//! The images of a part of a range, from all runs.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

use super::run::Run;
use super::{History, pages};
use crate::error::Result;
use crate::shared::Shared;
use crate::tree::Direction;
use crate::tx::shard::Version;

/// Pages that are read for a part, unless there are more runs.
const PAGES_MAX: usize = 64;
/// Parts of a range that are read one by one before it reads ahead.
const PARTS_BEFORE_AHEAD: usize = 4;
/// Pages of a run that are read ahead.
const PAGES_AHEAD: usize = 7;

/// What runs have for a part of a range: of each key the oldest image above the snapshot.
#[derive(Default)]
pub(in crate::tx) struct Part {
    /// The list of runs it was read from.
    generation: u64,
    pub(in crate::tx) images: BTreeMap<Vec<u8>, Version>,
    /// The part ends before this key, from where it comes, or, in reverse, behind it: the next part begins with it.
    pub(in crate::tx) cut: Option<Vec<u8>>,
}

impl Part {
    /// Whether no run has come since that the snapshot may need. To be asked after the row table was.
    pub(in crate::tx) fn is_current(&self, history: &History, snapshot: u64) -> bool {
        self.generation == history.generation_of(snapshot)
    }
}

/// Pages of runs that a range has read, and may come to again.
#[derive(Default)]
pub(in crate::tx) struct Reader {
    /// By the number of the run, and the page's in it.
    pages: BTreeMap<(u64, usize), Vec<u8>>,
    /// Parts that were read.
    parts: usize,
}

/// A part of a range: both bounds, lower and upper.
pub(in crate::tx) type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Whether a key is in a part.
pub(in crate::tx) fn is_within((low, high): Bounds<'_>, key: &[u8]) -> bool {
    let above = match low {
        Bound::Included(low) => key >= low,
        Bound::Excluded(low) => key > low,
        Bound::Unbounded => true,
    };
    above
        && match high {
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
            Bound::Unbounded => true,
        }
}

/// Where to cut a part of which a run has these pages, so that it has only as many as `most` from where the range comes, and rather one more.
fn cut_of(
    run: &Run,
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

impl History {
    /// Reads what runs have for the part of a range between two keys, or for the beginning of it.
    ///
    /// # Errors
    /// As [`History::find`].
    pub(in crate::tx) async fn part(
        &self,
        shared: &Shared,
        reader: &mut Reader,
        tree: u32,
        direction: Direction,
        (mut low, mut high): Bounds<'_>,
        snapshot: u64,
    ) -> Result<Part> {
        let (runs, generation) = self.behind(snapshot);
        let of_runs = |low, high| runs.iter().map(move |run| run.pages_of_range(tree, low, high));
        let mut cut: Option<Vec<u8>> = None;
        if of_runs(low, high).map(|pages| pages.len()).sum::<usize>() > PAGES_MAX.max(runs.len()) {
            let most = (PAGES_MAX / runs.len().max(1)).max(1);
            let pages = of_runs(low, high);
            let cuts = runs
                .iter()
                .zip(pages)
                .filter_map(|(run, pages)| cut_of(run, &pages, most, direction, (low, high)));
            cut = match direction {
                Direction::Forward => cuts.min(),
                Direction::Reverse => cuts.max(),
            };
        }
        if let Some(cut) = &cut {
            match direction {
                Direction::Forward => high = Bound::Excluded(cut),
                Direction::Reverse => low = Bound::Excluded(cut),
            }
        }
        let wanted: Vec<(&Arc<Run>, usize)> = runs
            .iter()
            .zip(of_runs(low, high))
            .flat_map(|(run, pages)| pages.map(move |page| (run, page)))
            .collect();
        reader.read(shared, &runs, &wanted, direction).await?;
        let mut images: BTreeMap<Vec<u8>, Version> = BTreeMap::new();
        for (run, index) in &wanted {
            let Some(page) = reader.pages.get(&(run.number(), *index)) else { continue };
            for image in run.images(*index, page)? {
                let image = image?;
                if image.tree != tree
                    || image.stamp <= snapshot
                    || !is_within((low, high), image.key)
                    || images.get(image.key).is_some_and(|known| known.stamp <= image.stamp)
                {
                    continue;
                }
                images.insert(image.key.to_vec(), image.version());
            }
        }
        Ok(Part { generation, images, cut })
    }
}

impl Reader {
    /// Reads pages, but for those that it has, and lets go of those that it is past. A range that has come some way reads some pages more of
    /// each run, where it goes: each time it waits for the device.
    async fn read(
        &mut self,
        shared: &Shared,
        runs: &[Arc<Run>],
        wanted: &[(&Arc<Run>, usize)],
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
        let ahead = if self.parts < PARTS_BEFORE_AHEAD { 0 } else { PAGES_AHEAD };
        self.parts += 1;
        let mut missing = Vec::new();
        for (run, index) in wanted {
            if self.pages.contains_key(&(run.number(), *index)) {
                continue;
            }
            let also = match direction {
                Direction::Forward => *index..run.pages().min(index + 1 + ahead),
                Direction::Reverse => index.saturating_sub(ahead)..index + 1,
            };
            missing.extend(also.map(|index| (*run, index)));
        }
        missing.retain(|(run, index)| !self.pages.contains_key(&(run.number(), *index)));
        missing.sort_unstable_by_key(|(run, index)| (run.number(), *index));
        missing.dedup_by_key(|(run, index)| (run.number(), *index));
        let pages = pages::read(shared, &missing).await?;
        let keys = missing.iter().map(|(run, index)| (run.number(), *index));
        self.pages.extend(keys.zip(pages));
        Ok(())
    }
}
