//! A Bloom filter of the rows that a run has images of.

/// The number of bits for each row.
const BITS: usize = 10;
/// The number of bits that are set for a row.
const PROBES: u64 = 7;

/// A Bloom filter that has every added row, and about 1 in 100 of the others.
pub(super) struct Filter {
    words: Box<[u64]>,
}

impl Filter {
    /// Creates a filter of these hashes of rows.
    pub(super) fn of(hashes: &[u64]) -> Self {
        let words = (hashes.len() * BITS).div_ceil(64).max(1);
        let mut filter = Self { words: vec![0; words].into() };
        for hash in hashes {
            for bit in filter.bits(*hash) {
                filter.words[bit / 64] |= 1 << (bit % 64);
            }
        }
        filter
    }

    fn bits(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let bits = self.words.len() as u64 * 64;
        let step = hash.rotate_left(32) | 1;
        (0..PROBES).map(move |probe| {
            let word = hash.wrapping_add(probe.wrapping_mul(step));
            // The high half of the product is spread as the word is.
            ((u128::from(word) * u128::from(bits)) >> 64) as usize
        })
    }

    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.bits(hash).all(|bit| self.words[bit / 64] >> (bit % 64) & 1 == 1)
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.words.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx::versions::hash_of;

    #[test]
    fn it_has_what_it_was_given_and_few_others() {
        let hashes = |from: u32, to: u32| -> Vec<u64> {
            (from..to).map(|key| hash_of(3, &key.to_be_bytes())).collect()
        };
        let filter = Filter::of(&hashes(0, 10_000));
        assert!(hashes(0, 10_000).iter().all(|hash| filter.may_have(*hash)));
        let wrong = hashes(10_000, 20_000).iter().filter(|hash| filter.may_have(**hash)).count();
        assert!(wrong < 300, "{wrong} of 10,000");
        assert!(!Filter::of(&[]).may_have(7));
    }
}
