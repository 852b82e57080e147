//! The superblock at the start of a log device, which names the store. See
//! docs/design/page-format.md.
//!
//! There are two slots, written in turn by generation, so that a torn write leaves the other slot
//! intact.

use qpair_block::BlockDevice;
use qpair_format::log::LogPosition;
use qpair_format::{Error, ErrorKind, Result};

use crate::superblocks::transfer;
use qpair_format::superblock::{
    SLOT_BYTES, SLOT_OFFSETS, SUPERBLOCK_BYTES, Superblock, check_features, is_sealed, sealed,
};

/// The magic number of a log device's superblock.
pub(crate) const LOG_SUPERBLOCK_MAGIC: [u8; 8] = *b"qplog\r\n\x1a";
/// Version of the format of log devices that this software writes.
const VERSION: u32 = 1;
/// Feature: the store is being created.
const UNFINISHED: u64 = 1 << 0;
/// The features that a reader must know, and their names for people.
const FEATURES: [(u64, &str); 1] = [(UNFINISHED, "unfinished")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSuperblock {
    /// The store whose logs are on the device.
    pub store_id: [u8; 16],
    /// The log device's own identity.
    pub id: [u8; 16],
    /// The generation of the store's superblocks when an incarnation began to write to this device.
    pub generation: u64,
    /// The time of creation, in seconds since 1970.
    pub created_s: u64,
    /// Whether the store is still being created. Then no acknowledged log is on the device, and
    /// another store may be created with it.
    pub unfinished: bool,
}

/// The content of a device at the offset of a log device's superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Superblock(LogSuperblock),
    /// The bytes there are all zeroes.
    Blank,
    /// The device is a member of a store.
    Member,
    /// Both slots of the superblock are damaged.
    Damaged,
    Something,
}

impl LogSuperblock {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(&LOG_SUPERBLOCK_MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes()); // checksum
        let features = if self.unfinished { UNFINISHED } else { 0 };
        bytes.extend_from_slice(&features.to_le_bytes()); // incompatible features
        bytes.extend_from_slice(&0u64.to_le_bytes()); // compatible features
        bytes.extend_from_slice(&self.store_id);
        bytes.extend_from_slice(&self.id);
        for word in [self.generation, self.created_s] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        sealed(bytes)
    }

    /// Decodes one slot. Returns `Ok(None)` if the bytes are not a superblock, or a torn one.
    fn decode(bytes: &[u8], name: &str) -> Result<Option<Self>> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        if !is_sealed(bytes, &LOG_SUPERBLOCK_MAGIC) {
            return Ok(None);
        }
        let version = half(8);
        if version != VERSION {
            return Err(Error::with_hint(
                ErrorKind::Version,
                format!(
                    "{name} is a log device of format version {version}; this software knows version {VERSION}"
                ),
                "use a newer version of qpair",
            ));
        }
        check_features(word(16), &FEATURES, &format!("{name} is a log device"))?;
        let mut superblock = Self {
            store_id: [0; 16],
            id: [0; 16],
            generation: word(64),
            created_s: word(72),
            unfinished: word(16) & UNFINISHED != 0,
        };
        superblock.store_id.copy_from_slice(&bytes[32..48]);
        superblock.id.copy_from_slice(&bytes[48..64]);
        Ok(Some(superblock))
    }

    /// Reads a device and returns its content at the offset of a log device's superblock.
    ///
    /// # Errors
    /// `Version`, or the device's error if it cannot be read.
    pub fn find(device: &dyn BlockDevice) -> Result<Found> {
        let name = &device.info().name;
        let len_bytes = device.size_bytes().min(SUPERBLOCK_BYTES);
        let places = || (0..len_bytes / SLOT_BYTES as u64).map(|part| part * SLOT_BYTES as u64);
        let all = transfer(device, places().map(|place| (place, None)).collect());
        let (parts, unread) = match all {
            Ok(parts) => (parts, None),
            // One of the two slots is enough.
            Err(error) => {
                let one = |place| transfer(device, vec![(place, None)]).unwrap_or_default();
                let part = |place| one(place).pop().unwrap_or_else(|| vec![0; SLOT_BYTES]);
                (places().map(part).collect(), Some(error))
            }
        };
        let slots = SLOT_OFFSETS.map(|offset| parts.get(offset as usize / SLOT_BYTES));
        let mut newest: Option<Self> = None;
        for slot in slots.into_iter().flatten() {
            if let Some(superblock) = Self::decode(slot, name)?
                && newest.is_none_or(|newest| newest.generation < superblock.generation)
            {
                newest = Some(superblock);
            }
        }
        if let Some(superblock) = newest {
            return Ok(Found::Superblock(superblock));
        }
        if let Some(error) = unread {
            return Err(error);
        }
        let begins = |magic: &[u8]| slots.into_iter().flatten().any(|slot| slot.starts_with(magic));
        Ok(if parts.iter().flatten().all(|byte| *byte == 0) {
            Found::Blank
        } else if begins(&LOG_SUPERBLOCK_MAGIC) {
            Found::Damaged
        } else if begins(&Superblock::MAGIC) {
            Found::Member
        } else {
            Found::Something
        })
    }

    /// Whether all of these logs belong to incarnations that began when this device was attached.
    pub fn is_as_new_as(&self, logs: &[Vec<u8>]) -> bool {
        let mut incarnations = logs.iter().filter_map(|log| LogPosition::decode(log).ok());
        incarnations.all(|position| position.incarnation <= self.generation)
    }

    /// Writes the superblock to the slot of its generation, durably.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        let offset = SLOT_OFFSETS[(self.generation % 2) as usize];
        transfer(device, vec![(offset, Some(&self.encode()))]).map(|_| ())
    }

    /// Writes the superblock to both slots, so that no older one remains.
    pub fn write_new(&self, device: &dyn BlockDevice) -> Result<()> {
        for generation in [self.generation.saturating_sub(1), self.generation.max(1)] {
            Self { generation, ..*self }.write(device)?;
        }
        Ok(())
    }
}

/// Whether this log device is left over from an unfinished creation of a store: its superblock says
/// so, or `making`, the superblock of an unfinished store, names it. Older software did not mark
/// log devices as unfinished.
///
/// # Errors
/// `Version`, or the device's error if it cannot be read.
pub(crate) fn is_left(device: &dyn BlockDevice, making: Option<&Superblock>) -> Result<bool> {
    let Found::Superblock(own) = LogSuperblock::find(device)? else { return Ok(false) };
    let is_log_of = |making: &Superblock| {
        own.store_id == making.store_id && making.log.as_ref().is_some_and(|log| log.id == own.id)
    };
    Ok(own.unfinished || making.is_some_and(is_log_of))
}

#[cfg(test)]
mod tests {
    use qpair_block::{RamDevice, RamOptions};

    use super::*;

    fn superblock(generation: u64) -> LogSuperblock {
        LogSuperblock {
            store_id: [3; 16],
            id: [4; 16],
            generation,
            created_s: 5,
            unfinished: false,
        }
    }

    fn device() -> RamDevice {
        RamDevice::new(RamOptions { size_bytes: 1 << 20, ..RamOptions::default() }).unwrap()
    }

    #[test]
    fn the_newer_good_slot_counts() {
        let device = device();
        assert_eq!(LogSuperblock::find(&device).unwrap(), Found::Blank);
        superblock(1).write_new(&device).unwrap();
        assert_eq!(LogSuperblock::find(&device).unwrap(), Found::Superblock(superblock(1)));
        superblock(2).write(&device).unwrap();
        assert_eq!(LogSuperblock::find(&device).unwrap(), Found::Superblock(superblock(2)));
        let mut torn = superblock(2).encode();
        torn[2000] ^= 1;
        transfer(&device, vec![(SLOT_OFFSETS[0], Some(&torn))]).unwrap();
        assert_eq!(LogSuperblock::find(&device).unwrap(), Found::Superblock(superblock(1)));
        transfer(&device, vec![(SLOT_OFFSETS[1], Some(&torn))]).unwrap();
        assert_eq!(LogSuperblock::find(&device).unwrap(), Found::Damaged);
    }

    #[test]
    fn what_a_making_has_left() {
        let device = device();
        assert!(!is_left(&device, None).unwrap());
        let left = LogSuperblock { unfinished: true, ..superblock(1) };
        left.write_new(&device).unwrap();
        assert_eq!(LogSuperblock::find(&device).unwrap(), Found::Superblock(left));
        assert!(is_left(&device, None).unwrap());
        // The store is complete.
        superblock(2).write_new(&device).unwrap();
        assert!(!is_left(&device, None).unwrap());
    }

    #[test]
    fn a_newer_version_is_refused() {
        let device = device();
        let mut newer = superblock(1).encode();
        newer[8] = 2;
        newer[12..16].fill(0);
        let sum = crc_fast::crc32_iscsi(&newer);
        newer[12..16].copy_from_slice(&sum.to_le_bytes());
        transfer(&device, vec![(SLOT_OFFSETS[0], Some(&newer))]).unwrap();
        assert_eq!(LogSuperblock::find(&device).unwrap_err().kind(), ErrorKind::Version);
    }
}
