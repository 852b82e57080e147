//! The pages of a large value: one run, or several runs that a list names. See
//! docs/design/page-format.md, *Several runs*.

use std::ops::Range;
use std::sync::Arc;

use super::Descriptor;
use crate::page::{HEADER_BYTES, PageKind, field, word};

/// The number of bytes before a list's entries on a page: the id of the list's next page.
const NEXT_BYTES: usize = 8;
/// The size of an entry: a run's first page in the lower bits, the run's length above.
const ENTRY_BYTES: usize = 8;
const PAGE_BITS: u32 = 40;

pub fn runs_per_page(page_size: usize) -> usize {
    (page_size - HEADER_BYTES - NEXT_BYTES) / ENTRY_BYTES
}

#[derive(Clone, Debug)]
pub enum Extents {
    Run(Range<u64>),
    /// Several runs, and the pages with the list of them.
    Listed(Arc<Listed>),
}

/// Runs, in the order of the value, and the pages of the list that names them.
#[derive(Debug, Default)]
pub struct Listed {
    pub value: Vec<Range<u64>>,
    pub lists: Vec<u64>,
}

impl Extents {
    /// Returns the first page for a descriptor: that of the value, or that of the list.
    pub fn first_page(&self) -> u64 {
        match self {
            Self::Run(run) => run.start,
            Self::Listed(listed) => listed.lists.first().copied().unwrap_or_default(),
        }
    }

    pub fn is_listed(&self) -> bool {
        matches!(self, Self::Listed(_))
    }

    /// Returns the runs with the value's parts, in order.
    pub fn value(&self) -> &[Range<u64>] {
        match self {
            Self::Run(run) => std::slice::from_ref(run),
            Self::Listed(listed) => &listed.value,
        }
    }

    pub fn lists(&self) -> &[u64] {
        match self {
            Self::Run(_) => &[],
            Self::Listed(listed) => &listed.lists,
        }
    }

    /// Returns all runs of pages, including those of the list.
    pub fn runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let lists = self.lists().iter().map(|page_id| *page_id..page_id + 1);
        self.value().iter().cloned().chain(lists)
    }

    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.value().iter().cloned().flatten()
    }

    /// Encodes the content of the list's pages behind the page headers.
    pub fn encode_lists(&self, page_size: usize) -> Vec<Vec<u8>> {
        let next = self.lists().iter().skip(1).copied().chain([0]);
        let parts = self.value().chunks(runs_per_page(page_size));
        let encode = |(next, runs): (u64, &[Range<u64>])| {
            let entries = runs.iter().map(|run| run.start | (run.end - run.start) << PAGE_BITS);
            [next].into_iter().chain(entries).flat_map(u64::to_le_bytes).collect()
        };
        next.zip(parts).map(encode).collect()
    }
}

/// Decodes a page of a list: the next page of the list, and the runs that this page names. Returns
/// `None` if the page is not part of a list.
pub fn decode_list(page: &[u8]) -> Option<(Option<u64>, impl Iterator<Item = Range<u64>>)> {
    let len = (word(page, field::PART) >> 32) as usize;
    let body = page.get(HEADER_BYTES..HEADER_BYTES + len)?;
    let mut words = body.chunks_exact(8).map(|bytes| word(bytes, 0));
    let next = words.next()?;
    let run = |entry: u64| {
        let start = entry & ((1 << PAGE_BITS) - 1);
        start..start + (entry >> PAGE_BITS)
    };
    Some(((next > 0).then_some(next), words.map(run)))
}

#[derive(Debug)]
pub struct ListReader {
    descriptor: Descriptor,
    capacity: u64,
    found: Listed,
    pages: u64,
    next: Option<u64>,
}

impl ListReader {
    pub fn new(descriptor: Descriptor, capacity: u64) -> Self {
        let next = Some(descriptor.page_id).filter(|page_id| *page_id < capacity);
        Self { descriptor, capacity, found: Listed::default(), pages: 0, next }
    }

    pub fn next(&self) -> Option<u64> {
        self.next
    }

    /// Takes the next page, whose checksum and id are right. Returns whether the page belongs to
    /// this list.
    pub fn take(&mut self, page: &[u8]) -> bool {
        let part = word(page, field::PART) as u32;
        let is_it = page[field::KIND] == PageKind::Extents as u8
            && word(page, field::TIMESTAMP) == self.descriptor.timestamp
            && part as usize == self.found.lists.len();
        let (Some(page_id), true) = (self.next.take(), is_it) else { return false };
        let Some((next, runs)) = decode_list(page) else { return false };
        self.found.lists.push(page_id);
        for run in runs {
            self.pages += run.end - run.start;
            if run.is_empty()
                || run.end > self.capacity
                || self.pages > self.descriptor.pages.into()
            {
                return false;
            }
            self.found.value.push(run);
        }
        self.next = next.filter(|page_id| *page_id < self.capacity);
        self.next == next
    }

    /// Returns the value's pages, if the list is complete.
    pub fn finish(self) -> Option<Extents> {
        let is_whole = self.next.is_none() && self.pages == self.descriptor.pages.into();
        is_whole.then(|| Extents::Listed(Arc::new(self.found)))
    }
}
