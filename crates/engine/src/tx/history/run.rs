//! A run: images in the order of tree, key and timestamp, on pages of their own.

use std::collections::HashSet;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use qpair_format::large::Descriptor;
use qpair_format::page::{HEADER_BYTES, PageKind, damage, field};
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::locks::Mutex;

use super::before_image::{BeforeImageRef, images};
use super::filter::Filter;
use crate::tx::Tx;
use crate::tx::versions::{hash_of, is_within};

/// A page of a run: its id, and the place of its first image.
struct Page {
    id: u64,
    tree: u32,
    timestamp: u64,
    /// The end of its first key in the keys of the run.
    key_end: u32,
}

/// A sorted run of before-images, written once. Its pages become free when the last reference is
/// dropped.
pub(in crate::tx) struct SortedRun {
    tx: Weak<Tx>,
    /// Whether the pages count as device space of older values. Those of a transaction's own writes
    /// do not.
    is_history: bool,
    page_bytes: u64,
    /// A random number that identifies the run, and is in each of its pages.
    number: u64,
    /// An upper bound of the images' timestamps.
    bound: u64,
    pages: Vec<Page>,
    keys: Vec<u8>,
    filter: Filter,
    /// The run's pages, which it frees at its end.
    extents: Vec<Range<u64>>,
    /// How often its images were merged: runs of one level are of about the same size.
    level: u8,
    /// The descriptors of large values among its images.
    descriptors: HashSet<Box<[u8]>>,
    /// The large values that the run owns, and frees at its end.
    large: Mutex<Vec<Box<[u8]>>>,
    /// Whether the run owns all its large values, and may be merged.
    settled: AtomicBool,
}

/// A place in the order of a run: tree, key and timestamp.
type Place<'a> = (u32, &'a [u8], u64);

impl SortedRun {
    pub(super) fn new(tx: &Arc<Tx>, bound: u64) -> Self {
        Self {
            tx: Arc::downgrade(tx),
            is_history: true,
            page_bytes: tx.shared.page_size as u64,
            number: fastrand::u64(..),
            bound,
            pages: Vec::new(),
            keys: Vec::new(),
            filter: Filter::of(&[]),
            extents: Vec::new(),
            level: 0,
            descriptors: HashSet::new(),
            large: Mutex::default(),
            settled: AtomicBool::new(false),
        }
    }

    /// Makes the run one of a transaction's own writes.
    pub(super) fn of_writes(mut self) -> Self {
        self.is_history = false;
        self
    }

    pub(super) fn is_history(&self) -> bool {
        self.is_history
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn bound(&self) -> u64 {
        self.bound
    }

    /// Makes the run own these pages.
    pub(super) fn own(&mut self, extent: Range<u64>) {
        self.extents.push(extent);
    }

    /// Removes the end of the last extent from the run's pages.
    pub(super) fn disown(&mut self, rest: &Range<u64>) {
        if let Some(last) = self.extents.last_mut() {
            last.end = rest.start;
        }
    }

    /// Adds the next page.
    pub(super) fn add_page(&mut self, id: u64, first: &BeforeImageRef<'_>) {
        self.keys.extend_from_slice(first.key);
        let key_end = self.keys.len() as u32;
        self.pages.push(Page { id, tree: first.tree, timestamp: first.timestamp, key_end });
    }

    /// Completes the run after its last page: builds the filter of its rows, and notes its
    /// descriptors.
    pub(super) fn end(&mut self, hashes: &[u64], descriptors: HashSet<Box<[u8]>>) {
        self.filter = Filter::of(hashes);
        self.descriptors = descriptors;
    }

    pub(super) fn set_level(&mut self, level: u8) {
        self.level = level;
    }

    pub(super) fn level(&self) -> u8 {
        self.level
    }

    /// Makes the run own those of these large values that it has images of; returns the others,
    /// which no snapshot needs. No other run may own them.
    pub(in crate::tx) fn settle(&self, large: Vec<Box<[u8]>>) -> Vec<Box<[u8]>> {
        let (own, others) = large.into_iter().partition(|of| self.descriptors.contains(of));
        *self.large.lock() = own;
        self.settled.store(true, Ordering::Release);
        others
    }

    /// Whether the run owns all its large values.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Excludes the run from merging.
    pub(super) fn keep_as_it_is(&self) {
        self.settled.store(false, Ordering::Release);
    }

    /// Takes the large values from the run, for another run that owns them from now on.
    pub(super) fn take_large(&self) -> Vec<Box<[u8]>> {
        std::mem::take(&mut *self.large.lock())
    }

    /// Returns the number of pages with images.
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn device_bytes(&self) -> u64 {
        self.pages.len() as u64 * self.page_bytes
    }

    pub(in crate::tx) fn memory_bytes(&self) -> u64 {
        let bytes = self.keys.len() + self.pages.len() * size_of::<Page>();
        let large = 2 * self.descriptors.len() * (Descriptor::BYTES + size_of::<Box<[u8]>>());
        (size_of::<Self>() + bytes + self.filter.size_bytes() + large) as u64
    }

    pub(super) fn page_id(&self, index: usize) -> u64 {
        self.pages[index].id
    }

    pub(in crate::tx) fn may_have(&self, tree: u32, key: &[u8]) -> bool {
        self.filter.may_have(hash_of(tree, key))
    }

    /// Returns the place of a page's first image.
    pub(super) fn first(&self, index: usize) -> Place<'_> {
        let start = index.checked_sub(1).map_or(0, |before| self.pages[before].key_end as usize);
        let Page { tree, timestamp, key_end, .. } = self.pages[index];
        (tree, &self.keys[start..key_end as usize], timestamp)
    }

    /// Returns the number of pages that begin before a place.
    fn before(&self, is_before: impl Fn(Place<'_>) -> bool) -> usize {
        let (mut low, mut high) = (0, self.pages.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match is_before(self.first(middle)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Returns the pages that may have a row's oldest image above a snapshot: one page, or two if
    /// it may be the last image of the one or the first of the next.
    pub(super) fn pages_of_row(&self, tree: u32, key: &[u8], snapshot: u64) -> Range<usize> {
        let next = self.before(|first| first <= (tree, key, snapshot));
        let end = next < self.pages.len() && {
            let (first_tree, first_key, _) = self.first(next);
            (first_tree, first_key) == (tree, key)
        };
        next.saturating_sub(1)..next + usize::from(end)
    }

    /// Returns the pages that may have images of a range of keys.
    pub(super) fn pages_of_range(
        &self,
        tree: u32,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
    ) -> Range<usize> {
        let start = match low {
            Bound::Included(key) | Bound::Excluded(key) => {
                self.before(|first| first < (tree, key, 0))
            }
            Bound::Unbounded => self.before(|first| first < (tree, &[], 0)),
        };
        let end = self.before(|(of, key, _)| {
            of < tree || of == tree && is_within((Bound::Unbounded, high), key)
        });
        start.saturating_sub(1)..end
    }

    /// Returns the images of one of the run's pages, which was read.
    ///
    /// # Errors
    /// `Corrupt` if it is another page.
    pub(super) fn images<'p>(
        &self,
        index: usize,
        page: &'p [u8],
    ) -> Result<impl Iterator<Item = Result<BeforeImageRef<'p>>> + use<'p>> {
        let id = self.page_id(index);
        let number =
            page[field::TIMESTAMP..field::TIMESTAMP + 8].try_into().map_or(0, u64::from_le_bytes);
        let fault = damage(page, id).or_else(|| {
            (page[field::KIND] != PageKind::History as u8 || number != self.number)
                .then(|| "is not a page of this run".to_owned())
        });
        if let Some(fault) = fault {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("page {id}, of older values, {fault}"),
            ));
        }
        let count = u16::from_le_bytes([page[field::COUNT], page[field::COUNT + 1]]);
        Ok(images(&page[HEADER_BYTES..], count))
    }
}

impl Drop for SortedRun {
    fn drop(&mut self) {
        // A store that was dropped does not need its pages.
        let Some(tx) = self.tx.upgrade() else { return };
        let mut pages = 0;
        for extent in self.extents.drain(..) {
            pages += extent.end - extent.start;
            tx.shared.space.free(extent.start, extent.end - extent.start);
        }
        if !self.is_history {
            return;
        }
        let bytes = pages * tx.shared.page_size as u64;
        tx.history.device_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let large = self.large.get_mut();
        tx.give_large_back(std::mem::take(large));
    }
}
