//! Merging runs, so that readers search fewer runs, and dropping images that no snapshot needs any
//! more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_format::{Error, ErrorKind, Result};

use super::before_image::BeforeImageRef;
use super::need::Needs;
use super::run::SortedRun;
use super::writer::RunWriter;
use super::{Entered, History, pages};
use crate::shared::Shared;
use crate::task::{current, yield_now};
use crate::tx::Tx;
use crate::tx::versions::Version;

/// The number of runs of about the same size that are merged into one.
const FAN_IN: usize = 4;
/// The number of pages of each run that are read at once.
const PAGES_AHEAD: usize = 8;
/// The number of images after which other tasks may run.
const IMAGES_AT_ONCE: usize = 256;

impl History {
    /// Returns the runs to merge next: as many of one level as make a run of the next level, if
    /// there is room for it.
    fn to_merge(&self, tx: &Tx) -> Option<Vec<Arc<SortedRun>>> {
        let runs = self.runs.lock();
        let levels = runs.iter().map(|run| run.level()).max().unwrap_or(0);
        (0..=levels).find_map(|level| {
            let of_level = runs.iter().filter(|run| run.level() == level && run.is_settled());
            let all: Vec<_> = of_level.take(FAN_IN).cloned().collect();
            let bytes = all.iter().map(|run| run.device_bytes()).sum();
            (all.len() == FAN_IN && tx.has_room_for_run(bytes)).then_some(all)
        })
    }

    /// Whether a task is merging runs.
    pub(super) fn is_merging(&self) -> bool {
        self.merges.load(Ordering::Acquire)
    }

    /// Starts merging as a task of this worker, if there is something to merge and no merge is
    /// under way.
    pub(in crate::tx) fn begin_merge(&self, tx: &Arc<Tx>) {
        if self.to_merge(tx).is_none() || self.merges.swap(true, Ordering::AcqRel) {
            return;
        }
        let tx = tx.clone();
        current(|worker| {
            worker.spawn_own(async move {
                merge_all(&tx).await;
                tx.history.merges.store(false, Ordering::Release);
                tx.moved.wake_all();
            });
        });
    }
}

async fn merge_all(tx: &Arc<Tx>) {
    let shared = &tx.shared;
    let Some(_entered) = Entered::new(shared) else { return };
    while shared.lifecycle.failure().is_none()
        && let Some(runs) = tx.history.to_merge(tx)
    {
        if let Err(error) = merge(tx, &runs).await {
            // The runs stay as they are: a reader that needs the unreadable page gets the error.
            runs.iter().for_each(|run| run.keep_as_it_is());
            if error.kind() == ErrorKind::Io && shared.lifecycle.failure().is_some() {
                return;
            }
        }
    }
}

async fn merge(tx: &Arc<Tx>, runs: &[Arc<SortedRun>]) -> Result<()> {
    let bound = runs.iter().map(|run| run.bound()).max().unwrap_or(0);
    let bytes = runs.iter().map(|run| run.device_bytes()).sum();
    let level = runs.iter().map(|run| run.level()).max().unwrap_or(0) + 1;
    let mut writer = RunWriter::new(tx, bound, bytes).of_level(level);
    let outcome = write(tx, runs, &mut writer).await;
    let merged = writer.finish(outcome).await?.map(Arc::new);
    let large = tx.history.replace(runs, merged.clone());
    match merged {
        Some(merged) => tx.give_large_back(merged.settle(large)),
        None => tx.give_large_back(large),
    }
    Ok(())
}

async fn write(tx: &Arc<Tx>, runs: &[Arc<SortedRun>], writer: &mut RunWriter<'_>) -> Result<()> {
    let shared = &tx.shared;
    let mut needs = Needs::new(tx.snapshots_in_use());
    let mut inputs: Vec<Input> = runs.iter().cloned().map(Input::new).collect();
    let mut written = 0;
    loop {
        let mut next: Option<usize> = None;
        for index in 0..inputs.len() {
            inputs[index].fill(shared).await?;
            let first = inputs[index].place();
            if first.is_some() && next.is_none_or(|next| first < inputs[next].place()) {
                next = Some(index);
            }
        }
        let Some(input) = next else { return Ok(()) };
        let Some((tree, key, version)) = inputs[input].take() else { return Ok(()) };
        if needs.has(tree, &key, version.timestamp) {
            writer
                .push(&BeforeImageRef::new(tree, &key, version.timestamp, &version.image))
                .await?;
        }
        written += 1;
        if written % IMAGES_AT_ONCE == 0 {
            if shared.oracle.is_closed() {
                return Err(Error::closed());
            }
            yield_now().await;
        }
    }
}

/// A run that is read from its beginning to its end.
pub(in crate::tx) struct Input {
    run: Arc<SortedRun>,
    next_page: usize,
    images: VecDeque<(u32, Box<[u8]>, Version)>,
}

impl Input {
    pub(in crate::tx) fn new(run: Arc<SortedRun>) -> Self {
        Self { run, next_page: 0, images: VecDeque::new() }
    }

    /// Returns the place of the next image in the order of runs.
    fn place(&self) -> Option<(u32, &[u8], u64)> {
        self.images.front().map(|(tree, key, version)| (*tree, &**key, version.timestamp))
    }

    /// Takes the next image, if it was read.
    pub(in crate::tx) fn take(&mut self) -> Option<(u32, Box<[u8]>, Version)> {
        self.images.pop_front()
    }

    /// Reads more pages if no images are left.
    pub(in crate::tx) async fn fill(&mut self, shared: &Shared) -> Result<()> {
        while self.images.is_empty() && self.next_page < self.run.pages() {
            let end = self.run.pages().min(self.next_page + PAGES_AHEAD);
            let wanted: Vec<_> = (self.next_page..end).map(|page| (&self.run, page)).collect();
            let pages = pages::read(shared, &wanted).await?;
            for ((_, index), page) in wanted.iter().zip(&pages) {
                for image in self.run.images(*index, page)? {
                    let image = image?;
                    self.images.push_back((image.tree, image.key.into(), image.version()));
                }
            }
            self.next_page = end;
        }
        Ok(())
    }
}
