//! Expiry times: behind each value of a table with a time to live, and in the index of a store.
//!
//! The index is a tree of its own, with the name [`INDEX_TABLE`] in the catalog. For each table it
//! has a definition, and an entry for each record, in the order of their times. Times are
//! milliseconds since 1970. See docs/design/ttl.md.
//!
//! Decoding takes any bytes, and never panics.

use crate::error::{Error, ErrorKind, Result};
use crate::page::VALUE_LEN_MAX;

/// The name of the index in the catalog. No other table can have this name.
pub const INDEX_TABLE: &str = "\0expiry";
/// The key of the record with the horizon.
pub const HORIZON_KEY: &[u8] = b"h";
/// The first byte of the keys of definitions.
const DEFINITION: u8 = b't';
/// The first byte of the keys of entries.
const ENTRY: u8 = b'x';

/// The bytes of the expiry time behind a value.
pub const EXPIRY_BYTES: usize = 8;
/// The bytes of an entry before the key of the record.
pub const ENTRY_HEAD_BYTES: usize = 1 + 4 + TIME_BYTES;
const TIME_BYTES: usize = 6;
/// The latest time that an entry can have.
const TIME_MAX_MS: u64 = (1 << (8 * TIME_BYTES)) - 1;

/// The shortest and the longest time to live, in milliseconds: a second and a thousand years.
pub const TTL_MIN_MS: u64 = 1000;
pub const TTL_MAX_MS: u64 = 1000 * 366 * 86_400 * 1000;

/// The limits of the span for which entries of a record share one place in the index, in
/// milliseconds.
const SPAN_MIN_MS: u64 = 1000;
const SPAN_MAX_MS: u64 = 3_600_000;
/// The share of the time to live that this span is.
const SPAN_PART: u64 = 16;

/// Appends the expiry time to a value as the table keeps it.
///
/// # Errors
/// `ValueTooLong` if trees do not take such a long value.
pub fn append_expiry(stored: &mut Vec<u8>, expiry_ms: u64) -> Result<()> {
    if stored.len() + EXPIRY_BYTES > VALUE_LEN_MAX {
        return Err(Error::new(
            ErrorKind::ValueTooLong,
            format!(
                "a value has {} bytes; in a table with a time to live the limit is {}",
                stored.len(),
                VALUE_LEN_MAX - EXPIRY_BYTES
            ),
        ));
    }
    stored.extend_from_slice(&expiry_ms.to_le_bytes());
    Ok(())
}

/// Returns the expiry time behind a value.
///
/// # Errors
/// `Corrupt` if the bytes are too few.
pub fn expiry_of(stored: &[u8]) -> Result<u64> {
    match stored.last_chunk::<EXPIRY_BYTES>() {
        Some(expiry) => Ok(u64::from_le_bytes(*expiry)),
        None => Err(Error::new(ErrorKind::Corrupt, "a value has no expiry time")),
    }
}

/// Returns the time of the entry of a record: its expiry time, rounded up. So the entries of a
/// record that is written again and again within a short time are one.
#[must_use]
pub fn entry_time_ms(expiry_ms: u64, ttl_ms: u64) -> u64 {
    expiry_ms.min(TIME_MAX_MS).next_multiple_of(span_ms(ttl_ms)).min(TIME_MAX_MS)
}

/// Returns the span of the expiry times that have the same entry time.
#[must_use]
pub fn span_ms(ttl_ms: u64) -> u64 {
    (ttl_ms / SPAN_PART).clamp(SPAN_MIN_MS, SPAN_MAX_MS)
}

/// Returns the key of an entry. With a key that is empty it is a lower bound of all entries of the
/// tree from this time on.
#[must_use]
pub fn entry_key(tree: u32, time_ms: u64, key: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(ENTRY_HEAD_BYTES + key.len());
    entry.push(ENTRY);
    entry.extend_from_slice(&tree.to_be_bytes());
    entry.extend_from_slice(&time_ms.min(TIME_MAX_MS).to_be_bytes()[8 - TIME_BYTES..]);
    entry.extend_from_slice(key);
    entry
}

/// Returns a bound above all entries of a tree up to this time.
#[must_use]
pub fn entries_end(tree: u32, time_ms: u64) -> Vec<u8> {
    match time_ms.checked_add(1).filter(|time_ms| *time_ms <= TIME_MAX_MS) {
        Some(time_ms) => entry_key(tree, time_ms, &[]),
        None => [&[ENTRY][..], &tree.saturating_add(1).to_be_bytes()].concat(),
    }
}

/// Returns the tree and the time of an entry, and the key of the record.
#[must_use]
pub fn decode_entry(entry: &[u8]) -> Option<(u32, u64, &[u8])> {
    let (head, key) = entry.split_at_checked(ENTRY_HEAD_BYTES)?;
    let (tree, time) = head.strip_prefix(&[ENTRY])?.split_first_chunk::<4>()?;
    let time_ms = time.iter().fold(0, |time, byte| time << 8 | u64::from(*byte));
    Some((u32::from_be_bytes(*tree), time_ms, key))
}

/// Returns the key of a table's definition.
#[must_use]
pub fn definition_key(tree: u32) -> Vec<u8> {
    [&[DEFINITION][..], &tree.to_be_bytes()].concat()
}

/// Returns the tree of a definition, and its time to live in milliseconds.
#[must_use]
pub fn decode_definition(key: &[u8], value: &[u8]) -> Option<(u32, u64)> {
    let tree = key.strip_prefix(&[DEFINITION])?.try_into().ok().map(u32::from_be_bytes)?;
    Some((tree, decode_ms(value)?))
}

/// Returns the number of milliseconds in a record of the index.
#[must_use]
pub fn decode_ms(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_the_order_of_their_times() {
        let times = [0, 1, 255, 256, 1_700_000_000_000, TIME_MAX_MS];
        for pair in times.windows(2) {
            assert!(entry_key(7, pair[0], b"z") < entry_key(7, pair[1], b"a"));
            assert!(entry_key(7, pair[0], &[255; 9]) < entries_end(7, pair[0]));
            assert!(entries_end(7, pair[0]) <= entry_key(7, pair[1], b""));
        }
        assert!(entry_key(7, TIME_MAX_MS, &[255; 9]) < entries_end(7, u64::MAX));
        assert!(entries_end(7, u64::MAX) <= entry_key(8, 0, b""));
        assert_eq!(decode_entry(&entry_key(7, 256, b"key")), Some((7, 256, &b"key"[..])));
        assert_eq!(decode_entry(b"x12"), None);
        assert_eq!(decode_entry(HORIZON_KEY), None);
    }

    #[test]
    fn an_entry_is_never_due_before_its_record() {
        for ttl_ms in [TTL_MIN_MS, 60_000, 86_400_000, TTL_MAX_MS] {
            for expiry_ms in [0, 1, 999, 1000, 1_700_000_000_123] {
                let time_ms = entry_time_ms(expiry_ms, ttl_ms);
                assert!((expiry_ms..expiry_ms + span_ms(ttl_ms)).contains(&time_ms));
            }
        }
        assert_eq!(entry_time_ms(u64::MAX, TTL_MAX_MS), TIME_MAX_MS);
    }

    #[test]
    fn times_and_definitions_come_back() {
        let mut stored = b"value".to_vec();
        append_expiry(&mut stored, 77).unwrap();
        assert_eq!((stored.len(), expiry_of(&stored).unwrap()), (13, 77));
        assert_eq!(expiry_of(b"short").unwrap_err().kind(), ErrorKind::Corrupt);
        let mut longest = vec![0; VALUE_LEN_MAX - EXPIRY_BYTES + 1];
        let error = append_expiry(&mut longest, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueTooLong);
        let value = 5000u64.to_le_bytes();
        assert_eq!(decode_definition(&definition_key(9), &value), Some((9, 5000)));
        assert_eq!(decode_definition(HORIZON_KEY, &value), None);
    }
}
