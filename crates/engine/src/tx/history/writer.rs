//! The writer of runs.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_format::Result;
use qpair_format::page::{HEADER_BYTES, PageKind, field};

use super::before_image::BeforeImageRef;
use super::pages::Transfers;
use super::run::SortedRun;
use crate::space::Purpose;
use crate::task::current;
use crate::tx::Tx;
use crate::tx::versions::hash_of;

/// The number of pages that are allocated at a time, at most.
const EXTENT_PAGES: u64 = 256;

/// Writes a run, image by image, in their order.
pub(in crate::tx) struct RunWriter<'a> {
    tx: &'a Arc<Tx>,
    /// `None` once it was completed.
    run: Option<SortedRun>,
    page: Vec<u8>,
    count: u16,
    /// The place of the page that is being filled.
    page_id: u64,
    /// Allocated pages of the run that are not written yet.
    room: Range<u64>,
    /// The number of pages that the rest may need.
    pages_left: u64,
    hashes: Vec<u64>,
    descriptors: HashSet<Box<[u8]>>,
    transfers: Transfers,
}

impl<'a> RunWriter<'a> {
    /// Creates a writer for a run whose images have no timestamp above `bound`, and about `bytes`
    /// bytes.
    pub(super) fn new(tx: &'a Arc<Tx>, bound: u64, bytes: u64) -> Self {
        let pages_left = bytes / (tx.shared.page_bytes - HEADER_BYTES) as u64 + 1;
        Self {
            tx,
            run: Some(SortedRun::new(tx, bound)),
            page: Vec::with_capacity(tx.shared.page_bytes),
            count: 0,
            page_id: 0,
            room: 0..0,
            pages_left,
            hashes: Vec::new(),
            descriptors: HashSet::new(),
            transfers: Transfers::default(),
        }
    }

    /// Creates a writer for a run of a transaction's own writes, of about `bytes` bytes.
    pub(in crate::tx) fn of_writes(tx: &'a Arc<Tx>, bytes: u64) -> Self {
        let mut writer = Self::new(tx, u64::MAX, bytes);
        writer.run = writer.run.take().map(SortedRun::of_writes);
        writer
    }

    /// Sets the level of the run, which other runs are merged into.
    pub(super) fn of_level(mut self, level: u8) -> Self {
        self.run_mut().set_level(level);
        self
    }

    fn run_mut(&mut self) -> &mut SortedRun {
        self.run.as_mut().expect("it is there until `finish` takes it")
    }

    fn is_history(&self) -> bool {
        self.run.as_ref().is_some_and(SortedRun::is_history)
    }

    pub(in crate::tx) async fn push(&mut self, image: &BeforeImageRef<'_>) -> Result<()> {
        if self.page.len() + image.size_bytes() > self.tx.shared.page_bytes {
            self.write_page().await?;
        }
        if self.count == 0 {
            self.page_id = self.next_page_id()?;
            self.page.clear();
            self.page.resize(HEADER_BYTES, 0);
            let page_id = self.page_id;
            self.run_mut().add_page(page_id, image);
        }
        image.encode(&mut self.page);
        if self.is_history() {
            self.descriptors.extend(image.descriptor().map(Box::from));
        }
        self.count += 1;
        let hash = hash_of(image.tree, image.key);
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
        Ok(())
    }

    fn next_page_id(&mut self) -> Result<u64> {
        if self.room.is_empty() {
            let most = self.pages_left.clamp(1, EXTENT_PAGES);
            self.room = self.tx.shared.space.allocate_some_unlinked(most, Purpose::New)?;
            let pages = self.room.end - self.room.start;
            if self.is_history() {
                let bytes = pages * self.tx.shared.page_size as u64;
                self.tx.history.device_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            let room = self.room.clone();
            self.run_mut().own(room);
            self.pages_left = self.pages_left.saturating_sub(pages);
        }
        self.room.start += 1;
        Ok(self.room.start - 1)
    }

    async fn write_page(&mut self) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        self.page.resize(self.tx.shared.page_bytes, 0);
        self.page[field::KIND] = PageKind::History as u8;
        self.page[field::COUNT..field::COUNT + 2].copy_from_slice(&self.count.to_le_bytes());
        let number = self.run_mut().number().to_le_bytes();
        self.page[field::TIMESTAMP..field::TIMESTAMP + 8].copy_from_slice(&number);
        self.count = 0;
        self.transfers.write(&self.tx.shared, self.page_id, &self.page).await
    }

    /// Completes the run; returns `None` if it has no image. `outcome` is the outcome of producing
    /// the images.
    ///
    /// # Errors
    /// The error of `outcome`; errors of the device.
    pub(in crate::tx) async fn finish(mut self, outcome: Result<()>) -> Result<Option<SortedRun>> {
        let outcome = match outcome {
            Ok(()) => self.write_page().await,
            Err(error) => Err(error),
        };
        // If this fails, the run's pages become free, so no write to them may be under way.
        outcome.and(self.transfers.end_writes(&self.tx.shared).await)?;
        let rest = self.room.end - self.room.start;
        if rest > 0 {
            let room = self.room.clone();
            self.run_mut().disown(&room);
            self.tx.shared.space.free(self.room.start, rest);
            if self.is_history() {
                let bytes = rest * self.tx.shared.page_size as u64;
                self.tx.history.device_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
        let Some(mut run) = self.run.take() else { return Ok(None) };
        run.end(&self.hashes, std::mem::take(&mut self.descriptors));
        Ok((!self.hashes.is_empty()).then_some(run))
    }
}

impl Drop for RunWriter<'_> {
    fn drop(&mut self) {
        let Some(run) = self.run.take().filter(|_| self.transfers.are_under_way()) else { return };
        // The pages become free only once no write to them is under way.
        let (mut transfers, shared) = (std::mem::take(&mut self.transfers), self.tx.shared.clone());
        current(|worker| {
            worker.spawn_own(async move {
                // The store has failed if a write has: see the caller's error.
                let _ = transfers.end_writes(&shared).await;
                drop(run);
            });
        });
    }
}
