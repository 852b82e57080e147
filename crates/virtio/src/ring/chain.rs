//! Follows a chain from its head to the memory that it names, as a device does. Each descriptor is
//! read once, and a walk always ends.

use super::{Area, Broken, DESCRIPTOR_BYTES, Descriptor, INDIRECT, Layout, NEXT, WRITE};

/// The maximum number of segments of a chain: those of the largest tables that drivers make.
const SEGMENTS_MAX: usize = 1024;

/// The number of entries of a table that is read without an allocation.
const FEW: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub address: u64,
    pub len: u32,
    /// Whether the device writes the segment; otherwise it reads it.
    pub is_written: bool,
}

/// Appends the segments of the chain that begins with `head` to `segments`: first those to be read,
/// then those to be written.
///
/// `read` copies from an address that the driver named, and returns false if the address is not
/// open.
///
/// # Errors
/// The chain is invalid.
#[inline]
pub fn walk(
    layout: Layout,
    descriptors: Area<'_>,
    head: u16,
    mut read: impl FnMut(u64, &mut [u8]) -> bool,
    segments: &mut Vec<Segment>,
) -> Result<(), Broken> {
    let mut index = head;
    for _ in 0..layout.size {
        if index >= layout.size {
            return Err(Broken);
        }
        let descriptor = Descriptor::load(descriptors, index);
        if descriptor.flags & INDIRECT != 0 {
            // The table ends the chain.
            if descriptor.flags & NEXT != 0 {
                return Err(Broken);
            }
            return walk_table(descriptor, &mut read, segments);
        }
        push(descriptor, segments)?;
        if descriptor.flags & NEXT == 0 {
            return Ok(());
        }
        index = descriptor.next;
    }
    Err(Broken)
}

fn walk_table(
    table: Descriptor,
    read: &mut impl FnMut(u64, &mut [u8]) -> bool,
    segments: &mut Vec<Segment>,
) -> Result<(), Broken> {
    let bytes = table.len as usize;
    if bytes == 0
        || !bytes.is_multiple_of(DESCRIPTOR_BYTES)
        || bytes > SEGMENTS_MAX * DESCRIPTOR_BYTES
    {
        return Err(Broken);
    }
    // Each descriptor is read once, because the driver may change it meanwhile. Most tables have
    // few entries.
    let (mut few, mut many);
    let copy = if bytes <= FEW * DESCRIPTOR_BYTES {
        few = [0; FEW * DESCRIPTOR_BYTES];
        &mut few[..bytes]
    } else {
        many = vec![0; bytes];
        &mut many[..]
    };
    if !read(table.address, copy) {
        return Err(Broken);
    }
    let (entries, _) = copy.as_chunks::<DESCRIPTOR_BYTES>();
    let mut index = 0usize;
    for _ in 0..entries.len() {
        let descriptor = Descriptor::decode(entries.get(index).ok_or(Broken)?);
        if descriptor.flags & INDIRECT != 0 {
            return Err(Broken);
        }
        push(descriptor, segments)?;
        if descriptor.flags & NEXT == 0 {
            return Ok(());
        }
        index = descriptor.next.into();
    }
    Err(Broken)
}

#[inline]
fn push(descriptor: Descriptor, segments: &mut Vec<Segment>) -> Result<(), Broken> {
    let Descriptor { address, len, flags, .. } = descriptor;
    let is_written = flags & WRITE != 0;
    let is_late = !is_written && segments.last().is_some_and(|last| last.is_written);
    let is_outside = address.checked_add(len.into()).is_none();
    if is_late || is_outside || segments.len() >= SEGMENTS_MAX {
        return Err(Broken);
    }
    segments.push(Segment { address, len, is_written });
    Ok(())
}
