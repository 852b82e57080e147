//! Segments: the runs of space that a log lies in.
//!
//! The first block of a segment describes the segment and names the next one. It is written once,
//! together with the segment's first chunk: the next segment is chosen before.

use super::position::{LogGeometry, LogIdentity};
use super::{get_u16, get_u32, get_u64, is_sealed, seal, set};

/// Bytes of a segment's header; zeroes follow to the end of the block.
pub(super) const SEGMENT_HEADER_BYTES: usize = 96;
const MAGIC: [u8; 4] = *b"qlgs";

/// The content of the first block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) identity: LogIdentity,
    /// Number of the segment in its log, from 0.
    pub(super) sequence: u64,
    /// Number of the segment's first chunk.
    pub(super) first_chunk: u64,
    /// The position of that chunk's payload in the log's byte stream.
    pub(super) lsn: u64,
    /// The position up to which the log was durable when the header was made.
    pub(super) durable_lsn: u64,
    /// The address of the segment itself in bytes, to detect misdirected writes.
    pub(super) offset_bytes: u64,
    pub(super) next_offset_bytes: u64,
    pub(super) geometry: LogGeometry,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        set(&mut bytes, 8, &self.identity.store.to_le_bytes());
        set(&mut bytes, 16, &self.identity.incarnation.to_le_bytes());
        set(&mut bytes, 24, &self.sequence.to_le_bytes());
        set(&mut bytes, 32, &self.first_chunk.to_le_bytes());
        set(&mut bytes, 40, &self.lsn.to_le_bytes());
        set(&mut bytes, 48, &self.durable_lsn.to_le_bytes());
        set(&mut bytes, 56, &self.offset_bytes.to_le_bytes());
        set(&mut bytes, 64, &self.next_offset_bytes.to_le_bytes());
        set(&mut bytes, 72, &self.geometry.block_bytes.to_le_bytes());
        set(&mut bytes, 76, &self.geometry.segment_bytes.to_le_bytes());
        set(&mut bytes, 80, &self.identity.log.to_le_bytes());
        set(&mut bytes, 82, &(self.geometry.tag_bytes as u16).to_le_bytes());
        seal(&mut bytes, MAGIC);
        bytes
    }

    /// Decodes the header at the start of `bytes`, if it belongs to this log and to a segment at
    /// `offset_bytes`.
    pub(super) fn decode(bytes: &[u8], identity: LogIdentity, offset_bytes: u64) -> Option<Self> {
        let bytes = bytes.get(..SEGMENT_HEADER_BYTES)?;
        if !is_sealed(bytes, MAGIC) {
            return None;
        }
        let header = Self {
            identity: LogIdentity {
                store: get_u64(bytes, 8)?,
                incarnation: get_u64(bytes, 16)?,
                log: get_u16(bytes, 80)?,
            },
            sequence: get_u64(bytes, 24)?,
            first_chunk: get_u64(bytes, 32)?,
            lsn: get_u64(bytes, 40)?,
            durable_lsn: get_u64(bytes, 48)?,
            offset_bytes: get_u64(bytes, 56)?,
            next_offset_bytes: get_u64(bytes, 64)?,
            geometry: LogGeometry {
                block_bytes: get_u32(bytes, 72)?,
                segment_bytes: get_u32(bytes, 76)?,
                tag_bytes: get_u16(bytes, 82)?.into(),
            },
        };
        let LogGeometry { block_bytes, segment_bytes, .. } = header.geometry;
        let sound = header.identity == identity
            && header.offset_bytes == offset_bytes
            && header.geometry.fault().is_none()
            && header.next_offset_bytes.is_multiple_of(block_bytes.into())
            && header.next_offset_bytes.checked_add(segment_bytes.into()).is_some();
        sound.then_some(header)
    }
}
