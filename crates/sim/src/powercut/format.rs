//! The format of a log of dm-log-writes, which QEMU's `blklogwrites` writes: a superblock in the
//! first sector, then for each request a sector with a header, and behind it the bytes that were
//! written.
//!
//! All numbers are little-endian. The parser validates a log while it reads it: an invalid log is
//! an error, never a panic.

use std::ops::Range;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;

/// The number of meaningful bytes of a header; zeroes fill the rest of its sector.
pub(super) const HEADER_BYTES: usize = 32;

const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
const METADATA: u64 = 16;
const KNOWN: u64 = FLUSH | FUA | DISCARD | MARK | METADATA;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The position of its header in the log, in bytes.
    pub(super) header_at: u64,
    /// Whether the request flushed the device's cache before doing anything else.
    pub(super) flushes: bool,
    /// Whether the bytes survive a loss of power without a flush (FUA).
    pub(super) forced: bool,
    pub(super) change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// A write: its place on the device, and the bytes of the log that it wrote.
    Write {
        at: u64,
        from: Range<usize>,
    },
    Discard {
        at: u64,
        len: u64,
    },
}

fn word(log: &[u8], at: usize) -> Option<u64> {
    let bytes = log.get(at..at.checked_add(8)?)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Parses a whole log with sectors of `sector_bytes`. No entry may name a position beyond
/// `device_bytes`.
pub(super) fn parse(
    log: &[u8],
    sector_bytes: u32,
    device_bytes: u64,
) -> Result<Vec<Entry>, String> {
    let sector = u64::from(sector_bytes);
    let least = entries_of_superblock(log, sector_bytes)?;
    let mut entries = Vec::new();
    let mut at = sector_bytes as usize;
    while let Some(entry) = entry(log, at, sector, device_bytes)? {
        let behind = match &entry.change {
            Change::Write { from, .. } => from.end,
            Change::Nothing | Change::Discard { .. } => at + sector_bytes as usize,
        };
        entries.push(entry);
        at = behind;
    }
    if (entries.len() as u64) < least {
        return Err(format!(
            "the log has {} entries where its superblock counts {least}: the one at byte {at} is missing",
            entries.len()
        ));
    }
    if log.get(at..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0)) {
        return Err(format!("the log has bytes behind its last entry, which ends at byte {at}"));
    }
    Ok(entries)
}

/// Returns the number of entries at the last flush; 0 before the first flush, which writes the
/// superblock.
fn entries_of_superblock(log: &[u8], sector_bytes: u32) -> Result<u64, String> {
    let superblock = log.get(..log.len().min(sector_bytes as usize)).unwrap_or_default();
    if superblock.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let wrong = |what: &str| format!("the superblock of the log has {what}");
    let (magic, version) = (word(superblock, 0), word(superblock, 8));
    if magic != Some(MAGIC) {
        return Err(wrong("no magic number of dm-log-writes"));
    }
    if version != Some(VERSION) {
        return Err(wrong("another version than 1"));
    }
    if word(superblock, 24).map(|word| word as u32) != Some(sector_bytes) {
        return Err(wrong(&format!("sectors of another size than {sector_bytes} bytes")));
    }
    word(superblock, 16).ok_or_else(|| wrong("no number of entries"))
}

/// Parses the entry whose header is at `at`. Returns `None` at the end of the log.
fn entry(log: &[u8], at: usize, sector: u64, device_bytes: u64) -> Result<Option<Entry>, String> {
    let wrong = |what: &str| format!("the entry at byte {at} of the log {what}");
    let words = [0, 8, 16, 24].map(|offset| word(log, at.saturating_add(offset)));
    let [Some(place), Some(sectors), Some(flags), Some(data_len)] = words else {
        return match log.get(at..) {
            None | Some([]) => Ok(None),
            Some(rest) if rest.iter().all(|byte| *byte == 0) => Ok(None),
            Some(_) => Err(wrong("is cut off")),
        };
    };
    if [place, sectors, flags, data_len] == [0; 4] {
        return Ok(None);
    }
    if flags & !KNOWN != 0 {
        return Err(wrong(&format!("has unknown flags {flags:#x}")));
    }
    let (start, len) = (place.checked_mul(sector), sectors.checked_mul(sector));
    let (Some(start), Some(len)) = (start, len) else {
        return Err(wrong("is beyond all devices"));
    };
    if flags & MARK == 0 && start.checked_add(len).is_none_or(|end| end > device_bytes) {
        return Err(wrong(&format!("names {len} bytes at {start} of a device of {device_bytes}")));
    }
    let change = if flags & MARK != 0 || sectors == 0 {
        Change::Nothing
    } else if flags & DISCARD != 0 {
        Change::Discard { at: start, len }
    } else {
        let begin = at.checked_add(sector as usize);
        let end = begin.and_then(|begin| begin.checked_add(usize::try_from(len).ok()?));
        let range = begin.zip(end).filter(|(_, end)| *end <= log.len());
        let (begin, end) = range.ok_or_else(|| wrong("ends behind the end of the log"))?;
        Change::Write { at: start, from: begin..end }
    };
    let has = |flag: u64| flags & flag != 0;
    Ok(Some(Entry { header_at: at as u64, flushes: has(FLUSH), forced: has(FUA), change }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(words: [u64; 4]) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(512, 0);
        bytes
    }

    fn log(entries: u64) -> Vec<u8> {
        let mut log = header([MAGIC, VERSION, entries, 512]);
        log.extend(header([3, 2, 0, 0]));
        log.extend([7; 1024]);
        log.extend(header([0, 0, FLUSH, 0]));
        log.extend(header([8, 4, DISCARD, 0]));
        log.extend(header([0, 1, FUA, 0]));
        log.extend([9; 512]);
        log
    }

    #[test]
    fn a_log_is_read() {
        let entries = parse(&log(4), 512, 1 << 20).unwrap();
        let changes: Vec<_> = entries.iter().map(|entry| entry.change.clone()).collect();
        let expected = [
            Change::Write { at: 1536, from: 1024..2048 },
            Change::Nothing,
            Change::Discard { at: 4096, len: 2048 },
            Change::Write { at: 0, from: 3584..4096 },
        ];
        assert_eq!(changes, expected);
        let flags: Vec<_> = entries.iter().map(|entry| (entry.flushes, entry.forced)).collect();
        assert_eq!(flags, [(false, false), (true, false), (false, false), (false, true)]);
        assert_eq!(entries[1].header_at, 2048);
    }

    #[test]
    fn a_log_without_a_flush_has_no_superblock() {
        let mut log = log(4);
        log[..512].fill(0);
        assert_eq!(parse(&log, 512, 1 << 20).unwrap().len(), 4);
        assert_eq!(parse(&[], 512, 1 << 20).unwrap(), []);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let refused = |log: &[u8], device: u64| parse(log, 512, device).unwrap_err();
        assert!(refused(&log(5), 1 << 20).contains("counts 5"));
        assert!(refused(&log(4), 2048).contains("of a device of 2048"));
        assert!(parse(&log(4), 4096, 1 << 20).is_err());
        let whole = log(4);
        assert!(refused(&whole[..whole.len() - 1], 1 << 20).contains("end of the log"));
        for (at, what) in [(0, "magic"), (8, "version"), (512 + 17, "flags"), (512 + 7, "beyond")] {
            let mut log = whole.clone();
            log[at] ^= 0xFF;
            assert!(refused(&log, 1 << 20).contains(what), "{what}");
        }
    }

    #[test]
    fn no_bytes_panic() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut log = log(4);
            for _ in 0..rng.usize(1..6) {
                let at = rng.usize(..log.len().min(700));
                log[at] = rng.u8(..);
            }
            log.truncate(rng.usize(..=log.len()));
            // Random bytes may parse or not; this must only not panic.
            let _ = parse(&log, 512, 1 << 20);
        }
    }
}
