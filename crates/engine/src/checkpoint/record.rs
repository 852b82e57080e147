//! The checkpoint record: one page that says which image is the newest durable one.
//!
//! Two places, pages 0 and 1. A new record goes to one of them, and once it is durable to the other too: a torn record leaves
//! the one before, whose pages are still there, and a damaged one leaves its twin.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_block::Request;

use crate::error::{Error, ErrorKind, Result, SALVAGE};
use crate::page::{HEADER_BYTES, PageKind, field, seal};
use crate::shared::Shared;
use crate::space::RECORD_PAGES;
use crate::task::{Transfer, current, read_page, spawn_here};

/// Version of the record's layout.
const VERSION: u32 = 1;

/// A checkpoint record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) store_id: [u8; 16],
    /// One more with every record.
    pub(crate) sequence: u64,
    /// All commits up to this stamp are in the image, none above it.
    pub(crate) stamp: u64,
    /// The run of pages with the image, which may be longer than that, and the image's bytes.
    pub(crate) image_page: u64,
    pub(crate) image_pages: u64,
    pub(crate) image_bytes: u64,
    /// CRC-32C of the image's bytes.
    pub(crate) image_checksum: u32,
    /// The store was closed: there is no log behind this checkpoint.
    pub(crate) closed: bool,
    /// Generation of the labels when it was made: a member whose label is older was restored alone.
    pub(crate) generation: u64,
    /// The run that the next image is for: the one of the image before. No pages: there is none.
    pub(crate) spare_page: u64,
    pub(crate) spare_pages: u64,
}

impl Record {
    /// Where the pages end that it names.
    pub(crate) fn end(&self) -> u64 {
        let end = self.image_page.saturating_add(self.image_pages);
        end.max(self.spare_page.saturating_add(self.spare_pages))
    }

    /// The runs of pages that it names: the image's, and the one for the next.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let runs = [(self.image_page, self.image_pages), (self.spare_page, self.spare_pages)];
        runs.into_iter().filter(|(_, pages)| *pages > 0)
    }

    /// What the record's page has behind its header.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut content = self.store_id.to_vec();
        self.words().iter().for_each(|word| content.extend_from_slice(&word.to_le_bytes()));
        content
    }

    fn words(&self) -> [u64; 10] {
        let flags = u64::from(self.closed) << 32 | u64::from(VERSION);
        [
            flags,
            self.sequence,
            self.stamp,
            self.image_page,
            self.image_pages,
            self.image_bytes,
            u64::from(self.image_checksum),
            self.generation,
            self.spare_page,
            self.spare_pages,
        ]
    }

    /// Reads a record out of a page whose checksum and id are right; nothing if it is something else.
    pub(crate) fn decode(page: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let at = HEADER_BYTES + 16 + index * 8;
            page.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
        };
        let flags = word(0)?;
        if page.get(field::KIND) != Some(&(PageKind::CheckpointRecord as u8))
            || flags as u32 != VERSION
        {
            return None;
        }
        let mut store_id = [0; 16];
        store_id.copy_from_slice(page.get(HEADER_BYTES..HEADER_BYTES + 16)?);
        Some(Self {
            store_id,
            sequence: word(1)?,
            stamp: word(2)?,
            image_page: word(3)?,
            image_pages: word(4)?,
            image_bytes: word(5)?,
            image_checksum: word(6)? as u32,
            generation: word(7)?,
            spare_page: word(8)?,
            spare_pages: word(9)?,
            closed: flags >> 32 & 1 == 1,
        })
    }

    /// Writes the record to both places, one after the other, durably.
    pub(crate) async fn write(&self, shared: &Shared) -> Result<()> {
        let content = self.encode();
        for turn in 0..RECORD_PAGES {
            let page_id = (self.sequence + turn) % RECORD_PAGES;
            write_pages(shared, page_id, PageKind::CheckpointRecord, &content).await?;
            flush(shared).await?;
        }
        Ok(())
    }
}

/// The records of this store in the order of their pages; nothing in the place of one that cannot be read.
pub(crate) async fn read_records(shared: &Shared, store_id: [u8; 16]) -> Vec<Option<Record>> {
    let mut records = Vec::new();
    for page_id in 0..RECORD_PAGES {
        let page = read_page(shared, page_id).await.ok();
        let record = page.and_then(|page| Record::decode(&page));
        records.push(record.filter(|record| record.store_id == store_id));
    }
    records
}

/// The newest record of this store; nothing if there is none that can be read.
pub(crate) async fn read_newest(shared: &Shared, store_id: [u8; 16]) -> Option<Record> {
    let records = read_records(shared, store_id).await.into_iter().flatten();
    records.max_by_key(|record| record.sequence)
}

/// Writes pages in a row beside the trees, for one checkpoint at a time, as many at once as there is memory for. That is its own: a checkpoint
/// must come to its end also when no page can leave memory before it has.
async fn write_pages(
    shared: &Shared,
    first_page: u64,
    kind: PageKind,
    content: &[u8],
) -> Result<()> {
    let (arena, per_page) = (shared.copies.beside()?, image_bytes_per_page(shared.page_size));
    let pages_max = arena.block_size() / shared.page_size;
    let extents = (first_page..).step_by(pages_max).zip(content.chunks(per_page * pages_max));
    let (mut extents, mut writing, mut outcome) = (extents.peekable(), VecDeque::new(), Ok(()));
    loop {
        while outcome.is_ok()
            && extents.peek().is_some()
            && let Some(mut buffer) = arena.lease()
            && let Some((first, extent)) = extents.next()
        {
            let (mut at, mut page_id) = (0, first);
            for part in extent.chunks(per_page) {
                let mut bytes = buffer.part_mut(at, shared.page_size);
                bytes.zero(0, shared.page_size);
                bytes.store_u8(field::KIND, kind as u8);
                bytes.store_u64(field::PAGE_ID, page_id);
                bytes.copy_from(HEADER_BYTES, part);
                seal(&mut buffer, at, shared.page_size);
                (at, page_id) = (at + shared.page_size, page_id + 1);
            }
            let request = Request::write(shared.offset_bytes(first), at as u32, buffer, 0);
            writing.push_back(Transfer::submit(request));
        }
        // Those under way end, whatever one of them came to.
        let Some(write) = writing.pop_front() else { break };
        if let Err(error) = write.done().await?.result {
            let error = Error::io(error, "writing a checkpoint");
            shared.fail(error.clone());
            outcome = Err(error);
        }
    }
    if outcome.is_ok() && extents.peek().is_some() {
        return Err(Error::new(ErrorKind::NoMemory, "pages of a checkpoint are under way"));
    }
    outcome
}

/// Bytes of an image in one page.
pub(crate) fn image_bytes_per_page(page_size: usize) -> usize {
    page_size - HEADER_BYTES
}

/// Writes an image's bytes to a run of pages.
pub(crate) async fn write_image(shared: &Shared, first_page: u64, bytes: &[u8]) -> Result<()> {
    write_pages(shared, first_page, PageKind::CheckpointImage, bytes).await
}

/// Pages of an image's description that are read at the same time.
const READS: usize = 32;

/// Reads the image that a record leads to.
pub(crate) async fn read_image(shared: &Shared, record: &Record) -> Result<Vec<u8>> {
    let mut image = ImageBytes::new(record, shared.page_size, shared.space.capacity())?;
    let (mut pages, mut reading) = (image.pages(), VecDeque::new());
    let reads = READS.min(shared.pool.frames.len() as usize / 8).max(1);
    loop {
        while reading.len() < reads
            && let Some(page_id) = pages.next()
        {
            reading.push_back((page_id, spawn_here(shared, move || read_page_here(page_id))));
        }
        let Some((page_id, read)) = reading.pop_front() else { return image.finish() };
        image.take(page_id, &read.await??)?;
    }
}

async fn read_page_here(page_id: u64) -> Result<Vec<u8>> {
    match current(|worker| worker.shared_arc()) {
        Some(shared) => read_page(&shared, page_id).await,
        None => Err(Error::closed()),
    }
}

/// An image being put together from its pages.
pub(crate) struct ImageBytes {
    record: Record,
    pages: u64,
    bytes: Vec<u8>,
}

impl ImageBytes {
    /// The image that a record leads to, in a store with room for `capacity` pages.
    pub(crate) fn new(record: &Record, page_size: usize, capacity: u64) -> Result<Self> {
        let per_page = image_bytes_per_page(page_size) as u64;
        let end = record.image_page.checked_add(record.image_pages);
        if record.image_bytes > record.image_pages.saturating_mul(per_page)
            || end.is_none_or(|end| end > capacity)
        {
            return Err(damaged_image("lies past the store's end"));
        }
        // The run may be longer than what is in it.
        let pages = record.image_bytes.div_ceil(per_page);
        Ok(Self { record: *record, pages, bytes: Vec::new() })
    }

    /// The pages to be read, in order.
    pub(crate) fn pages(&self) -> std::ops::Range<u64> {
        self.record.image_page..self.record.image_page + self.pages
    }

    /// Takes the next of them, whose checksum and id are right.
    pub(crate) fn take(&mut self, page_id: u64, page: &[u8]) -> Result<()> {
        if page[field::KIND] != PageKind::CheckpointImage as u8 {
            return Err(damaged_image(&format!("is not in page {page_id}")));
        }
        self.bytes.extend_from_slice(&page[HEADER_BYTES..]);
        Ok(())
    }

    /// The image, once all pages were taken.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>> {
        self.bytes.truncate(self.record.image_bytes as usize);
        if crc_fast::crc32_iscsi(&self.bytes) != self.record.image_checksum {
            return Err(damaged_image("has another checksum than its record says"));
        }
        Ok(self.bytes)
    }
}

fn damaged_image(what: &str) -> Error {
    Error::with_hint(ErrorKind::Corrupt, format!("the checkpoint's image {what}"), SALVAGE)
}

/// Flushes of a store, counted.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    begun: AtomicU64,
    /// The last one that ended well.
    ended: AtomicU64,
}

/// Makes all writes durable that are done by now. One flush at a time: one that fails may lose writes that another, under way beside it, calls
/// durable. All who come while one is under way are served by the next.
///
/// # Errors
/// The flush that failed, now or earlier: final for the store.
pub(crate) async fn flush(shared: &Shared) -> Result<()> {
    let Some(own) = current(|worker| worker.shared_arc()) else {
        return Err(Error::new(ErrorKind::Invalid, "flushed by who is no worker"));
    };
    // To its end, even if who waits for it goes away: until then there is no other.
    let begun = own.flushes.begun.load(Ordering::SeqCst);
    spawn_here(shared, move || async move { flush_alone(&own, begun).await }).await?
}

/// Flushes, unless one did that began after the one numbered `after`.
async fn flush_alone(shared: &Shared, after: u64) -> Result<()> {
    let _alone = shared.flushing.enter().await;
    if let Some(failure) = shared.failure() {
        return Err(failure.clone());
    }
    if shared.flushes.ended.load(Ordering::SeqCst) > after {
        return Ok(());
    }
    let number = shared.flushes.begun.fetch_add(1, Ordering::SeqCst) + 1;
    let completion = Transfer::submit(Request::flush(0)).done().await?;
    completion.result.map_err(|error| {
        let error = Error::io(error, "flushing the store");
        shared.fail(error.clone());
        error
    })?;
    shared.flushes.ended.store(number, Ordering::SeqCst);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use qpair_block::BlockDevice;
    use qpair_block::sim::{SimClock, SimDevice, SimLatency, SimOptions};

    use crate::space::Purpose;
    use crate::{Runtime, Store, StoreOptions};

    /// The description of a store was written and read page by page, one after the other: what takes so long is told apart by the time that
    /// one request takes.
    #[test]
    fn a_description_is_written_and_read_many_pages_at_a_time() {
        const REQUEST_NS: u64 = 10_000_000;
        let clock = SimClock::new();
        let device = SimDevice::new(SimOptions::new(1, &clock)).unwrap();
        let open = |format| {
            let options = StoreOptions {
                format,
                page_size: 512,
                memory_bytes: 128 * 512,
                workers: 1,
                log_segment_bytes: 64 << 10,
                runtime: Runtime::Stepped { seed: 1, clock: clock.clone() },
                ..StoreOptions::default()
            };
            let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(device.clone())];
            Store::open(members, &options).unwrap()
        };
        let store = open(true);
        store.table("t").unwrap();
        store.inner.shared.space.allocate(120_000, Purpose::New).unwrap();
        // The first takes a longer run.
        store.checkpoint().unwrap();
        let latency =
            SimLatency { read_ns: REQUEST_NS, write_ns: REQUEST_NS, flush_ns: 0, spike: 0.0 };
        device.set_latency(latency);
        let rounds = |from: u64| (clock.now_ns() - from) / REQUEST_NS;
        let pages = store.inner.shared.record().image_bytes / 448;
        assert!(pages > 30);
        let begun = clock.now_ns();
        store.checkpoint().unwrap();
        assert!(rounds(begun) < pages / 2, "written in {} rounds", rounds(begun));
        store.close().unwrap();
        let begun = clock.now_ns();
        let store = open(false);
        assert!(rounds(begun) < pages / 2, "read in {} rounds", rounds(begun));
        store.close().unwrap();
    }
}
