//! The records of the benchmarks: keys of 8 bytes and values of 120, both derived from the record's
//! number.

use crate::kv::TableId;

/// Names of the tables, in the order of their [`TableId`]s.
pub const TABLES: [&str; 1] = ["bench"];

pub(crate) const RECORDS: TableId = TableId(0);

pub(crate) const VALUE_BYTES: usize = 120;

/// Returns the key of a record: its number, big-endian, so that keys sort as numbers do.
pub(crate) fn key(record: u64) -> [u8; 8] {
    record.to_be_bytes()
}

/// Writes the value of a record; `round` tells versions apart.
pub(crate) fn value(record: u64, round: u64, target: &mut [u8; VALUE_BYTES]) {
    let mut word = record.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    for chunk in target.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes());
        word = word.rotate_left(7).wrapping_add(0x2545_f491_4f6c_dd1d);
    }
    target[..8].copy_from_slice(&record.to_le_bytes());
}

/// Whether a value belongs to the record, in any version.
pub(crate) fn is_value_of(record: u64, value: &[u8]) -> bool {
    value.len() == VALUE_BYTES && value[..8] == record.to_le_bytes()
}

/// The approximate bytes of a store per record, for estimates: a full leaf of 4 KiB holds 30.
pub(crate) const STORE_BYTES_PER_RECORD: u64 = 137;

/// A permutation of `0..count`, so that random-order inserts meet every record once: an affine
/// walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    step: u64,
    count: u64,
}

impl Shuffle {
    pub(crate) fn new(count: u64) -> Self {
        // The step is an odd multiplier coprime with the count. Steps of about the golden ratio
        // spread well.
        let mut step = (count as f64 * 0.618_033_988_749_895) as u64 | 1;
        while gcd(step, count) != 1 {
            step += 2;
        }
        Self { step, count }
    }

    /// Returns the record at this position.
    pub(crate) fn at(self, index: u64) -> u64 {
        let count = u128::from(self.count);
        ((u128::from(index) * u128::from(self.step) + count / 3) % count) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_meets_every_record_once() {
        for count in [1, 2, 3, 10, 1000, 1024] {
            let mut all: Vec<u64> = (0..count).map(|index| Shuffle::new(count).at(index)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..count));
        }
    }
}
