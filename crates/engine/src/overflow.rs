//! Values too large for a leaf: pages of their own, see docs/design/page-format.md.
//!
//! They are read and written past the pool's replacement: free frames serve as memory for the transfer and are
//! free again afterwards. Every page carries the value's stamp, so that a reader whose value was replaced and
//! whose pages were used again notices, and looks the key up once more.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

use qpair_block::{Completion, Request};
use qpair_memory::FrameIndex;

use crate::checkpoint::Relief;
use crate::error::{Error, ErrorKind, Result};
use crate::extents::{Extents, extents_of};
use crate::page::{HEADER_BYTES, PageKind, field};
use crate::pool::state;
use crate::shared::Shared;
use crate::task::{check_here, current, latch_free, verify};

/// Bit of a descriptor's first page: it is that of a list.
const LISTED: u64 = 1 << 63;
/// Pages of one value in flight at once.
const WINDOW: usize = 16;

/// Where a large value is; kept in the leaf in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// First of the run of pages, or of the list that names several.
    pub(crate) page_id: u64,
    pub(crate) listed: bool,
    /// In every page of the value, and no other value's.
    pub(crate) stamp: u64,
    /// Length of the value, bytes.
    pub(crate) len: u32,
    /// Pages with parts of the value.
    pub(crate) pages: u32,
}

impl Descriptor {
    /// Bytes of an encoded descriptor.
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let first = self.page_id | if self.listed { LISTED } else { 0 };
        bytes[..8].copy_from_slice(&first.to_le_bytes());
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
            let (first, stamp) = (word(0)?, word(8)?);
            let (page_id, listed) = (first & !LISTED, first & LISTED != 0);
            Some(Self { page_id, listed, stamp, len: half(16)?, pages: half(20)? })
        })();
        descriptor
            .filter(|d| {
                bytes.len() == Self::BYTES
                    && d.pages as usize == pages_of(d.len as usize, page_size)
            })
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "an overflow descriptor makes no sense"))
    }

    /// The first page that an encoded one names.
    pub(crate) fn first_page(encoded: &[u8]) -> Option<u64> {
        encoded.first_chunk().map(|first| u64::from_le_bytes(*first) & !LISTED)
    }

    /// Its pages, if they are one run.
    pub(crate) fn run(self) -> Option<Range<u64>> {
        let end = self.page_id.saturating_add(self.pages.into());
        (!self.listed).then_some(self.page_id..end)
    }

    /// What no other value has.
    pub(crate) fn key(self) -> (u64, u64) {
        (self.page_id, self.stamp)
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
    pages: Option<Rc<Reserved>>,
}

impl Transfer {
    /// [`Transfer::submit`] of a write to pages that are not free again before it is done.
    pub(crate) fn submit_to(pages: Rc<Reserved>, request: Request) -> Self {
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

/// Pages that go back to the free ones unless they are kept.
#[derive(Debug)]
pub(crate) struct Reserved {
    extents: RefCell<Extents>,
    kept: Cell<bool>,
}

impl Reserved {
    /// Owns pages that were reserved on this worker's store.
    pub(crate) fn of(extents: Extents) -> Self {
        Self { extents: RefCell::new(extents), kept: Cell::new(false) }
    }

    pub(crate) fn extents(&self) -> Extents {
        self.extents.borrow().clone()
    }

    /// The first page of a run.
    pub(crate) fn page_id(&self) -> u64 {
        self.extents.borrow().first_page()
    }

    /// Gives the pages of a run behind the first `pages` back.
    pub(crate) fn shrink(&self, shared: &Shared, pages: u64) {
        if let Extents::Run(run) = &mut *self.extents.borrow_mut() {
            let end = run.start + pages;
            shared.space.free(end, run.end - end);
            run.end = end;
        }
    }

    /// Something in the trees refers to the pages now.
    pub(crate) fn keep(&self, shared: &Shared) {
        shared.attach_extents(&self.extents.borrow());
        self.kept.set(true);
    }

    /// The pages are somebody else's to give back; nothing in the trees refers to them yet.
    pub(crate) fn keep_detached(&self) {
        self.kept.set(true);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        current(|worker| {
            let shared = worker.shared();
            if !self.kept.get() {
                shared.free_extents(&self.extents.borrow());
            }
            shared.space.leave();
        });
    }
}

/// Writes a value to fresh pages; they are free again unless the reservation is kept.
pub(crate) async fn write(shared: &Shared, value: &[u8]) -> Result<(Descriptor, Rc<Reserved>)> {
    // On another store's worker the pages would go to that one's device.
    check_here(shared)?;
    if value.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "an empty value needs no pages"));
    }
    let pages = pages_of(value.len(), shared.page_size) as u64;
    let extents = Relief::tried(shared, async || shared.space.reserve_value(pages)).await?;
    let descriptor = Descriptor {
        page_id: extents.first_page(),
        listed: extents.is_listed(),
        stamp: fastrand::u64(..),
        len: value.len() as u32,
        pages: pages as u32,
    };
    // Whatever happens: the pages are free again only once nothing is on its way to them.
    let reserved = Rc::new(Reserved::of(extents.clone()));
    let parts = extents.pages().zip(value.chunks(part_bytes(shared.page_size)));
    write_parts(shared, (PageKind::Overflow, descriptor.stamp), &reserved, parts).await?;
    if extents.is_listed() {
        let lists = extents.encode_lists(shared.page_size);
        let parts = extents.lists().iter().copied().zip(lists.iter().map(Vec::as_slice));
        Box::pin(write_parts(shared, (PageKind::Extents, descriptor.stamp), &reserved, parts))
            .await?;
    }
    Ok((descriptor, reserved))
}

/// Writes parts to their pages.
async fn write_parts<'a>(
    shared: &Shared,
    (kind, stamp): (PageKind, u64),
    reserved: &Rc<Reserved>,
    parts: impl Iterator<Item = (u64, &'a [u8])>,
) -> Result<()> {
    let frames = &shared.pool.frames;
    let mut failed = Ok(());
    let mut parts = parts.enumerate().peekable();
    while parts.peek().is_some() {
        let mut transfers = Vec::with_capacity(WINDOW);
        while transfers.len() < WINDOW && parts.peek().is_some() {
            let Some(frame) = next_frame(transfers.is_empty()).await? else { break };
            let Some((index, (page_id, part))) = parts.next() else { break };
            let mut page = latch_free(shared, frame);
            frames.set_page_id(frame, page_id);
            let mut bytes = page.bytes_mut();
            bytes.zero(0, HEADER_BYTES);
            bytes.store_u8(field::KIND, kind as u8);
            bytes.store_u64(field::PAGE_ID, page_id);
            bytes.store_u64(field::STAMP, stamp);
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
    let Some(extents) = extents_of(shared, descriptor).await? else { return Ok(false) };
    let frames = &shared.pool.frames;
    let mut parts = (0..).zip(extents.pages()).peekable();
    while parts.peek().is_some() {
        let mut transfers = Vec::with_capacity(WINDOW);
        while transfers.len() < WINDOW && parts.peek().is_some() {
            let Some(frame) = next_frame(transfers.is_empty()).await? else { break };
            let Some((part, page_id)) = parts.next() else { break };
            let page = latch_free(shared, frame);
            frames.set_page_id(frame, page_id);
            let buffer = page.begin_read();
            let request =
                Request::read(shared.offset_bytes(page_id), buffer.len() as u32, buffer, 0);
            transfers.push((part, page_id, Transfer::submit(request)));
        }
        let mut outcome = Ok(true);
        for (part, page_id, transfer) in transfers {
            let completion = transfer.done().await?;
            let Some(buffer) = completion.buffer else { continue };
            let page = frames.end_read(buffer);
            let frame = page.index();
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
