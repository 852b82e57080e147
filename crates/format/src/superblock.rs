//! The superblock at the start of every member, which describes the store and its state. See
//! docs/design/page-format.md.
//!
//! There are two slots, written in turn by generation, so that a torn write leaves the other slot
//! intact. Member 0 determines the state of the store: it is marked open first and clean last.

use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::page::{PAGE_SIZE_MAX, PAGE_SIZE_MIN, TAG_BYTES};

/// The number of bytes at the start of each member that hold superblocks; pages follow.
pub const SUPERBLOCK_BYTES: u64 = 64 << 10;
/// The size of a superblock in bytes.
pub const SLOT_BYTES: usize = 4096;
/// The offsets of the two slots in bytes.
pub const SLOT_OFFSETS: [u64; 2] = [0, 32 << 10];

const MAGIC: [u8; 8] = *b"qpair\r\n\x1a";
/// The version of the format that this software writes.
pub const FORMAT_VERSION: u32 = 2;
/// Feature: the write-ahead log is on a log device, which the superblock names.
const LOG_DEVICE: u64 = 1;
/// Feature: the checkpoint's record may name logs of several incarnations. Set while the store is
/// open.
const LOG_INCARNATIONS: u64 = 2;
/// Feature: the creation of the store is not complete. Set until the store is closed.
const UNFINISHED: u64 = 4;
/// Feature: references may contain the version of the page.
const VERSIONS: u64 = 8;
/// Feature: large values may be in several runs of pages.
const EXTENTS: u64 = 16;
/// Feature: the logs may have renames of tables. Set until the store is closed.
const RENAMES: u64 = 32;
/// Feature: everything behind the superblocks is encrypted, and the superblock has a key slot.
const ENCRYPTED: u64 = 1 << 8;
/// Feature: tables may have compressed values.
const COMPRESSED: u64 = 1 << 9;
/// Feature: tables may have a time to live, and there may be an index of expiry times.
const EXPIRING: u64 = 1 << 10;
/// Feature: there may be [groups](crate::group) of records with long keys.
const LONG_KEYS: u64 = 1 << 11;
/// Feature: the logs may have commits in parts. Set until the store is closed.
const COMMIT_PARTS: u64 = 1 << 12;
/// The features that a reader must know to read the store, with their names for people.
const FEATURES: [(u64, &str); 11] = [
    (LOG_DEVICE, "log-device"),
    (LOG_INCARNATIONS, "log-incarnations"),
    (UNFINISHED, "unfinished"),
    (VERSIONS, "versions"),
    (EXTENTS, "extents"),
    (RENAMES, "renames"),
    (ENCRYPTED, "encrypted"),
    (COMPRESSED, "compressed"),
    (EXPIRING, "expiring"),
    (LONG_KEYS, "long-keys"),
    (COMMIT_PARTS, "commit-parts"),
];
/// The maximum length of a log device's name in a superblock, in bytes.
const LOG_NAME_BYTES_MAX: usize = 1024;
/// The offset of the key slot of an encrypted store in its superblock, in bytes.
const KEY_SLOT_AT: usize = 2048;
/// The size of a key slot in bytes.
pub const KEY_SLOT_BYTES: usize = 128;

/// The key of an encrypted store's data, wrapped by the key of the program.
///
/// The format only stores it; the crate that encrypts gives its bytes a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySlot(pub [u8; KEY_SLOT_BYTES]);

/// The state in which a store was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// The store is being changed, or a crash left it in that state.
    Open,
    /// The store was closed: everything is on the device.
    Clean,
}

/// A store's reference to its log device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogReference {
    /// The id in the log device's own superblock.
    pub id: [u8; 16],
    /// The name of the log device when the store was last changed. Shown to people; the device may
    /// have another name by now.
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub store_id: [u8; 16],
    pub member_index: u32,
    pub member_count: u32,
    /// The stripe unit: the number of bytes on a member before the next member follows.
    pub stripe_unit_bytes: u64,
    pub page_size: u32,
    pub state: StoreState,
    /// A number that is one higher after every change of state.
    pub generation: u64,
    /// The time of creation, in seconds since 1970.
    pub created_s: u64,
    /// Whether the store may be used only once it is complete, and has not been closed yet. No
    /// process opens such a store.
    pub unfinished: bool,
    /// Whether large values may be in several runs of pages.
    pub extents: bool,
    /// Whether the logs may have renames of tables.
    pub renames: bool,
    /// Whether tables may have compressed values.
    pub compressed: bool,
    /// Whether tables may have a time to live.
    pub expiring: bool,
    /// Whether there may be groups of records with long keys.
    pub long_keys: bool,
    /// Whether the logs may have commits in parts.
    pub commit_parts: bool,
    /// The log device; `None` if the log is in the store's own space.
    pub log: Option<LogReference>,
    /// The wrapped key; `None` if the store is not encrypted.
    pub key_slot: Option<KeySlot>,
}

const CHECKSUM: std::ops::Range<usize> = 12..16;

/// Returns a slot of these bytes, padded with zeroes, with its checksum. The place of the checksum
/// must be zero.
pub fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(SLOT_BYTES, 0);
    let sum = crc_fast::crc32_iscsi(&bytes);
    bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Whether `bytes` are a whole slot with this magic and a valid checksum.
pub fn is_sealed(bytes: &[u8], magic: &[u8; 8]) -> bool {
    if bytes.len() != SLOT_BYTES || !bytes.starts_with(magic) {
        return false;
    }
    let mut copy = bytes.to_vec();
    copy[CHECKSUM].fill(0);
    crc_fast::crc32_iscsi(&copy).to_le_bytes() == bytes[CHECKSUM]
}

/// Refuses features that are not among the known ones. An unknown feature is reported by its
/// number.
///
/// # Errors
/// `Version`.
pub fn check_features(features: u64, known: &[(u64, &str)], what: &str) -> Result<()> {
    let bits = (0..u64::BITS).filter(|bit| features >> bit & 1 == 1);
    let name = |bit: &u32| known.iter().find(|(of, _)| *of == 1 << bit).map(|(_, name)| *name);
    let unknown: Vec<String> = bits
        .clone()
        .filter(|bit| name(bit).is_none())
        .map(|bit| format!("feature bit {bit}"))
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let named: Vec<&str> = bits.filter_map(|bit| name(&bit)).collect();
    let besides = match &named[..] {
        [] => String::new(),
        named => format!("; besides it has {}", named.join(", ")),
    };
    Err(Error::with_hint(
        ErrorKind::Version,
        format!(
            "{what} with {}, which this version of qpair does not support{besides}",
            unknown.join(", ")
        ),
        "use a newer version of qpair",
    ))
}

impl Superblock {
    pub const MAGIC: [u8; 8] = MAGIC;

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        let of_log = if self.log.is_some() { LOG_DEVICE } else { 0 };
        let of_state = if self.state == StoreState::Open { LOG_INCARNATIONS } else { 0 };
        let of_use = if self.unfinished { UNFINISHED } else { 0 };
        let of_values = if self.extents { EXTENTS } else { 0 };
        let of_names = if self.renames { RENAMES } else { 0 };
        let of_tables = if self.compressed { COMPRESSED } else { 0 };
        let of_times = if self.expiring { EXPIRING } else { 0 };
        let of_length = if self.long_keys { LONG_KEYS } else { 0 };
        let of_commits = if self.commit_parts { COMMIT_PARTS } else { 0 };
        let of_key = if self.key_slot.is_some() { ENCRYPTED } else { 0 };
        let of_records = of_values | of_names | of_tables | of_times | of_length;
        let of_content = of_records | of_commits | of_key | VERSIONS;
        let incompatible = of_log | of_state | of_use | of_content;
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes()); // checksum
        bytes.extend_from_slice(&incompatible.to_le_bytes());
        bytes.extend_from_slice(&0u64.to_le_bytes()); // compatible features
        bytes.extend_from_slice(&self.store_id);
        bytes.extend_from_slice(&self.member_index.to_le_bytes());
        bytes.extend_from_slice(&self.member_count.to_le_bytes());
        bytes.extend_from_slice(&self.stripe_unit_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.page_size.to_le_bytes());
        let state: u32 = match self.state {
            StoreState::Open => 1,
            StoreState::Clean => 2,
        };
        bytes.extend_from_slice(&state.to_le_bytes());
        for word in [self.generation, self.created_s] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        if let Some(LogReference { id, name }) = &self.log {
            let most = name.len().min(LOG_NAME_BYTES_MAX);
            let end = (0..=most).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
            let name = &name[..end];
            bytes.extend_from_slice(id);
            bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        if let Some(KeySlot(slot)) = &self.key_slot {
            bytes.resize(KEY_SLOT_AT, 0);
            bytes.extend_from_slice(slot);
        }
        sealed(bytes)
    }

    /// Decodes one slot. Returns `Ok(None)` if the bytes are not a superblock, or a torn one.
    fn decode(bytes: &[u8], name: &str) -> Result<Option<Self>> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        if !is_sealed(bytes, &MAGIC) {
            return Ok(None);
        }
        let version = half(8);
        if version != FORMAT_VERSION {
            return Err(Error::with_hint(
                ErrorKind::Version,
                format!(
                    "{name} is a store of format version {version}; this software knows version {FORMAT_VERSION}"
                ),
                match version < FORMAT_VERSION {
                    true => {
                        "load its records into a new store with the version of qpair that wrote it"
                    }
                    false => "use a newer version of qpair",
                },
            ));
        }
        check_features(word(16), &FEATURES, &format!("{name} is a store"))?;
        let state = match half(68) {
            1 => StoreState::Open,
            2 => StoreState::Clean,
            _ => return Ok(None),
        };
        let (page_size, stripe_unit_bytes) = (half(64), word(56));
        let sizes = (PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&(page_size as usize))
            && page_size.is_power_of_two()
            && stripe_unit_bytes > 0
            && stripe_unit_bytes.is_multiple_of(page_size.into());
        if !sizes {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "the superblock of {name} has a page size, {page_size} bytes, or a stripe unit, {stripe_unit_bytes} bytes, that is not valid"
                ),
            ));
        }
        let mut store_id = [0; 16];
        store_id.copy_from_slice(&bytes[32..48]);
        let log = (word(16) & LOG_DEVICE != 0).then(|| {
            let mut id = [0; 16];
            id.copy_from_slice(&bytes[88..104]);
            let len = (half(104) as usize).min(LOG_NAME_BYTES_MAX);
            LogReference { id, name: String::from_utf8_lossy(&bytes[108..108 + len]).into_owned() }
        });
        Ok(Some(Self {
            store_id,
            member_index: half(48),
            member_count: half(52),
            stripe_unit_bytes,
            page_size,
            state,
            generation: word(72),
            created_s: word(80),
            unfinished: word(16) & UNFINISHED != 0,
            extents: word(16) & EXTENTS != 0,
            renames: word(16) & RENAMES != 0,
            compressed: word(16) & COMPRESSED != 0,
            expiring: word(16) & EXPIRING != 0,
            long_keys: word(16) & LONG_KEYS != 0,
            commit_parts: word(16) & COMMIT_PARTS != 0,
            log,
            key_slot: (word(16) & ENCRYPTED != 0)
                .then(|| bytes[KEY_SLOT_AT..].first_chunk().copied().map(KeySlot))
                .flatten(),
        }))
    }

    /// Whether `slot` is a whole superblock with a valid checksum.
    pub fn is_whole(slot: &[u8]) -> bool {
        is_sealed(slot, &MAGIC)
    }

    /// Returns the newer good slot of a member, if one is good.
    pub fn newest(slots: &[Vec<u8>], name: &str) -> Result<Option<Self>> {
        let mut newest: Option<Self> = None;
        for slot in slots {
            if let Some(found) = Self::decode(slot, name)?
                && newest.as_ref().is_none_or(|newest| newest.generation < found.generation)
            {
                newest = Some(found);
            }
        }
        Ok(newest)
    }

    /// Returns the newer good slot of a member.
    pub fn choose(slots: &[Vec<u8>], name: &str) -> Result<Self> {
        match Self::newest(slots, name)? {
            Some(newest) if newest.unfinished => {
                return Err(Error::with_hint(
                    ErrorKind::NotAStore,
                    format!(
                        "{name} is not a whole store: the operation that created it, such as a repair, did not complete"
                    ),
                    "run that operation again",
                ));
            }
            Some(newest) => return Ok(newest),
            None => {}
        }
        let zero = slots.iter().all(|slot| slot.iter().all(|byte| *byte == 0));
        let marked = slots.iter().any(|slot| slot.starts_with(&MAGIC));
        Err(match (zero, marked) {
            (true, _) => Error::with_remedy(
                ErrorKind::NotAStore,
                format!("{name} is not a qpair store: its superblock has only zeroes"),
                "if it was a store, restore it from a backup, or salvage it by a repair; to create a new store there, remove it first",
                Remedy::Make,
            ),
            (_, true) => Error::damaged(format!("both superblocks of {name} are damaged")),
            _ => Error::with_remedy(
                ErrorKind::NotAStore,
                format!("{name} is not a qpair store"),
                "check the path; if something overwrote the store, a repair salvages what can be read",
                Remedy::Repair,
            ),
        })
    }

    /// Returns the number of bytes of a page that hold content. In an encrypted store the rest is
    /// the page's tag.
    pub fn page_bytes(&self) -> usize {
        self.page_size as usize - if self.key_slot.is_some() { TAG_BYTES } else { 0 }
    }

    /// Returns the offset of the slot that this generation is written to.
    pub fn slot_offset(&self) -> u64 {
        SLOT_OFFSETS[(self.generation % 2) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(generation: u64) -> Superblock {
        Superblock {
            store_id: [7; 16],
            member_index: 1,
            member_count: 3,
            stripe_unit_bytes: 65536,
            page_size: 4096,
            state: StoreState::Clean,
            generation,
            created_s: 1,
            unfinished: false,
            extents: false,
            renames: false,
            compressed: false,
            expiring: false,
            long_keys: false,
            commit_parts: false,
            log: None,
            key_slot: None,
        }
    }

    #[test]
    fn a_key_slot_comes_back_beside_the_longest_log_name() {
        let log = LogReference { id: [9; 16], name: "x".repeat(LOG_NAME_BYTES_MAX) };
        let key_slot = Some(KeySlot(std::array::from_fn(|at| at as u8)));
        let superblock = Superblock { log: Some(log), key_slot, ..superblock(3) };
        assert_eq!(Superblock::choose(&[superblock.encode()], "x").unwrap(), superblock);
        assert_eq!(superblock.page_bytes(), 4096 - TAG_BYTES);
    }

    #[test]
    fn a_superblock_names_the_log_device() {
        let log = LogReference { id: [9; 16], name: "/dev/nvme1n1".to_owned() };
        let superblock = Superblock { log: Some(log), ..superblock(3) };
        assert_eq!(Superblock::choose(&[superblock.encode()], "x").unwrap(), superblock);
        // A name is cut between characters.
        let long = LogReference { id: [9; 16], name: "\u{e4}".repeat(600) + "x" };
        let superblock = Superblock { log: Some(long), ..superblock };
        let found = Superblock::choose(&[superblock.encode()], "x").unwrap().log.unwrap();
        assert_eq!(found.name, "\u{e4}".repeat(512));
    }

    #[test]
    fn a_superblock_has_a_feature_only_where_it_is_needed() {
        let bits = |superblock: &Superblock| {
            u64::from_le_bytes(superblock.encode()[16..24].try_into().unwrap())
        };
        assert_eq!(bits(&superblock(1)), VERSIONS);
        let renamed = Superblock { renames: true, ..superblock(1) };
        assert_eq!(bits(&renamed), VERSIONS | RENAMES);
        assert_eq!(Superblock::choose(&[renamed.encode()], "x").unwrap(), renamed);
    }

    #[test]
    fn what_is_not_finished_is_no_store() {
        let begun = Superblock { unfinished: true, ..superblock(4) };
        let slots = [begun.encode(), superblock(5).encode()];
        assert_eq!(Superblock::choose(&slots, "x").unwrap(), superblock(5), "it was closed");
        let error = Superblock::choose(&[begun.encode(), superblock(3).encode()], "x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAStore);
        assert!(error.to_string().contains("not a whole store"), "{error}");
    }

    #[test]
    fn the_newer_good_slot_wins() {
        let slots = [superblock(4).encode(), superblock(5).encode()];
        assert_eq!(Superblock::choose(&slots, "x").unwrap(), superblock(5));
        let mut torn = slots.clone();
        torn[1][2000] ^= 1;
        assert_eq!(Superblock::choose(&torn, "x").unwrap(), superblock(4));
        torn[0][70] ^= 1;
        assert_eq!(Superblock::choose(&torn, "x").unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn says_what_it_is_not() {
        let kind = |bytes: Vec<u8>| Superblock::choose(&[bytes], "x").unwrap_err().kind();
        assert_eq!(kind(vec![0; SLOT_BYTES]), ErrorKind::NotAStore);
        assert_eq!(kind(vec![9; SLOT_BYTES]), ErrorKind::NotAStore);
        let mut newer = superblock(1).encode();
        newer[8] = FORMAT_VERSION as u8 + 1;
        newer[12..16].fill(0);
        let sum = crc_fast::crc32_iscsi(&newer);
        newer[12..16].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(kind(newer), ErrorKind::Version);
    }
}
