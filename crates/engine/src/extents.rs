//! Where the pages of a large value are: in one run, or in several that a list names. See docs/design/page-format.md, *Several runs*.
//!
//! What always holds: who takes a descriptor out of a leaf knows its runs by then, since they become free, or of no checkpoint, under the leaf's
//! latch. A list is read before the latch is taken again ([`KnownLists::want`]), and known until its pages are free.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::error::{Error, ErrorKind, Result};
use crate::overflow::Descriptor;
use crate::page::{HEADER_BYTES, PageKind, field, word};
use crate::shared::Shared;
use crate::store::read_page;

/// Bytes before a list's entries on a page: the next page of the list.
const NEXT_BYTES: usize = 8;
/// An entry: a run's first page in the lower bits, its length above.
const ENTRY_BYTES: usize = 8;
const PAGE_BITS: u32 = 40;

/// Runs that a page of a list names at most.
pub(crate) fn runs_per_page(page_size: usize) -> usize {
    (page_size - HEADER_BYTES - NEXT_BYTES) / ENTRY_BYTES
}

/// The pages of a large value.
#[derive(Clone, Debug)]
pub(crate) enum Extents {
    Run(Range<u64>),
    Listed(Arc<Listed>),
}

/// Runs, in the order of the value, and the pages of the list that names them.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) value: Vec<Range<u64>>,
    pub(crate) lists: Vec<u64>,
}

impl Extents {
    /// The word that a descriptor begins with: its first page, or that of the list.
    pub(crate) fn first_page(&self) -> u64 {
        match self {
            Self::Run(run) => run.start,
            Self::Listed(listed) => listed.lists.first().copied().unwrap_or_default(),
        }
    }

    pub(crate) fn is_listed(&self) -> bool {
        matches!(self, Self::Listed(_))
    }

    /// The runs with the value's parts, in order.
    pub(crate) fn value(&self) -> &[Range<u64>] {
        match self {
            Self::Run(run) => std::slice::from_ref(run),
            Self::Listed(listed) => &listed.value,
        }
    }

    /// The pages of the list; none of one run.
    pub(crate) fn lists(&self) -> &[u64] {
        match self {
            Self::Run(_) => &[],
            Self::Listed(listed) => &listed.lists,
        }
    }

    /// All runs of pages, those of the list among them.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let lists = self.lists().iter().map(|page_id| *page_id..page_id + 1);
        self.value().iter().cloned().chain(lists)
    }

    /// The pages with the value's parts, in order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.value().iter().cloned().flatten()
    }

    /// What the pages of the list have behind their headers.
    pub(crate) fn encode_lists(&self, page_size: usize) -> Vec<Vec<u8>> {
        let next = self.lists().iter().skip(1).copied().chain([0]);
        let parts = self.value().chunks(runs_per_page(page_size));
        let encode = |(next, runs): (u64, &[Range<u64>])| {
            let entries = runs.iter().map(|run| run.start | (run.end - run.start) << PAGE_BITS);
            [next].into_iter().chain(entries).flat_map(u64::to_le_bytes).collect()
        };
        next.zip(parts).map(encode).collect()
    }
}

/// The page of a list that comes behind one, and the runs that this one names, of a page that is one.
pub(crate) fn decode_list(page: &[u8]) -> Option<(Option<u64>, impl Iterator<Item = Range<u64>>)> {
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

/// Gathers a list page by page.
#[derive(Debug)]
pub(crate) struct ListReader {
    descriptor: Descriptor,
    /// Pages that the store has room for.
    capacity: u64,
    found: Listed,
    pages: u64,
    next: Option<u64>,
}

impl ListReader {
    pub(crate) fn new(descriptor: Descriptor, capacity: u64) -> Self {
        let next = Some(descriptor.page_id).filter(|page_id| *page_id < capacity);
        Self { descriptor, capacity, found: Listed::default(), pages: 0, next }
    }

    /// The page to be read next.
    pub(crate) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Takes in that page, whose checksum and id are right; whether it is this list's.
    pub(crate) fn take(&mut self, page: &[u8]) -> bool {
        let part = word(page, field::PART) as u32;
        let is_it = page[field::KIND] == PageKind::Extents as u8
            && word(page, field::STAMP) == self.descriptor.stamp
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

    /// The value's pages, if the list is whole.
    pub(crate) fn finish(self) -> Option<Extents> {
        let is_whole = self.next.is_none() && self.pages == self.descriptor.pages.into();
        is_whole.then(|| Extents::Listed(Arc::new(self.found)))
    }
}

/// Where a value's pages are; nothing if the list is another value's by now.
///
/// # Errors
/// `Corrupt`, and what the device says.
pub(crate) async fn extents_of(shared: &Shared, descriptor: Descriptor) -> Result<Option<Extents>> {
    let capacity = shared.space.capacity();
    if let Some(run) = descriptor.run() {
        if run.end <= capacity {
            return Ok(Some(Extents::Run(run)));
        }
    } else if descriptor.page_id < capacity {
        let mut list = ListReader::new(descriptor, capacity);
        while let Some(page_id) = list.next() {
            if !list.take(&Box::pin(read_page(shared, page_id)).await?) {
                return Ok(None);
            }
        }
        return Ok(list.finish());
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!("a large value at page {} past the store's end", descriptor.page_id),
    ))
}

/// What is known of a list that somebody asked for.
#[derive(Debug)]
enum State {
    /// Somebody reads it.
    Loading(Vec<Waker>),
    /// One that is damaged names nothing: `check` finds the pages that are lost.
    Known(Extents),
    Failed(Error),
}

/// What comes of asking for a list.
pub(crate) enum Want {
    Known,
    /// The caller is to start [`load`].
    Load,
    /// The waker is woken.
    Wait,
    Failed(Error),
}

/// The lists of values that lose, or have lost, their records.
#[derive(Debug, Default)]
pub(crate) struct KnownLists {
    /// The store may have values in several runs, as its label says.
    may_be: AtomicBool,
    /// By the descriptors' first pages and stamps.
    lists: Mutex<BTreeMap<(u64, u64), State>>,
}

impl KnownLists {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u64, u64), State>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store has values in several runs from now on.
    pub(crate) fn expect(&self) {
        self.may_be.store(true, Ordering::Relaxed);
    }

    /// Whether the store may have values in several runs.
    #[inline]
    pub(crate) fn may_be(&self) -> bool {
        self.may_be.load(Ordering::Relaxed)
    }

    /// Asks for a list.
    pub(crate) fn want(&self, descriptor: Descriptor, waker: &Waker) -> Want {
        let mut lists = self.lock();
        match lists.get_mut(&descriptor.key()) {
            Some(State::Known(_)) => return Want::Known,
            Some(State::Loading(wakers)) => {
                if !wakers.iter().any(|other| other.will_wake(waker)) {
                    wakers.push(waker.clone());
                }
                return Want::Wait;
            }
            Some(State::Failed(_)) | None => {}
        }
        // Who asks next has another try.
        if let Some(State::Failed(error)) = lists.remove(&descriptor.key()) {
            return Want::Failed(error);
        }
        lists.insert(descriptor.key(), State::Loading(vec![waker.clone()]));
        Want::Load
    }

    /// Takes note of a list that was read.
    pub(crate) fn note(&self, descriptor: Descriptor, read: Result<Option<Extents>>) {
        let state = match read {
            Ok(found) => State::Known(found.unwrap_or(Extents::Listed(Arc::default()))),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                State::Known(Extents::Listed(Arc::default()))
            }
            Err(error) => State::Failed(error),
        };
        let before = self.lock().insert(descriptor.key(), state);
        if let Some(State::Loading(wakers)) = before {
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// A list that is known.
    pub(crate) fn get(&self, descriptor: Descriptor) -> Option<Extents> {
        match self.lock().get(&descriptor.key()) {
            Some(State::Known(extents)) => Some(extents.clone()),
            _ => None,
        }
    }

    /// A list that nobody asks for any more, or not soon.
    pub(crate) fn forget(&self, descriptor: Descriptor) {
        self.lock().remove(&descriptor.key());
    }
}

/// Reads a list that is to be known.
pub(crate) async fn load(shared: Arc<Shared>, descriptor: Descriptor) {
    let read = extents_of(&shared, descriptor).await;
    shared.lists.note(descriptor, read);
}

impl Shared {
    /// The pages of the value that an encoded descriptor leads to, as far as is known. One that makes no sense leads to none; `check` finds
    /// those that are lost.
    fn known_extents(&self, encoded: &[u8]) -> Option<(Descriptor, Extents)> {
        let descriptor = Descriptor::decode(encoded, self.page_size).ok()?;
        let extents = match descriptor.run() {
            Some(run) => (run.end <= self.space.capacity()).then_some(Extents::Run(run)),
            None => self.lists.get(descriptor),
        };
        extents.map(|extents| (descriptor, extents))
    }

    /// The trees refer to the pages of a large value no more, but snapshots may still read them.
    pub(crate) fn detach_large(&self, encoded: &[u8]) {
        let found = self.known_extents(encoded);
        let runs = found.iter().flat_map(|(_, extents)| extents.runs());
        runs.for_each(|run| self.space.detach(run.start, run.end - run.start));
    }

    /// Gives the pages of a large value back that nobody can read any more.
    pub(crate) fn free_large(&self, encoded: &[u8]) {
        let Some((descriptor, extents)) = self.known_extents(encoded) else { return };
        // Before its pages can be another's.
        if descriptor.listed {
            self.lists.forget(descriptor);
        }
        self.free_extents(&extents);
    }

    pub(crate) fn free_extents(&self, extents: &Extents) {
        extents.runs().for_each(|run| self.space.free(run.start, run.end - run.start));
    }

    pub(crate) fn attach_extents(&self, extents: &Extents) {
        extents.runs().for_each(|run| self.space.attach(run.start, run.end - run.start));
    }
}
