//! Continues to the next record, or returns the bytes needed for it. The previous record is no
//! longer available.
//!
//! A position is the place at which a chunk begins, or will begin. It holds everything that a
//! reader needs to know beforehand.

use super::{get_u16, get_u32, get_u64, set};
use crate::error::{Error, ErrorKind, Result};
use crate::page::TAG_BYTES;

/// Identifies a log: the store, the incarnation of the store, and the log's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// A number made of the store's id.
    pub store: u64,
    /// The number of the incarnation, another one each time the store is opened for writing.
    pub incarnation: u64,
    pub log: u16,
}

impl LogIdentity {
    pub fn new(store_id: [u8; 16], incarnation: u64, log: u16) -> Self {
        // The id is random: its halves together are as good as a hash.
        let half = |at| get_u64(&store_id, at).unwrap_or_default();
        Self { store: half(0) ^ half(8), incarnation, log }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGeometry {
    /// The alignment of chunks in bytes: the device's logical block, and at least 4,096, so that no
    /// two chunks share a block that the device writes as one.
    pub block_bytes: u32,
    pub segment_bytes: u32,
    /// The number of bytes at the end of each block that the log does not use: 0, or the bytes of a
    /// tag in an encrypted store.
    pub tag_bytes: u32,
}

impl LogGeometry {
    pub const BLOCK_BYTES_MIN: u32 = 512;
    pub const SEGMENT_BYTES_MAX: u32 = 1 << 30;
    pub const SEGMENT_BLOCKS_MIN: u32 = 4;

    /// Returns the number of bytes of records that always fit a segment, whatever their chunks. The
    /// segment loses its header, the chunks' headers, and an end that is left unused. With four
    /// blocks of 512 bytes, 1,360 of 2,048 bytes are left.
    pub fn room_bytes(&self) -> u64 {
        u64::from(self.segment_bytes / 8 * 5)
    }

    /// Returns the number of bytes of content in one block.
    pub(super) fn content_bytes(&self) -> u32 {
        self.block_bytes - self.tag_bytes
    }

    /// Returns the number of bytes of content in whole blocks of `len` bytes.
    pub(super) fn content_of(&self, len: u32) -> u32 {
        len / self.block_bytes * self.content_bytes()
    }

    /// Returns the bytes of the whole blocks that `content` bytes take.
    pub(super) fn blocks_of(&self, content: u64) -> u64 {
        content.div_ceil(self.content_bytes().into()) * u64::from(self.block_bytes)
    }

    /// Returns the fault of the sizes, or `None` if they are valid.
    pub fn fault(&self) -> Option<&'static str> {
        let Self { block_bytes: block, segment_bytes: segment, tag_bytes } = *self;
        if ![0, TAG_BYTES as u32].contains(&tag_bytes) {
            Some("the log's blocks have tags of an unknown size")
        } else if !block.is_power_of_two() || block < Self::BLOCK_BYTES_MIN {
            Some("the log's block is not a power of two from 512 on")
        } else if segment > Self::SEGMENT_BYTES_MAX || !segment.is_multiple_of(block) {
            Some("the log's segment is too large, or not a multiple of its block")
        } else if segment / block < Self::SEGMENT_BLOCKS_MIN {
            Some("the log's segment has too few blocks")
        } else {
            None
        }
    }
}

/// The position at which a chunk begins or will begin. A reader that starts there sees everything
/// that is appended later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The incarnation of the store that wrote the log.
    pub incarnation: u64,
    /// The address of the segment on the device in bytes.
    pub segment_offset_bytes: u64,
    /// The number of the segment in its log, from 0.
    pub segment_sequence: u64,
    /// The number of the chunk in its log, from 0.
    pub chunk_sequence: u64,
    /// The position of the chunk in the log's byte stream.
    pub lsn: u64,
    /// The offset of the chunk in the segment in bytes. The end of the segment stands for the next
    /// segment.
    pub at_bytes: u32,
    pub geometry: LogGeometry,
    pub log: u16,
    /// Whether each write of the log survived power loss before the next one began.
    pub flushed: bool,
    /// The timestamp of the last valid commit; `None` if all are valid. A later incarnation of the
    /// store gave out later timestamps again.
    pub timestamp_max: Option<u64>,
}

impl LogPosition {
    /// The size of an encoded position in bytes.
    pub const BYTES: usize = 56;
    /// The size of an encoded position in a log of an earlier incarnation, in bytes.
    pub const BYTES_ENDED: usize = 64;
    /// Flag: `flushed`.
    const FLUSHED: u16 = 1;
    /// Flag: the log's blocks end with tags.
    const TAGGED: u16 = 2;

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::BYTES];
        set(&mut bytes, 0, &self.incarnation.to_le_bytes());
        set(&mut bytes, 8, &self.segment_offset_bytes.to_le_bytes());
        set(&mut bytes, 16, &self.segment_sequence.to_le_bytes());
        set(&mut bytes, 24, &self.chunk_sequence.to_le_bytes());
        set(&mut bytes, 32, &self.lsn.to_le_bytes());
        set(&mut bytes, 40, &self.at_bytes.to_le_bytes());
        set(&mut bytes, 44, &self.geometry.block_bytes.to_le_bytes());
        set(&mut bytes, 48, &self.geometry.segment_bytes.to_le_bytes());
        set(&mut bytes, 52, &self.log.to_le_bytes());
        let flushed = if self.flushed { Self::FLUSHED } else { 0 };
        let tagged = if self.geometry.tag_bytes > 0 { Self::TAGGED } else { 0 };
        set(&mut bytes, 54, &(flushed | tagged).to_le_bytes());
        self.timestamp_max
            .iter()
            .for_each(|timestamp| bytes.extend_from_slice(&timestamp.to_le_bytes()));
        bytes
    }

    /// Decodes a position and checks that it is possible. Only the checksum of its container proves
    /// that it is right.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let position = (|| {
            Some(Self {
                incarnation: get_u64(bytes, 0)?,
                segment_offset_bytes: get_u64(bytes, 8)?,
                segment_sequence: get_u64(bytes, 16)?,
                chunk_sequence: get_u64(bytes, 24)?,
                lsn: get_u64(bytes, 32)?,
                at_bytes: get_u32(bytes, 40)?,
                geometry: LogGeometry {
                    block_bytes: get_u32(bytes, 44)?,
                    segment_bytes: get_u32(bytes, 48)?,
                    tag_bytes: match get_u16(bytes, 54)? & Self::TAGGED {
                        0 => 0,
                        _ => TAG_BYTES as u32,
                    },
                },
                log: get_u16(bytes, 52)?,
                flushed: get_u16(bytes, 54)? & Self::FLUSHED != 0,
                timestamp_max: get_u64(bytes, Self::BYTES),
            })
        })();
        let fault = match &position {
            Some(position) if [Self::BYTES, Self::BYTES_ENDED].contains(&bytes.len()) => {
                position.fault()
            }
            _ => Some("its length is wrong"),
        };
        match (position, fault) {
            (Some(position), None) => Ok(position),
            (_, fault) => Err(Error::new(
                ErrorKind::Corrupt,
                format!("a log position is not valid: {}", fault.unwrap_or_default()),
            )),
        }
    }

    fn fault(&self) -> Option<&'static str> {
        let LogGeometry { block_bytes: block, segment_bytes: segment, .. } = self.geometry;
        if let Some(fault) = self.geometry.fault() {
            Some(fault)
        } else if !self.segment_offset_bytes.is_multiple_of(block.into())
            || self.segment_offset_bytes.checked_add(segment.into()).is_none()
        {
            Some("its segment cannot begin there")
        } else if !self.at_bytes.is_multiple_of(block)
            || self.at_bytes < block
            || self.at_bytes > segment
        {
            Some("its chunk cannot begin there")
        } else {
            None
        }
    }

    /// The id is random, so combining its halves is as good as a hash.
    pub fn ended_at(self, timestamp: u64) -> Self {
        Self {
            timestamp_max: Some(
                self.timestamp_max.map_or(timestamp, |before| before.min(timestamp)),
            ),
            ..self
        }
    }

    /// Whether a later incarnation gave the same timestamp to another commit, so that this one does
    /// not count.
    pub fn is_past(&self, timestamp: u64) -> bool {
        self.timestamp_max.is_some_and(|last| timestamp > last)
    }

    pub fn identity(&self, store: u64) -> LogIdentity {
        LogIdentity { store, incarnation: self.incarnation, log: self.log }
    }
}
