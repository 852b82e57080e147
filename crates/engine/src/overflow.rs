//! Values too large for a leaf: a run of pages of their own, see docs/design/page-format.md.
//!
//! They are read and written past the pool's replacement: free frames serve as memory for the transfer and are
//! free again afterwards. Every page carries the value's stamp, so that a reader whose value was replaced and
//! whose pages were used again notices, and looks the key up once more.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use qpair_block::{Completion, Request};
use qpair_memory::FrameIndex;

use crate::checkpoint::{Relief, make_row};
use crate::error::{Error, ErrorKind, Result};
use crate::page::{HEADER_BYTES, PageKind, field};
use crate::pool::state;
use crate::shared::Shared;
use crate::task::{check_here, current, latch_free, verify};

/// How often pages in a row are made for one value.
const ROW_TRIES: u32 = 3;
/// Pages of one value in flight at once.
const WINDOW: usize = 16;

/// Where a large value is; kept in the leaf in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// First of the run of pages.
    pub(crate) page_id: u64,
    /// In every page of the value, and no other value's.
    pub(crate) stamp: u64,
    /// Length of the value, bytes.
    pub(crate) len: u32,
    /// Pages in the run.
    pub(crate) pages: u32,
}

impl Descriptor {
    /// Bytes of an encoded descriptor.
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.page_id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stamp.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_le_bytes());
        bytes[20..].copy_from_slice(&self.pages.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], page_size: usize) -> Result<Self> {
        let word = |from: usize| {
            bytes.get(from..from + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
        };
        let half = |from: usize| {
            bytes.get(from..from + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
        };
        let descriptor = (|| {
            Some(Self { page_id: word(0)?, stamp: word(8)?, len: half(16)?, pages: half(20)? })
        })();
        descriptor
            .filter(|d| {
                bytes.len() == Self::BYTES
                    && d.pages as usize == pages_of(d.len as usize, page_size)
            })
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "an overflow descriptor makes no sense"))
    }
}

fn part_bytes(page_size: usize) -> usize {
    page_size - HEADER_BYTES
}

fn pages_of(len: usize, page_size: usize) -> usize {
    len.div_ceil(part_bytes(page_size)).max(1)
}

/// Bytes of a value in the page with its part of this number.
pub(crate) fn part_len(descriptor: Descriptor, part: u32, page_size: usize) -> usize {
    let capacity = part_bytes(page_size);
    (descriptor.len as usize).saturating_sub(part as usize * capacity).min(capacity)
}

/// The bytes of a value in a page whose checksum and id are right; nothing if it is not the page with this part of it.
pub(crate) fn part_of(page: &[u8], descriptor: Descriptor, part: u32) -> Option<&[u8]> {
    let half = |at: usize| page[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    let stamp = page[field::STAMP..field::STAMP + 8].try_into().map_or(0, u64::from_le_bytes);
    let len = part_len(descriptor, part, page.len());
    let is_it = page[field::KIND] == PageKind::Overflow as u8
        && stamp == descriptor.stamp
        && half(field::PART) == part
        && half(field::PART_BYTES) as usize == len;
    is_it.then(|| &page[HEADER_BYTES..HEADER_BYTES + len])
}

/// Waits for a free frame, marked as memory for a transfer.
pub(crate) async fn scratch_frame() -> Result<FrameIndex> {
    poll_fn(|context| {
        current(|worker| match worker.take_frame() {
            Some(frame) => {
                worker.shared().pool.frames.set_state(frame, state::SCRATCH);
                Poll::Ready(Ok(frame))
            }
            None => worker.keep_waker(context.waker(), worker.wait_for_frame().map(Err)),
        })
        .unwrap_or_else(|| Poll::Ready(Err(Error::new(ErrorKind::Invalid, "not on a worker"))))
    })
    .await
}

/// A free frame for a transfer if one is at hand: who has transfers under way must not wait for memory that
/// only they, and others like them, may free.
pub(crate) fn scratch_frame_now() -> Option<FrameIndex> {
    current(|worker| {
        let frame = worker.take_frame()?;
        worker.shared().pool.frames.set_state(frame, state::SCRATCH);
        Some(frame)
    })
    .flatten()
}

/// The first frame of a group of transfers is waited for; for more, only what is at hand.
async fn next_frame(first: bool) -> Result<Option<FrameIndex>> {
    if first { scratch_frame().await.map(Some) } else { Ok(scratch_frame_now()) }
}

/// Frees a frame that [`scratch_frame`] gave.
pub(crate) fn give_scratch(frame: FrameIndex) {
    current(|worker| {
        worker.shared().pool.frames.set_state(frame, state::FREE);
        worker.give_frame(frame);
    });
}

/// A request of a task's own, awaited.
pub(crate) struct Transfer {
    ticket: Option<usize>,
    /// Pages that must not be used again before the request is done.
    pages: Option<Rc<ReservedRun>>,
}

impl Transfer {
    /// [`Transfer::submit`] of a write to pages that are not free again before it is done.
    pub(crate) fn submit_to(pages: Rc<ReservedRun>, request: Request) -> Self {
        let mut transfer = Self::submit(request);
        transfer.pages = Some(pages);
        transfer
    }

    /// Submits a request; nothing on a thread that is no worker.
    pub(crate) fn submit(request: Request) -> Self {
        Self { ticket: current(|worker| worker.submit_own(request)), pages: None }
    }

    /// Waits for its completion.
    pub(crate) async fn done(mut self) -> Result<Completion> {
        let Some(ticket) = self.ticket else {
            return Err(Error::new(ErrorKind::Invalid, "not on a worker"));
        };
        let completion = poll_fn(|context| {
            current(|worker| worker.keep_waker(context.waker(), worker.poll_own(ticket)))
                .unwrap_or(Poll::Pending)
        })
        .await;
        self.ticket = None;
        Ok(completion)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let pages = self.pages.take();
            current(|worker| worker.abandon_own(ticket, pages));
        }
    }
}

/// A run of pages that goes back to the free ones unless it is kept.
#[derive(Debug)]
pub(crate) struct ReservedRun {
    page_id: u64,
    pages: Cell<u64>,
    kept: Cell<bool>,
}

impl ReservedRun {
    /// Owns pages that were reserved on this worker's store.
    pub(crate) fn of(page_id: u64, pages: u64) -> Self {
        Self { page_id, pages: Cell::new(pages), kept: Cell::new(false) }
    }

    pub(crate) fn page_id(&self) -> u64 {
        self.page_id
    }

    /// Gives the pages behind the first `pages` back.
    pub(crate) fn shrink(&self, shared: &Shared, pages: u64) {
        let unused = self.pages.replace(pages) - pages;
        shared.space.free(self.page_id + pages, unused);
    }

    /// Something in the trees refers to the pages now.
    pub(crate) fn keep(&self, shared: &Shared) {
        shared.space.attach(self.page_id, self.pages.get());
        self.kept.set(true);
    }

    /// The pages are somebody else's to give back; nothing in the trees refers to them yet.
    pub(crate) fn keep_detached(&self) {
        self.kept.set(true);
    }
}

impl Drop for ReservedRun {
    fn drop(&mut self) {
        current(|worker| {
            let space = &worker.shared().space;
            if !self.kept.get() {
                space.free(self.page_id, self.pages.get());
            }
            space.leave();
        });
    }
}

/// Pages in a row. Where none are, and as many apart, what is between them moves.
async fn reserve_row(shared: &Shared, pages: u64) -> Result<u64> {
    let mut tries = 0;
    loop {
        match Relief::tried(shared, async || shared.space.reserve_detached(pages)).await {
            // Others may have been faster.
            Err(error) if error.kind() == ErrorKind::NoSpace && tries < ROW_TRIES => {
                tries += 1;
                if !make_row(shared, pages).await? {
                    return Err(error);
                }
            }
            outcome => return outcome,
        }
    }
}

/// Writes a value to fresh pages; they are free again unless the reservation is kept.
pub(crate) async fn write(shared: &Shared, value: &[u8]) -> Result<(Descriptor, Rc<ReservedRun>)> {
    // On another store's worker the pages would go to that one's device.
    check_here(shared)?;
    let pages = pages_of(value.len(), shared.page_size) as u64;
    let page_id = reserve_row(shared, pages).await?;
    let descriptor = Descriptor {
        page_id,
        stamp: fastrand::u64(..),
        len: value.len() as u32,
        pages: pages as u32,
    };
    // Whatever happens: the pages are free again only once nothing is on its way to them.
    let reserved = Rc::new(ReservedRun::of(page_id, pages));
    write_parts(shared, descriptor, &reserved, value).await?;
    Ok((descriptor, reserved))
}

async fn write_parts(
    shared: &Shared,
    descriptor: Descriptor,
    reserved: &Rc<ReservedRun>,
    value: &[u8],
) -> Result<()> {
    let frames = &shared.pool.frames;
    let mut failed = Ok(());
    let mut parts = value.chunks(part_bytes(shared.page_size)).enumerate().peekable();
    if value.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "an empty value needs no pages"));
    }
    while parts.peek().is_some() {
        let mut transfers = Vec::with_capacity(WINDOW);
        while transfers.len() < WINDOW && parts.peek().is_some() {
            let Some(frame) = next_frame(transfers.is_empty()).await? else { break };
            let Some((index, part)) = parts.next() else { break };
            let page_id = descriptor.page_id + index as u64;
            let mut page = latch_free(shared, frame);
            frames.set_page_id(frame, page_id);
            let mut bytes = page.bytes_mut();
            bytes.zero(0, HEADER_BYTES);
            bytes.store_u8(field::KIND, PageKind::Overflow as u8);
            bytes.store_u64(field::PAGE_ID, page_id);
            bytes.store_u64(field::STAMP, descriptor.stamp);
            bytes.store_u32(field::PART, index as u32);
            bytes.store_u32(field::PART_BYTES, part.len() as u32);
            bytes.copy_from(HEADER_BYTES, part);
            bytes.zero(HEADER_BYTES + part.len(), shared.page_size - HEADER_BYTES - part.len());
            let request = shared.pool.write_back(page, 0);
            transfers.push(Transfer::submit_to(reserved.clone(), request));
        }
        for transfer in transfers {
            let completion = transfer.done().await?;
            if let Err(error) = completion.result {
                let error = Error::io(error, "writing a large value");
                shared.fail(error.clone());
                failed = Err(error);
            }
            if let Some(buffer) = completion.buffer {
                give_scratch(shared.pool.end_write(buffer));
            }
        }
        if failed.is_err() {
            break;
        }
    }
    failed
}

/// Appends a value to `output`; `false` if its pages are another value's by now.
pub(crate) async fn read(
    shared: &Shared,
    descriptor: Descriptor,
    output: &mut Vec<u8>,
) -> Result<bool> {
    check_here(shared)?;
    if descriptor.page_id.saturating_add(descriptor.pages.into()) > shared.space.capacity() {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("a large value at page {} past the store's end", descriptor.page_id),
        ));
    }
    let frames = &shared.pool.frames;
    let mut next = 0;
    while next < descriptor.pages {
        let mut transfers = Vec::with_capacity(WINDOW);
        while transfers.len() < WINDOW && next < descriptor.pages {
            let Some(frame) = next_frame(transfers.is_empty()).await? else { break };
            let page = latch_free(shared, frame);
            let page_id = descriptor.page_id + u64::from(next);
            frames.set_page_id(frame, page_id);
            let buffer = page.begin_read();
            let request =
                Request::read(shared.offset_bytes(page_id), buffer.len() as u32, buffer, 0);
            transfers.push((next, Transfer::submit(request)));
            next += 1;
        }
        let mut outcome = Ok(true);
        for (part, transfer) in transfers {
            let completion = transfer.done().await?;
            let Some(buffer) = completion.buffer else { continue };
            let page = frames.end_read(buffer);
            let frame = page.index();
            let page_id = descriptor.page_id + u64::from(part);
            if let Err(error) = completion.result {
                outcome = Err(Error::io(error, format!("reading page {page_id}")));
            } else if matches!(outcome, Ok(true)) {
                outcome = take_part(&page, descriptor, part, page_id, output);
            }
            shared.pool.end_read(page);
            give_scratch(frame);
        }
        if !outcome? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn take_part(
    page: &qpair_memory::ExclusiveFrame<'_>,
    descriptor: Descriptor,
    part: u32,
    page_id: u64,
    output: &mut Vec<u8>,
) -> Result<bool> {
    let bytes = page.bytes();
    if let Some(error) = verify(page.as_slice(), page_id) {
        return Err(error);
    }
    let expected = part_len(descriptor, part, bytes.len());
    if bytes.load_u8(field::KIND) != PageKind::Overflow as u8
        || bytes.load_u64(field::STAMP) != descriptor.stamp
        || bytes.load_u32(field::PART) != part
        || bytes.load_u32(field::PART_BYTES) as usize != expected
    {
        return Ok(false);
    }
    bytes.append_to(HEADER_BYTES, expected, output);
    Ok(true)
}
