//! Chunks: the part of a log that one write to the device adds.
//!
//! A chunk begins at a block that held nothing of this incarnation of the store. Its header has a
//! separate checksum, so that the payload's length is used only if it is right.

use super::position::LogIdentity;
use super::{get_u16, get_u32, get_u64, is_sealed, seal, set};

pub(super) const CHUNK_HEADER_BYTES: usize = 88;
const MAGIC: [u8; 4] = *b"qlgc";
/// The value that stands in place of the first record's offset if no record begins in the chunk.
const NO_RECORD: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHeader {
    pub(super) identity: LogIdentity,
    /// Number of the chunk in its log, from 0, without gaps.
    pub(super) sequence: u64,
    pub(super) segment_sequence: u64,
    /// The position of the payload's first byte in the log's byte stream.
    pub(super) lsn: u64,
    /// The greatest timestamp of a record that ends in this chunk or before it; 0 if there is none.
    pub(super) greatest_timestamp: u64,
    /// The position up to which the log was durable when the chunk was made. If that part is
    /// missing, the log is damaged.
    pub(super) durable_lsn: u64,
    /// The timestamp up to which all commits in all logs were durable when the chunk was made.
    pub(super) durable_timestamp: u64,
    pub(super) payload_bytes: u32,
    pub(super) payload_sum: u32,
    /// The offset in the payload of the first record that begins in this chunk.
    pub(super) first_record: Option<u32>,
}

impl ChunkHeader {
    pub(super) fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        set(&mut bytes, 8, &self.identity.store.to_le_bytes());
        set(&mut bytes, 16, &self.identity.incarnation.to_le_bytes());
        set(&mut bytes, 24, &self.sequence.to_le_bytes());
        set(&mut bytes, 32, &self.segment_sequence.to_le_bytes());
        set(&mut bytes, 40, &self.lsn.to_le_bytes());
        set(&mut bytes, 48, &self.greatest_timestamp.to_le_bytes());
        set(&mut bytes, 56, &self.durable_lsn.to_le_bytes());
        set(&mut bytes, 64, &self.payload_bytes.to_le_bytes());
        set(&mut bytes, 68, &self.payload_sum.to_le_bytes());
        set(&mut bytes, 72, &self.first_record.unwrap_or(NO_RECORD).to_le_bytes());
        set(&mut bytes, 76, &self.identity.log.to_le_bytes());
        set(&mut bytes, 80, &self.durable_timestamp.to_le_bytes());
        seal(&mut bytes, MAGIC);
        bytes
    }

    /// Decodes the header at the start of `bytes`, if it belongs to this log.
    pub(super) fn decode(bytes: &[u8], identity: LogIdentity) -> Option<Self> {
        let bytes = bytes.get(..CHUNK_HEADER_BYTES)?;
        if !is_sealed(bytes, MAGIC) {
            return None;
        }
        let header = Self {
            identity: LogIdentity {
                store: get_u64(bytes, 8)?,
                incarnation: get_u64(bytes, 16)?,
                log: get_u16(bytes, 76)?,
            },
            sequence: get_u64(bytes, 24)?,
            segment_sequence: get_u64(bytes, 32)?,
            lsn: get_u64(bytes, 40)?,
            greatest_timestamp: get_u64(bytes, 48)?,
            durable_lsn: get_u64(bytes, 56)?,
            durable_timestamp: get_u64(bytes, 80)?,
            payload_bytes: get_u32(bytes, 64)?,
            payload_sum: get_u32(bytes, 68)?,
            first_record: Some(get_u32(bytes, 72)?).filter(|first| *first != NO_RECORD),
        };
        let sound = header.identity == identity
            && get_u16(bytes, 78)? == 0
            && header.payload_bytes > 0
            && header.first_record.is_none_or(|first| first < header.payload_bytes)
            && header.lsn.checked_add(header.payload_bytes.into()).is_some();
        sound.then_some(header)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        CHUNK_HEADER_BYTES as u64 + u64::from(self.payload_bytes)
    }
}
