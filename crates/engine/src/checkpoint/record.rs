//! Writes and reads checkpoint records, and the descriptions of images that they lead to.

use std::collections::VecDeque;

use qpair_block::Request;
use qpair_format::image::{ImageBytes, Record, image_bytes_per_page};
use qpair_format::page::{HEADER_BYTES, PageKind, field, seal};
use qpair_format::{Error, ErrorKind, Result};

use crate::shared::Shared;
use crate::task::{Transfer, current, flush, read_page, spawn_here};
use qpair_format::image::RECORD_PAGES;

/// Writes a record to both places, one after the other, durably.
pub(crate) async fn write_record(shared: &Shared, record: &Record) -> Result<()> {
    let content = record.encode();
    for turn in 0..RECORD_PAGES {
        let page_id = (record.sequence + turn) % RECORD_PAGES;
        write_pages(shared, page_id, PageKind::CheckpointRecord, &content).await?;
        flush(shared).await?;
    }
    Ok(())
}

pub(crate) async fn read_records(shared: &Shared, store_id: [u8; 16]) -> Vec<Option<Record>> {
    let mut records = Vec::new();
    for page_id in 0..RECORD_PAGES {
        let page = read_page(shared, page_id).await.ok();
        let record = page.and_then(|page| Record::decode(&page));
        records.push(record.filter(|record| record.store_id == store_id));
    }
    records
}

pub(crate) async fn read_newest(shared: &Shared, store_id: [u8; 16]) -> Option<Record> {
    let records = read_records(shared, store_id).await.into_iter().flatten();
    records.max_by_key(|record| record.sequence)
}

/// Writes pages in a row beside the trees, as many at once as the memory allows, for one checkpoint
/// at a time. Checkpoints have that memory of their own, because a checkpoint must also end when no
/// page can leave memory before its end.
async fn write_pages(
    shared: &Shared,
    first_page: u64,
    kind: PageKind,
    content: &[u8],
) -> Result<()> {
    let (arena, per_page) =
        (shared.checkpointing.copies.beside()?, image_bytes_per_page(shared.page_bytes));
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
                let mut bytes = buffer.part_mut(at, shared.page_bytes);
                bytes.zero(0, shared.page_bytes);
                bytes.store_u8(field::KIND, kind as u8);
                bytes.store_u64(field::PAGE_ID, page_id);
                bytes.copy_from(HEADER_BYTES, part);
                seal(&mut buffer, at, shared.page_bytes);
                (at, page_id) = (at + shared.page_size, page_id + 1);
            }
            let request = Request::write(shared.offset_bytes(first), at as u32, buffer, 0);
            writing.push_back(Transfer::submit(request));
        }
        // Wait for all writes, whether earlier ones succeeded or not.
        let Some(write) = writing.pop_front() else { break };
        if let Err(error) = write.done().await?.result {
            let error = Error::io(error, "writing a checkpoint");
            shared.fail(error.clone());
            outcome = Err(error);
        }
    }
    if outcome.is_ok() && extents.peek().is_some() {
        return Err(Error::new(
            ErrorKind::NoMemory,
            "the pages for a checkpoint record are in flight",
        ));
    }
    outcome
}

pub(crate) async fn write_image(shared: &Shared, first_page: u64, bytes: &[u8]) -> Result<()> {
    write_pages(shared, first_page, PageKind::CheckpointImage, bytes).await
}

/// The number of pages of an image's description that are read at the same time.
const READS: usize = 32;

pub(crate) async fn read_image(shared: &Shared, record: &Record) -> Result<Vec<u8>> {
    let mut image = ImageBytes::new(record, shared.page_bytes, shared.space.capacity())?;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use qpair_block::BlockDevice;
    use qpair_block::time::SimClock;
    use qpair_sim_block::{SimDevice, SimLatency, SimOptions};

    use crate::space::Purpose;
    use crate::{Runtime, Store, StoreOptions};

    /// The description of a store was once written and read page by page, one request after the
    /// other.
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
        // The first checkpoint allocates a longer run.
        store.checkpoint().unwrap();
        let latency =
            SimLatency { read_ns: REQUEST_NS, write_ns: REQUEST_NS, flush_ns: 0, spike: 0.0 };
        device.set_latency(latency);
        let rounds = |from: u64| (clock.now_ns() - from) / REQUEST_NS;
        let pages = store.inner.shared.checkpointing.record().image_bytes / 448;
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
