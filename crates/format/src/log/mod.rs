//! The write-ahead log: formats and state machines without any I/O, see
//! docs/design/write-ahead-log.md.
//!
//! - Every worker has its own log: a stream of bytes, in which commit records lie one behind the
//!   other.
//! - The stream is cut into chunks, each of which is one write of the device. No block is written
//!   twice in an incarnation of the store, so that a torn write destroys nothing that was there
//!   before.
//! - Chunks lie in segments, runs of the store's space or of the log device, each of which names
//!   the next.
//! - Timestamps rise along a log. A record counts if all records with smaller timestamps are there,
//!   in whichever log.
//!
//! All integers are little-endian, all checksums are CRC-32C. Decoding never panics, whatever the
//! bytes are.

mod buffer;
mod chunk;
mod describe;
mod merge;
mod position;
mod reader;
mod record;
mod segment;
mod segments;
#[cfg(test)]
mod tests;
mod window;
mod writer;

pub use describe::{describe, describe_operation};
pub use merge::{LogMerge, MergeEnd, MergeStep};
pub use position::{LogGeometry, LogIdentity, LogPosition};
pub use reader::{EndReason, InDoubt, LogEnd, LogReader};
pub use record::{Operation, RECORD_BYTES_MAX, Record, RecordBuilder};
pub use segments::Segments;
pub use writer::{LogWriter, PlannedWrite};

#[inline]
fn get_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn get_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes `value` at `at` of a new header.
#[inline]
fn set(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Completes a header: writes its magic number, and the checksum of the bytes from 8 to its end.
fn seal(header: &mut [u8], magic: [u8; 4]) {
    set(header, 0, &magic);
    let sum = crc_fast::crc32_iscsi(&header[8..]);
    set(header, 4, &sum.to_le_bytes());
}

/// Returns a reader of the same logs that continues at this position. It requests the bytes again
/// that this one requested and did not get.
fn is_sealed(header: &[u8], magic: [u8; 4]) -> bool {
    header.starts_with(&magic)
        && header
            .get(8..)
            .is_some_and(|rest| get_u32(header, 4) == Some(crc_fast::crc32_iscsi(rest)))
}
