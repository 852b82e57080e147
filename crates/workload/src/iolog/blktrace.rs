//! Reads the kernel's traces of block devices, as `blktrace` and `blkparse -d` write them.
//!
//! A trace consists of records of 48 bytes in the byte order of the machine that wrote it, each
//! followed by as many bytes as its last field says. Only requests that enter a queue are replayed,
//! and not their further fate in the kernel.

use std::path::Path;
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};

use super::{Action, Entry, Iolog};

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD_BYTES: usize = 48;
const SECTOR_BYTES: u64 = 512;

/// The action, in the lower half of the field, of a request that enters the queue.
const QUEUE: u32 = 1;
// Categories, in the upper half of the field.
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const COMMAND: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;

/// Whether the bytes begin with a record, in either byte order.
pub(super) fn is_trace(bytes: &[u8]) -> bool {
    let Some(head) = bytes.first_chunk::<4>() else { return false };
    [u32::from_le_bytes(*head), u32::from_be_bytes(*head)].iter().any(|m| m & !0xff == MAGIC)
}

struct Fields<'a> {
    bytes: &'a [u8],
    is_little: bool,
}

impl Fields<'_> {
    fn number(&self, at: usize, len: usize) -> u64 {
        let digit = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        let field = self.bytes.get(at..at + len).unwrap_or_default();
        match self.is_little {
            true => field.iter().rev().fold(0, digit),
            false => field.iter().fold(0, digit),
        }
    }

    fn short(&self, at: usize) -> u32 {
        self.number(at, 4) as u32
    }
}

pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Iolog> {
    let is_little =
        bytes.first_chunk::<4>().is_some_and(|b| u32::from_le_bytes(*b) & !0xff == MAGIC);
    let mut log = Iolog { is_trace: true, ..Iolog::default() };
    let mut times = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let invalid = |what: &str| {
            let what = format!("{}: the record at byte {at} {what}", path.display());
            Error::new(ErrorKind::Invalid, what)
        };
        let Some(record) = bytes.get(at..at + RECORD_BYTES) else {
            return Err(invalid("is cut off"));
        };
        let fields = Fields { bytes: record, is_little };
        match fields.short(0) {
            magic if magic & !0xff != MAGIC => return Err(invalid("has no magic number")),
            magic if magic & 0xff != VERSION => {
                return Err(invalid(&format!("is of version {}, not {VERSION}", magic & 0xff)));
            }
            _ => {}
        }
        let next = at + RECORD_BYTES + fields.number(46, 2) as usize;
        if next > bytes.len() {
            return Err(invalid("has a payload that is longer than the file"));
        }
        let (action, len) = (fields.short(28), fields.short(24));
        let category = action >> 16;
        let what = match category {
            _ if action & 0xffff != QUEUE || category & (NOTIFY | COMMAND) != 0 => None,
            _ if category & DISCARD != 0 => Some(Action::Trim),
            _ if len == 0 => (category & FLUSH != 0).then_some(Action::Flush),
            _ if category & WRITE != 0 => Some(Action::Write),
            _ => Some(Action::Read),
        };
        if let Some(action) = what.filter(|what| *what == Action::Flush || len > 0) {
            let is_flush = action == Action::Flush;
            let offset =
                if is_flush { Some(0) } else { fields.number(16, 8).checked_mul(SECTOR_BYTES) };
            let offset = offset.filter(|offset| offset.checked_add(len.into()).is_some());
            let Some(offset_bytes) = offset.filter(|_| len <= 1 << 30) else {
                return Err(invalid("is larger than 1 GiB, or its end overflows"));
            };
            let device = fields.short(36);
            let file = log.file(&format!("{}:{}", device >> 20, device & 0xf_ffff));
            times.push(fields.number(8, 8));
            let at = Duration::ZERO;
            log.entries.push(Entry { at, file, action, offset_bytes, len_bytes: len });
        }
        at = next;
    }
    let first_ns = times.iter().copied().min().unwrap_or(0);
    for (entry, time_ns) in log.entries.iter_mut().zip(times) {
        entry.at = Duration::from_nanos(time_ns - first_ns);
    }
    // The records of one processor are in order, but those of several need not be.
    log.entries.sort_by_key(|entry| entry.at);
    Ok(log)
}

#[cfg(test)]
pub(in crate::iolog) mod tests {
    use super::*;

    /// Returns a record of a request on device 8:16, followed by `pdu` bytes.
    fn record(time_ns: u64, sector: u64, len: u32, action: u32, pdu: u16) -> Vec<u8> {
        let mut out = (MAGIC | VERSION).to_le_bytes().to_vec();
        out.extend(0_u32.to_le_bytes());
        out.extend(time_ns.to_le_bytes());
        out.extend(sector.to_le_bytes());
        for number in [len, action, 77, 8 << 20 | 16, 0] {
            out.extend(number.to_le_bytes());
        }
        out.extend(0_u16.to_le_bytes());
        out.extend(pdu.to_le_bytes());
        assert_eq!(out.len(), RECORD_BYTES);
        out.resize(RECORD_BYTES + usize::from(pdu), 0xee);
        out
    }

    fn trace() -> Vec<u8> {
        let queued = |category: u32| (category | 1 << 4) << 16 | QUEUE;
        [
            record(5, 0, 0, NOTIFY << 16, 9),
            record(3_000, 8, 4096, queued(WRITE), 0),
            record(1_000, 16, 512, queued(1), 4),
            record(3_500, 8, 4096, WRITE << 16 | 7, 0),
            record(4_000, 0, 0, queued(WRITE | FLUSH), 0),
            record(9_000, 1 << 30, 1 << 20, queued(WRITE | DISCARD), 0),
        ]
        .concat()
    }

    #[test]
    fn queued_requests_are_taken_in_order() {
        let log = super::super::parse(&trace(), Path::new("t")).unwrap();
        assert_eq!((log.files.as_slice(), log.is_trace), (["8:16".to_owned()].as_slice(), true));
        let what = |e: &Entry| (e.at.as_nanos() as u64, e.action, e.offset_bytes, e.len_bytes);
        let found: Vec<_> = log.entries.iter().map(what).collect();
        let wanted = [
            (0, Action::Read, 8192, 512),
            (2_000, Action::Write, 4096, 4096),
            (3_000, Action::Flush, 0, 0),
            (8_000, Action::Trim, 1 << 39, 1 << 20),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn damaged_traces_are_refused_with_the_byte() {
        let whole = trace();
        for len in 1..whole.len() {
            let _ = super::super::parse(&whole[..len], Path::new("t"));
            let mut changed = whole.clone();
            changed[len] ^= 0x81;
            let _ = super::super::parse(&changed, Path::new("t"));
        }
        let error = |bytes: &[u8]| parse(bytes, Path::new("t")).unwrap_err().to_string();
        assert_eq!(error(&whole[..RECORD_BYTES + 20]), "t: the record at byte 57 is cut off");
        let mut other = whole.clone();
        other[57] = 9;
        assert!(error(&other).contains("byte 57 is of version 9, not 7"), "{}", error(&other));
    }
}
