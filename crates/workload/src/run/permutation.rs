//! A pseudo-random permutation of `0..n` that needs no memory.
//!
//! Odd factors and right shifts are bijections of `0..2^b`. A result outside of `0..n` is mapped
//! again until it falls inside, which takes fewer than two steps on average.

#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    n: u64,
    mask: u64,
    shift: u32,
    keys: [u64; 3],
}

impl Permutation {
    pub(super) fn new(n: u64, seed: u64) -> Self {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let mut state = seed;
        let keys = std::array::from_fn(|_| {
            // splitmix64
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut key = state;
            key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (key ^ (key >> 31)) | 1
        });
        Self { n, mask, shift: (bits / 2).max(1), keys }
    }

    /// Returns the position of `index` in the permutation. `index` must be below n.
    #[inline]
    pub(super) fn image(&self, index: u64) -> u64 {
        let mut x = index;
        loop {
            for key in self.keys {
                x = x.wrapping_mul(key).wrapping_add(key >> 17) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one() {
        for n in (1..70).chain([127, 128, 129, 1000, 4096, 100_000]) {
            for seed in 0..3 {
                let permutation = Permutation::new(n, seed);
                let mut seen = vec![false; n as usize];
                for index in 0..n {
                    let image = permutation.image(index) as usize;
                    assert!(!std::mem::replace(&mut seen[image], true), "n {n}, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn neighbours_do_not_stay_together() {
        let permutation = Permutation::new(1 << 20, 1);
        let near = (1..100_000u64)
            .filter(|index| permutation.image(*index).abs_diff(permutation.image(index - 1)) < 1024)
            .count();
        // About 2 in 1024 are near by chance.
        assert!(near < 1000, "{near}");
    }
}
