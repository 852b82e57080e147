//! The version store on disk: undo versions that snapshots still need and memory has no room for.
//! See docs/design/history.md.
//!
//! Invariants: an image is in a run, and the run in the list, before the image leaves the row
//! table. So a reader that looks first into the row table and then into the list finds the image. A
//! run is in the list as long as a snapshot below its bound is in use.

mod before_image;
mod collect;
mod filter;
mod merge;
mod need;
mod pages;
mod part;
mod run;
mod spill;
mod writer;

pub(super) use before_image::BeforeImageRef;
pub(super) use collect::Queue;
pub(crate) use collect::{collect, spill};
pub(super) use merge::Input;
pub(super) use part::{Part, Reader};
pub(super) use run::SortedRun;
pub(super) use spill::{SpilledImages, spill_images};
pub(super) use writer::RunWriter;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use qpair_format::Result;
use qpair_memory::locks::Mutex;

use crate::shared::Shared;
use crate::tx::versions::Version;

/// The runs of a store.
pub(crate) struct History {
    runs: Mutex<Arc<[Arc<SortedRun>]>>,
    /// The greatest bound of any run; 0 if there are no runs.
    newest: AtomicU64,
    /// A number that changes with every new run.
    generation: AtomicU64,
    /// The device space of the runs, in bytes.
    device_bytes: AtomicU64,
    /// The memory of the runs, in bytes.
    memory_bytes: AtomicU64,
    /// The limit on the device space, in bytes.
    bytes_max: u64,
    /// Whether a task is merging runs.
    merges: AtomicBool,
    /// The oldest snapshot in use when a run could not be written. No other run is tried while it
    /// stays the oldest.
    refused_at: AtomicU64,
}

/// A permission to allocate pages: a close waits until it is dropped.
pub(super) struct Entered<'a>(&'a Shared);

impl<'a> Entered<'a> {
    /// Returns `None` if the store is being closed.
    pub(super) fn new(shared: &'a Shared) -> Option<Self> {
        shared.space.enter().ok().map(|()| Self(shared))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.space.leave();
    }
}

impl History {
    pub(in crate::tx) fn new(bytes_max: u64) -> Self {
        Self {
            runs: Mutex::new([].into()),
            newest: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            device_bytes: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
            bytes_max,
            merges: AtomicBool::new(false),
            refused_at: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns the limit on the device space of older values, in bytes.
    pub(in crate::tx) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns the device space of older values in runs, in bytes.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.device_bytes.load(Ordering::Relaxed)
    }

    /// Returns the memory that the runs need, in bytes.
    fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Whether a run may have images that a snapshot needs. Must be called after looking into the
    /// row table.
    #[inline]
    pub(in crate::tx) fn is_behind(&self, snapshot: u64) -> bool {
        // Acquire: the row's lock gives the order. A reader that found its image gone sees the new
        // value.
        snapshot < self.newest.load(Ordering::Acquire)
    }

    /// Returns a number that changes with every new run that a snapshot may need; 0 if it needs
    /// none.
    fn generation_of(&self, snapshot: u64) -> u64 {
        if self.is_behind(snapshot) { self.generation.load(Ordering::Acquire) } else { 0 }
    }

    /// Whether a run may be written while this is the oldest snapshot in use.
    pub(super) fn is_open(&self, oldest: u64) -> bool {
        self.bytes_max > 0 && self.refused_at.load(Ordering::Relaxed) != oldest
    }

    /// Adds a run to the list. Its images may leave the row table then.
    fn publish(&self, run: Arc<SortedRun>) {
        let mut runs = self.runs.lock();
        self.memory_bytes.fetch_add(run.memory_bytes(), Ordering::Relaxed);
        // Release, before the bound: a thread that sees the bound sees the number.
        self.generation.fetch_add(1, Ordering::Release);
        self.newest.fetch_max(run.bound(), Ordering::Release);
        *runs = runs.iter().cloned().chain([run]).collect();
    }

    /// Replaces runs by a merged one in the list; returns the large values that they owned.
    fn replace(&self, runs: &[Arc<SortedRun>], merged: Option<Arc<SortedRun>>) -> Vec<Box<[u8]>> {
        let is_other = |run: &Arc<SortedRun>| runs.iter().all(|of| !Arc::ptr_eq(of, run));
        let mut list = self.runs.lock();
        // Runs that no snapshot needs are gone already and do not count.
        let gone = list.iter().filter(|run| !is_other(run)).map(|run| run.memory_bytes()).sum();
        self.memory_bytes.fetch_sub(gone, Ordering::Relaxed);
        let large = runs.iter().flat_map(|run| run.take_large()).collect();
        let kept: Vec<_> = list.iter().filter(|run| is_other(run)).cloned().collect();
        if let Some(merged) = &merged {
            self.memory_bytes.fetch_add(merged.memory_bytes(), Ordering::Relaxed);
        }
        let kept: Arc<[_]> = kept.into_iter().chain(merged).collect();
        let newest = kept.iter().map(|run| run.bound()).max().unwrap_or(0);
        // The merged run has the images of the old runs, so no part of a range need be read again.
        self.newest.store(newest, Ordering::Release);
        *list = kept;
        large
    }

    /// Removes the runs that no snapshot at or above `oldest` needs; their pages become free when
    /// no task reads them any more.
    fn forget(&self, oldest: u64) {
        if self.newest.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut runs = self.runs.lock();
        if runs.iter().all(|run| run.bound() > oldest) {
            return;
        }
        let (kept, gone): (Vec<_>, Vec<_>) =
            runs.iter().cloned().partition(|run| run.bound() > oldest);
        let newest = kept.iter().map(|run| run.bound()).max().unwrap_or(0);
        self.newest.store(newest, Ordering::Release);
        let before = std::mem::replace(&mut *runs, kept.into());
        drop(runs);
        for run in &gone {
            self.memory_bytes.fetch_sub(run.memory_bytes(), Ordering::Relaxed);
        }
        drop((before, gone));
    }

    /// Returns the greatest bound of any run; `None` if there are no runs.
    fn newest(&self) -> Option<u64> {
        Some(self.newest.load(Ordering::Acquire)).filter(|newest| *newest > 0)
    }

    /// Returns the runs that a snapshot may need, and the present generation.
    fn behind(&self, snapshot: u64) -> (Vec<Arc<SortedRun>>, u64) {
        let runs = self.runs.lock();
        let behind = runs.iter().filter(|run| run.bound() > snapshot).cloned().collect();
        (behind, self.generation_of(snapshot))
    }

    /// Returns the oldest image of a row above a snapshot in use, if runs have one. Must be called
    /// after looking into the row table.
    ///
    /// # Errors
    /// Errors of the device; `Corrupt` for a page that does not belong to the run.
    pub(in crate::tx) async fn find(
        &self,
        shared: &Shared,
        tree: u32,
        key: &[u8],
        snapshot: u64,
    ) -> Result<Option<Version>> {
        let (runs, _) = self.behind(snapshot);
        find_in(&runs, shared, tree, key, snapshot).await
    }
}

/// Returns the image of a row in these runs that has the smallest timestamp above `after`.
///
/// # Errors
/// As [`History::find`].
pub(super) async fn find_in(
    runs: &[Arc<SortedRun>],
    shared: &Shared,
    tree: u32,
    key: &[u8],
    after: u64,
) -> Result<Option<Version>> {
    let mut wanted = Vec::new();
    for run in runs.iter().filter(|run| run.may_have(tree, key)) {
        wanted.extend(run.pages_of_row(tree, key, after).map(|page| (run, page)));
    }
    let pages = pages::read(shared, &wanted).await?;
    let mut oldest: Option<Version> = None;
    for ((run, index), page) in wanted.iter().zip(pages) {
        for image in run.images(*index, &page)? {
            let image = image?;
            if image.tree == tree
                && image.key == key
                && image.timestamp > after
                && oldest.as_ref().is_none_or(|oldest| image.timestamp < oldest.timestamp)
            {
                oldest = Some(image.version());
            }
        }
    }
    Ok(oldest)
}
