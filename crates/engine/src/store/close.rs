//! Closing: everything onto the device, the list of free pages, a flush, the labels.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use qpair_block::{Completion, Request};
use qpair_memory::{Blocked, FrameIndex};

use super::superblock::{StoreState, Superblock};
use super::{Crew, Store, StoreInner, labels};
use crate::canary::Canary;
use crate::error::{Error, ErrorKind, Result};
use crate::overflow::{Transfer, give_scratch, scratch_frame};
use crate::page::{HEADER_BYTES, Node, NodeMut, PageKind, field};
use crate::pool::state;
use crate::shared::Shared;
use crate::swip::Swip;
use crate::task::{latch_free, stepped, verify};

/// Writes in flight at once while the store is written out.
const WINDOW: usize = 128;
/// Bytes of one free run in the list: first page and count.
const RUN_BYTES: usize = 16;

impl Store {
    /// Writes everything out, marks the store clean, and ends its workers. On return all of it survives power loss.
    /// Other clones of the store and its tables report `Closed` from here on.
    ///
    /// # Errors
    /// The write or flush that failed, now or earlier; the store is not marked clean then. `Invalid` on a worker: the
    /// store then closes when the last of its clones is gone.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        if super::refuse_on_worker().is_ok() {
            // Nobody is there to be told; the label stays open, and the next open says so.
            let _ = self.close();
            return;
        }
        // A task was the last to let go. Its worker cannot wait for itself: another thread closes.
        let crew = self.crew.get_mut().unwrap_or_else(PoisonError::into_inner);
        let crew = std::mem::replace(crew, Crew::Gone);
        let stepped = matches!(crew, Crew::Stepped);
        if matches!(crew, Crew::Gone) {
            return;
        }
        let label = self.label.get_mut().unwrap_or_else(PoisonError::into_inner).clone();
        let rest = Arc::new(Mutex::new(Some(Self {
            shared: self.shared.clone(),
            members: std::mem::take(&mut self.members),
            label: Mutex::new(label),
            catalog: self.catalog.clone(),
            free_list_fault: None,
            tables: Mutex::default(),
            crew: Mutex::new(crew),
            next_worker: AtomicUsize::new(0),
        })));
        let closing = rest.clone();
        let take =
            |rest: &Mutex<Option<Self>>| rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        if stepped {
            stepped::close_later(Box::new(move || drop(take(&closing))));
            return;
        }
        let closer = std::thread::Builder::new().name("qpair-close".to_owned());
        if closer.spawn(move || drop(take(&closing))).is_err() {
            // Without a thread nobody closes: the label stays open, as after a crash.
            std::mem::forget(take(&rest));
        }
    }
}

/// A page on its way out.
struct Writing {
    transfer: Transfer,
    /// The write is from a copy in a scratch frame, not from the page itself.
    copy: bool,
}

impl StoreInner {
    fn close(&self) -> Result<()> {
        super::refuse_on_worker()?;
        let crew = std::mem::replace(
            &mut *self.crew.lock().unwrap_or_else(PoisonError::into_inner),
            Crew::Gone,
        );
        if matches!(crew, Crew::Gone) {
            return Ok(());
        }
        let outcome = self.settle();
        self.shared.remotes.iter().for_each(|remote| remote.stop());
        match crew {
            Crew::Threads(threads) => {
                for thread in threads {
                    // A worker that panicked has said so; the label stays open then.
                    let _ = thread.join();
                }
            }
            Crew::Stepped => stepped::finish(&self.shared),
            Crew::Gone => {}
        }
        outcome
    }

    /// Brings the device up to date and marks the store clean.
    fn settle(&self) -> Result<()> {
        if let Some(failure) = self.shared.failure() {
            return Err(failure.clone());
        }
        // Commits under way are made in full.
        self.shared.tx.close();
        let shared = self.shared.clone();
        self.block_on(move || async move {
            while shared.tx.clock.is_busy() {
                super::yield_now().await;
            }
            Ok(())
        })?;
        self.shared.begin_closing();
        // Who marks the store open does so under the lock, and has looked whether it is being closed.
        drop(self.label.lock().unwrap_or_else(PoisonError::into_inner));
        if !self.shared.is_marked_open() {
            return Ok(());
        }
        let shared = self.shared.clone();
        let (free_list_page, free_list_pages, free_runs) = self.block_on(move || async move {
            end_changes(&shared).await;
            shared.tx.collect_all(&shared);
            write_out(&shared).await?;
            let list = write_free_list(&shared).await?;
            if !shared.has_canary(Canary::CloseBeforeFlush) {
                let flushed = Transfer::submit(Request::flush(0)).done().await?;
                flushed.result.map_err(|error| Error::io(error, "flushing the store"))?;
            }
            Ok(list)
        })?;
        let mut label = self.label.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Superblock {
            state: StoreState::Clean,
            generation: label.generation + 1,
            high_water: self.shared.space.high_water(),
            free_list_page,
            free_list_pages,
            free_runs,
            catalog_root: self.shared.pool.frames.page_id(self.catalog()?.root),
            ..label.clone()
        };
        labels::write_all(&self.members, &next)?;
        *label = next;
        Ok(())
    }

    /// Reads the list of free pages that the last close left; its own pages are free then too.
    pub(crate) fn load_free_list(&self) -> Result<()> {
        let (page, pages, runs) = {
            let label = self.label.lock().unwrap_or_else(PoisonError::into_inner);
            (label.free_list_page, label.free_list_pages, label.free_runs)
        };
        if pages == 0 {
            return Ok(());
        }
        let shared = self.shared.clone();
        if page.checked_add(pages).is_none_or(|end| end > shared.space.high_water()) {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "the list of free pages lies past the store's end",
            ));
        }
        self.block_on(move || async move {
            let capacity = ((shared.page_size - HEADER_BYTES) / RUN_BYTES) as u64;
            // The first page that no run so far reaches: runs are in order, and do not touch.
            let mut end_of_last = 0;
            for index in 0..pages {
                let bytes = read_free_list_page(&shared, page + index).await?;
                let here = runs.saturating_sub(index * capacity).min(capacity) as usize;
                for run in bytes[HEADER_BYTES..].chunks_exact(RUN_BYTES).take(here) {
                    let (start, count) = run.split_at(8);
                    let word =
                        |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
                    let (start, count) = (word(start), word(count));
                    let end = start.checked_add(count).filter(|end| {
                        count > 0
                            && start >= end_of_last
                            && *end <= shared.space.high_water()
                            && (*end <= page || start >= page + pages)
                    });
                    let Some(end) = end else {
                        return Err(Error::new(
                            ErrorKind::Corrupt,
                            format!(
                                "the list of free pages has a run of {count} pages from {start} on"
                            ),
                        ));
                    };
                    end_of_last = end;
                    shared.space.free(start, count);
                }
            }
            shared.space.free(page, pages);
            Ok(())
        })
    }
}

/// Waits for the changes that began before the close.
async fn end_changes(shared: &Shared) {
    let frames = &shared.pool.frames;
    for frame in (0..frames.len()).map(FrameIndex) {
        // Who holds the latch may not have seen that the store is closing; who takes it after us does.
        while matches!(frames.state(frame), state::HOT | state::COOLING | state::PINNED)
            && frames.try_exclusive(frame).is_err()
        {
            super::yield_now().await;
        }
    }
    while shared.space.pending() > 0 {
        super::yield_now().await;
    }
}

/// Writes all dirty pages. Nothing changes them meanwhile: the store is closing.
async fn write_out(shared: &Arc<Shared>) -> Result<()> {
    let mut writing: VecDeque<Writing> = VecDeque::new();
    let window = WINDOW.min(shared.pool.local_max);
    let frames = &shared.pool.frames;
    for index in 0..frames.len() {
        let frame = FrameIndex(index);
        while frames.is_dirty(frame) {
            if !matches!(frames.state(frame), state::HOT | state::COOLING | state::PINNED) {
                break;
            }
            let page = match frames.try_exclusive(frame) {
                Ok(page) => page,
                Err(Blocked::InFlight | Blocked::Contended) => {
                    super::yield_now().await;
                    continue;
                }
            };
            let node = Node::new(page.bytes());
            let swizzled = !node.is_leaf()
                && (0..=node.count())
                    .any(|position| matches!(Swip::decode(node.child(position)), Swip::Hot(_)));
            if !swizzled {
                let transfer = Transfer::submit(shared.pool.write_back(page, 0));
                writing.push_back(Writing { transfer, copy: false });
                break;
            }
            let version = page.release();
            while writing.len() >= window {
                finish(shared, writing.pop_front()).await?;
            }
            let copy = match writing.is_empty() {
                true => Some(scratch_frame().await?),
                false => crate::overflow::scratch_frame_now(),
            };
            let Some(copy) = copy else {
                finish(shared, writing.pop_front()).await?;
                continue;
            };
            let Ok(page) = frames.resume(frame, version).upgrade() else {
                give_scratch(copy);
                continue;
            };
            writing.push_back(Writing { transfer: write_copy(shared, page, copy), copy: true });
        }
        while writing.len() >= window {
            finish(shared, writing.pop_front()).await?;
        }
    }
    while let Some(write) = writing.pop_front() {
        finish(shared, Some(write)).await?;
    }
    Ok(())
}

/// Writes an inner page whose children are in memory from a copy that refers to them by page id.
fn write_copy(
    shared: &Shared,
    page: qpair_memory::ExclusiveFrame<'_>,
    copy: FrameIndex,
) -> Transfer {
    let frames = &shared.pool.frames;
    let mut image = latch_free(shared, copy);
    image.bytes_mut().copy_from(0, page.as_slice());
    let mut node = NodeMut::new(image.bytes_mut());
    for position in 0..=node.read().count() {
        // The parent's latch keeps the child where it is.
        if let Swip::Hot(child) = Swip::decode(node.read().child(position)) {
            node.set_child(position, Swip::Cold(frames.page_id(child)).encode());
        }
    }
    let page_id = frames.page_id(page.index());
    frames.set_page_id(copy, page_id);
    frames.set_dirty(page.index(), false);
    Transfer::submit(shared.pool.write_back(image, 0))
}

async fn finish(shared: &Shared, write: Option<Writing>) -> Result<()> {
    let Some(Writing { transfer, copy }) = write else { return Ok(()) };
    let Completion { buffer, result, .. } = transfer.done().await?;
    if let Some(buffer) = buffer {
        let frame = FrameIndex(buffer.block().0);
        if !copy && result.is_ok() {
            shared.pool.frames.set_dirty(frame, false);
        }
        let frame = shared.pool.end_write(buffer);
        if copy {
            give_scratch(frame);
        }
    }
    result.map_err(|error| {
        let error = Error::io(error, "writing the store out");
        shared.fail(error.clone());
        error
    })
}

/// Writes the free runs to fresh pages; first page, pages and runs.
async fn write_free_list(shared: &Arc<Shared>) -> Result<(u64, u64, u64)> {
    let runs = shared.space.free_runs();
    if runs.is_empty() {
        return Ok((0, 0, 0));
    }
    let capacity = (shared.page_size - HEADER_BYTES) / RUN_BYTES;
    let pages = runs.len().div_ceil(capacity) as u64;
    let first = shared.space.allocate_fresh(pages)?;
    for (index, part) in runs.chunks(capacity).enumerate() {
        let frame = scratch_frame().await?;
        let page_id = first + index as u64;
        let mut page = latch_free(shared, frame);
        shared.pool.frames.set_page_id(frame, page_id);
        let mut bytes = page.bytes_mut();
        bytes.zero(0, shared.page_size);
        bytes.store_u8(field::KIND, PageKind::FreeList as u8);
        bytes.store_u64(field::PAGE_ID, page_id);
        for (i, (start, count)) in part.iter().enumerate() {
            bytes.store_u64(HEADER_BYTES + i * RUN_BYTES, *start);
            bytes.store_u64(HEADER_BYTES + i * RUN_BYTES + 8, *count);
        }
        let transfer = Transfer::submit(shared.pool.write_back(page, 0));
        finish(shared, Some(Writing { transfer, copy: true })).await?;
    }
    Ok((first, pages, runs.len() as u64))
}

/// Reads one page of the list of free pages.
async fn read_free_list_page(shared: &Shared, page_id: u64) -> Result<Vec<u8>> {
    let bytes = read_page(shared, page_id).await?;
    if bytes[field::KIND] != PageKind::FreeList as u8 {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("page {page_id} is no part of the list of free pages"),
        ));
    }
    Ok(bytes)
}

/// Reads a page past the pool, and checks its checksum and id.
pub(crate) async fn read_page(shared: &Shared, page_id: u64) -> Result<Vec<u8>> {
    let frames = &shared.pool.frames;
    let frame = scratch_frame().await?;
    let page = latch_free(shared, frame);
    frames.set_page_id(frame, page_id);
    let buffer = page.begin_read();
    let request = Request::read(shared.offset_bytes(page_id), buffer.len() as u32, buffer, 0);
    let completion = Transfer::submit(request).done().await?;
    let Some(buffer) = completion.buffer else {
        return Err(Error::new(ErrorKind::Io, "a read came back without its memory"));
    };
    let page = frames.end_read(buffer);
    let bytes = page.as_slice().to_vec();
    shared.pool.end_read(page);
    give_scratch(frame);
    completion.result.map_err(|error| Error::io(error, format!("reading page {page_id}")))?;
    match verify(&bytes, page_id) {
        Some(error) => Err(error),
        None => Ok(bytes),
    }
}

impl StoreInner {
    pub(crate) fn evictions(&self) -> u64 {
        self.shared.pool.evictions.load(Ordering::Relaxed)
    }
}
