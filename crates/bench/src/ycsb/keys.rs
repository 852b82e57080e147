//! Tables, and keys and values of records.

use fastrand::Rng;

use crate::kv::TableId;

/// Names of the tables, in the order of their [`TableId`]s. The store must be opened with them.
pub const YCSB_TABLES: [&str; 2] = ["usertable", "ycsb"];

pub(crate) const USERS: TableId = TableId(0);
/// The table of the one record that describes the load.
pub(crate) const META: TableId = TableId(1);

/// The size of a key, in bytes: "user" and 20 digits.
pub(crate) const KEY_BYTES: usize = 24;

/// Maps each 64-bit number to a different one, far from the images of its neighbours (splitmix64's
/// finalizer).
pub(crate) fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns the key for a mixed number.
pub(crate) fn key_of_mixed(mixed: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"user00000000000000000000";
    let mut rest = mixed;
    for digit in key[4..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

pub(crate) fn key(record: u64) -> [u8; KEY_BYTES] {
    key_of_mixed(mixed(record))
}

/// Fills bytes with random printable characters.
pub(crate) fn noise(random: &mut Rng, target: &mut [u8]) {
    for chunk in target.chunks_mut(10) {
        let mut bits = random.u64(..);
        for byte in chunk {
            *byte = b' ' + (bits & 63) as u8;
            bits >>= 6;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_mixed_numbers_do() {
        assert_eq!(&key_of_mixed(7), b"user00000000000000000007");
        assert_eq!(&key_of_mixed(u64::MAX), b"user18446744073709551615");
        let mut mixed: Vec<u64> = (0..10_000).map(mixed).collect();
        mixed.sort_unstable();
        mixed.dedup();
        assert_eq!(mixed.len(), 10_000);
        assert!(mixed.windows(2).all(|pair| key_of_mixed(pair[0]) < key_of_mixed(pair[1])));
    }
}
