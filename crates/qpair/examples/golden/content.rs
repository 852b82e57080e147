//! The records of golden stores. Stores that older versions made stay in the tests for good, so
//! these records never change.

/// The number of records in the table `words` when the store is closed.
pub(crate) const WORDS: u32 = 600;

/// Returns record `i` of the table `words`.
pub(crate) fn word(i: u32) -> (Vec<u8>, Vec<u8>) {
    let value = format!("value {i} {}", "x".repeat(i as usize % 90));
    (format!("key {:08}", i.wrapping_mul(2_654_435_761)).into_bytes(), value.into_bytes())
}

/// Returns a large value, which lies in pages of its own.
pub(crate) fn large(i: u32) -> Vec<u8> {
    (0..20_000 + 3000 * i).flat_map(|at| (at / 100 * (i + 1)).to_le_bytes()).collect()
}
