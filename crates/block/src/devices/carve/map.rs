//! The encoding of the slice map, and the rules for its slices.
//!
//! Invariant: slices are sorted by their start, do not overlap, begin behind the slots of the map,
//! and have unique names.

use std::ops::Range;

use crate::seam::error::{Error, ErrorKind, Result};

/// The lowest offset at which a slice can begin, in bytes. The space before it belongs to the map.
pub const CARVED_FROM_BYTES: u64 = 1 << 20;
/// The maximum number of slices of a device.
pub const SLICES_MAX: usize = (SLOT_BYTES - HEADER_BYTES) / ENTRY_BYTES;

/// The offsets of the two slots, in bytes.
pub(super) const SLOT_OFFSETS: [u64; 2] = [0, 512 << 10];
/// The maximum size of a slot, in bytes.
pub(super) const SLOT_BYTES: usize = 64 << 10;

const MAGIC: [u8; 8] = *b"qpcarve\x1a";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 96;
const NAME_BYTES_MAX: usize = 64;
/// The preferred alignment of slices that are created without a requested offset.
const PLACE_BYTES: u64 = 1 << 20;

/// A part of a device, with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The name, unique on the device.
    pub name: String,
    /// The offset of the first byte on the device.
    pub start_bytes: u64,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The id, chosen when the slice is created. A later slice of the same name gets another id.
    pub id: [u8; 16],
}

/// Whether `name` is a valid slice name.
pub(crate) fn is_slice_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

impl Slice {
    fn range(&self) -> Range<u64> {
        self.start_bytes..self.start_bytes + self.size_bytes
    }

    /// Returns the id in the usual notation of UUIDs.
    #[must_use]
    pub fn uuid(&self) -> String {
        let hex: String = self.id.iter().map(|byte| format!("{byte:02x}")).collect();
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}

/// The content of one slot of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarveSlot {
    /// The slot is all zeroes.
    Blank,
    /// The slot has other content than a map.
    Foreign,
    /// The slot has a map that was not written completely, or that has changed since, and the
    /// reason why it cannot be used.
    Damaged(&'static str),
    /// The slot has a complete map.
    Whole(CarveMap),
}

/// The slices of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarveMap {
    /// The number of changes so far. Of two maps, the one with the higher number counts.
    pub generation: u64,
    /// The slices, in the order of their starts.
    pub slices: Vec<Slice>,
}

impl CarveMap {
    /// Encodes the map for a slot, without padding.
    pub(super) fn encode(&self) -> Vec<u8> {
        let len = HEADER_BYTES + self.slices.len() * ENTRY_BYTES;
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes()); // checksum
        bytes.extend_from_slice(&(len as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.slices.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        for slice in &self.slices {
            let end = bytes.len() + ENTRY_BYTES;
            bytes.extend_from_slice(&slice.start_bytes.to_le_bytes());
            bytes.extend_from_slice(&slice.size_bytes.to_le_bytes());
            bytes.extend_from_slice(&slice.id);
            bytes.extend_from_slice(slice.name.as_bytes());
            bytes.resize(end, 0);
        }
        let sum = crc_fast::crc32_iscsi(&bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the bytes of a slot.
    pub(super) fn decode(slot: &[u8]) -> CarveSlot {
        let half = |at: usize| u32::from_le_bytes(slot[at..at + 4].try_into().unwrap_or_default());
        if !slot.starts_with(&MAGIC) || slot.len() < HEADER_BYTES {
            let is_blank = slot.iter().all(|byte| *byte == 0);
            return if is_blank { CarveSlot::Blank } else { CarveSlot::Foreign };
        }
        let (len, count) = (half(16) as usize, half(20) as usize);
        if len > slot.len() || count > SLICES_MAX || len != HEADER_BYTES + count * ENTRY_BYTES {
            return CarveSlot::Damaged("its lengths make no sense");
        }
        if half(12) != crc_fast::crc32_iscsi(&slot[16..len]) {
            return CarveSlot::Damaged(
                "its checksum is wrong: it was not written whole, or has changed since",
            );
        }
        if half(8) != VERSION {
            return CarveSlot::Damaged("a later version of qpair has written it");
        }
        let generation = u64::from_le_bytes(slot[24..32].try_into().unwrap_or_default());
        let mut map = Self { generation, slices: Vec::with_capacity(count) };
        for entry in slot[HEADER_BYTES..len].chunks_exact(ENTRY_BYTES) {
            let Some(slice) = slice_of(entry) else {
                return CarveSlot::Damaged("a slice in it is invalid");
            };
            if map.check(&slice).is_err() {
                return CarveSlot::Damaged("slices in it overlap, or share a name");
            }
            map.slices.push(slice);
        }
        CarveSlot::Whole(map)
    }

    /// Finds a slice by its name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Slice> {
        self.slices.iter().find(|slice| slice.name == name)
    }

    /// Returns the ranges that no slice uses, up to the end of a device of `device_bytes`.
    #[must_use]
    pub fn free(&self, device_bytes: u64) -> Vec<Range<u64>> {
        let mut free = Vec::new();
        let mut at = CARVED_FROM_BYTES;
        let end = Range { start: device_bytes, end: device_bytes };
        for range in self.slices.iter().map(Slice::range).chain([end]) {
            if at < range.start {
                free.push(at..range.start);
            }
            at = at.max(range.end);
        }
        free
    }

    /// Finds a free range of `size_bytes` and returns its start, which is a multiple of 1 MiB if
    /// possible.
    pub(super) fn place(&self, size_bytes: u64, device_bytes: u64) -> Option<u64> {
        let free = self.free(device_bytes);
        let fits = |start: u64, end: u64| start <= end && end - start >= size_bytes;
        let aligned = free.iter().map(|gap| (gap.start.next_multiple_of(PLACE_BYTES), gap.end));
        let anywhere = free.iter().map(|gap| (gap.start, gap.end));
        aligned.chain(anywhere).find(|(start, end)| fits(*start, *end)).map(|(start, _)| start)
    }

    /// Adds a slice.
    pub(super) fn add(&mut self, slice: Slice) -> Result<()> {
        self.check(&slice)?;
        if self.slices.len() == SLICES_MAX {
            let context = format!("a device has at most {SLICES_MAX} slices");
            return Err(Error::new(ErrorKind::Limit, context).hint("delete one first"));
        }
        let at = self.slices.partition_point(|other| other.start_bytes < slice.start_bytes);
        self.slices.insert(at, slice);
        Ok(())
    }

    /// Checks that a slice can be added: its name, its range, and that it does not overlap another
    /// slice.
    fn check(&self, slice: &Slice) -> Result<()> {
        let Slice { name, start_bytes, size_bytes, .. } = slice;
        let wrong = |what: String| {
            Error::new(ErrorKind::Invalid, format!("slice {name} is not possible: {what}"))
        };
        if !is_slice_name(name) {
            return Err(wrong("its name is not valid".to_owned()).hint(format!(
                "names are up to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"
            )));
        }
        if self.find(name).is_some() {
            let context = format!("a slice is called {name} already");
            return Err(Error::new(ErrorKind::Exists, context).hint("choose another name"));
        }
        if *size_bytes == 0 || start_bytes.checked_add(*size_bytes).is_none() {
            return Err(wrong(format!(
                "it cannot have {size_bytes} bytes from byte {start_bytes} on"
            )));
        }
        if *start_bytes < CARVED_FROM_BYTES {
            return Err(wrong(format!("it begins at {start_bytes}, where the map is"))
                .hint(format!("slices begin at {CARVED_FROM_BYTES} or later")));
        }
        let range = slice.range();
        let in_its_way =
            |other: &&Slice| other.start_bytes < range.end && range.start < other.range().end;
        if let Some(other) = self.slices.iter().find(in_its_way) {
            let Range { start, end } = other.range();
            return Err(wrong(format!("it overlaps {}, bytes {start} to {end}", other.name)));
        }
        Ok(())
    }
}

fn slice_of(entry: &[u8]) -> Option<Slice> {
    let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap_or_default());
    let name = &entry[ENTRY_BYTES - NAME_BYTES_MAX..];
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(Slice {
        name: std::str::from_utf8(&name[..len]).ok()?.to_owned(),
        start_bytes: word(0),
        size_bytes: word(8),
        id: entry[16..32].try_into().ok()?,
    })
}
