//! Values too large for a leaf, which have pages of their own: see docs/design/page-format.md.
//!
//! Overflow pages bypass the pool's replacement: free frames serve as memory for the transfer and
//! are free again afterwards. Every page carries the value's timestamp. A reader whose value was
//! replaced, and whose pages were reused, notices by the timestamp and looks the key up again.

use std::rc::Rc;

use qpair_format::large::{Descriptor, pages_of, part_bytes, part_len};
use qpair_format::page::{
    HEADER_BYTES, KEY_LEN_MAX, PageKind, VALUE_LEN_MAX, field, inline_len_max,
};
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::FrameIndex;

use crate::checkpoint::SpaceRetry;
use crate::pool::Tree;
use crate::shared::Shared;
use crate::task::{
    Reserved, Transfer, check_here, extents_of, give_scratch, latch_free, scratch_frame,
    scratch_frame_now, verify,
};

/// Pages of one value in flight at once.
const WINDOW: usize = 16;

/// Checks the lengths of a key and a value of a tree.
///
/// # Errors
/// `KeyTooLong`, `ValueTooLong`.
pub(crate) fn check_sizes(shared: &Shared, tree: Tree, key: &[u8], value: &[u8]) -> Result<()> {
    if key.len() > shared.whole_key_len_max {
        check_long_key(shared, tree, key)?;
    }
    if value.len() > VALUE_LEN_MAX {
        return Err(Error::new(
            ErrorKind::ValueTooLong,
            format!("a value has {} bytes; the limit is {VALUE_LEN_MAX}", value.len()),
        ));
    }
    Ok(())
}

/// Checks the length of a key that is not whole in a page.
#[cold]
#[inline(never)]
fn check_long_key(shared: &Shared, tree: Tree, key: &[u8]) -> Result<()> {
    if tree.codec.expires() {
        shared.check_expiring_key(key)?;
    }
    // The key of a group is one byte longer than a whole key.
    let longest = if tree.has_groups() { shared.whole_key_len_max + 1 } else { KEY_LEN_MAX };
    if key.len() <= longest {
        return Ok(());
    }
    let what = format!("a key has {} bytes; the limit is {longest}", key.len());
    Err(Error::new(ErrorKind::KeyTooLong, what))
}

pub(crate) fn needs_overflow(shared: &Shared, key: &[u8], value: &[u8]) -> bool {
    // A value shorter than a descriptor gains nothing by moving out.
    value.len() > Descriptor::BYTES && key.len() + value.len() > inline_len_max(shared.page_bytes)
}

/// Returns a frame for a transfer. Waits for the first frame of a group; for more, returns `None`
/// if no frame is free now.
async fn next_frame(first: bool) -> Result<Option<FrameIndex>> {
    if first { scratch_frame().await.map(Some) } else { Ok(scratch_frame_now()) }
}

/// Writes a value to new pages. The pages are free again unless the reservation is kept.
pub(crate) async fn write(shared: &Shared, value: &[u8]) -> Result<(Descriptor, Rc<Reserved>)> {
    // On another store's worker the pages would go to that one's device.
    check_here(shared)?;
    if value.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, "an empty value needs no pages"));
    }
    let pages = pages_of(value.len(), shared.page_bytes) as u64;
    let extents = SpaceRetry::tried(shared, async || shared.space.reserve_value(pages)).await?;
    let descriptor = Descriptor {
        page_id: extents.first_page(),
        listed: extents.is_listed(),
        timestamp: fastrand::u64(..),
        len: value.len() as u32,
        pages: pages as u32,
    };
    // The pages become free only once no transfer to them is under way, whatever happens here.
    let reserved = Rc::new(Reserved::of(extents.clone()));
    let parts = extents.pages().zip(value.chunks(part_bytes(shared.page_bytes)));
    write_parts(shared, (PageKind::Overflow, descriptor.timestamp), &reserved, parts).await?;
    if extents.is_listed() {
        let lists = extents.encode_lists(shared.page_bytes);
        let parts = extents.lists().iter().copied().zip(lists.iter().map(Vec::as_slice));
        Box::pin(write_parts(shared, (PageKind::Extents, descriptor.timestamp), &reserved, parts))
            .await?;
    }
    Ok((descriptor, reserved))
}

async fn write_parts<'a>(
    shared: &Shared,
    (kind, timestamp): (PageKind, u64),
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
            bytes.store_u64(field::TIMESTAMP, timestamp);
            bytes.store_u32(field::PART, index as u32);
            bytes.store_u32(field::PART_BYTES, part.len() as u32);
            bytes.copy_from(HEADER_BYTES, part);
            bytes.zero(HEADER_BYTES + part.len(), shared.page_bytes - HEADER_BYTES - part.len());
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

/// Appends a value to `output`; returns `false` if its pages belong to another value by now.
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
            transfers.push((part, page_id, Transfer::read(shared, frame, page_id)));
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
        || bytes.load_u64(field::TIMESTAMP) != descriptor.timestamp
        || bytes.load_u32(field::PART) != part
        || bytes.load_u32(field::PART_BYTES) as usize != expected
    {
        return Ok(false);
    }
    bytes.append_to(HEADER_BYTES, expected, output);
    Ok(true)
}
