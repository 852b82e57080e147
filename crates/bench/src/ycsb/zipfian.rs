//! YCSB's distributions of requests over records.

use fastrand::Rng;

/// The skew of the standard's distribution.
const THETA: f64 = 0.99;
/// The number of items over which the scrambled distribution is drawn, independent of the number of
/// records.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// The sum of `1 / i^THETA` over the [`SCRAMBLED_ITEMS`].
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Returns the sum of `1 / i^THETA` for `i` from `from + 1` to `to`.
fn zeta(from: u64, to: u64) -> f64 {
    (from..to).map(|i| ((i + 1) as f64).powf(-THETA)).sum()
}

/// A distribution of numbers from 0, in which smaller ones are more frequent: number `i` has a
/// probability proportional to about `1 / (i + 1)^THETA` (Gray et al., "Quickly generating
/// billion-record synthetic databases", 1994).
#[derive(Clone, Debug)]
pub(crate) struct Zipfian {
    items: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    pub(crate) fn new(items: u64) -> Self {
        Self::with_zeta(items, zeta(0, items))
    }

    fn with_zeta(items: u64, zeta: f64) -> Self {
        let mut this = Self { items, zeta, eta: 0.0 };
        this.set_eta();
        this
    }

    fn set_eta(&mut self) {
        let two = 1.0 + 0.5_f64.powf(THETA);
        let share = 1.0 - (2.0 / self.items as f64).powf(1.0 - THETA);
        self.eta = share / (1.0 - two / self.zeta);
    }

    /// Extends the distribution to `items` items, which must not be fewer than before.
    pub(crate) fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta += zeta(self.items, items);
            self.items = items;
            self.set_eta();
        }
    }

    pub(crate) fn draw(&self, random: &mut Rng) -> u64 {
        let uniform = random.f64();
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1.min(self.items - 1);
        }
        let number =
            self.items as f64 * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        (number as u64).min(self.items - 1)
    }
}

/// The standard's scrambled distribution, which spreads hot records over all records.
#[derive(Clone, Debug)]
pub(crate) struct Scrambled(Zipfian);

impl Scrambled {
    pub(crate) fn new() -> Self {
        Self(Zipfian::with_zeta(SCRAMBLED_ITEMS, SCRAMBLED_ZETA))
    }

    /// Draws a record below `records`.
    pub(crate) fn draw(&self, random: &mut Rng, records: u64) -> u64 {
        fnv(self.0.draw(random)) % records
    }
}

/// Returns the FNV-1a hash of a number's bytes, which the standard uses for scrambling.
fn fnv(number: u64) -> u64 {
    number.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 400_000;

    fn shares(items: usize, mut draw: impl FnMut(&mut Rng) -> u64) -> Vec<f64> {
        let mut random = Rng::with_seed(5);
        let mut counts = vec![0_u32; items];
        for _ in 0..DRAWS {
            counts[draw(&mut random) as usize] += 1;
        }
        counts.into_iter().map(|count| f64::from(count) / f64::from(DRAWS)).collect()
    }

    #[test]
    fn the_least_numbers_are_as_frequent_as_the_formula_has_it() {
        const ITEMS: usize = 1000;
        let zipfian = Zipfian::new(ITEMS as u64);
        let shares = shares(ITEMS, |random| zipfian.draw(random));
        let total = zeta(0, ITEMS as u64);
        // The first two are drawn exactly. The others come from an approximation whose sums are
        // accurate.
        for (number, share) in shares.iter().take(2).enumerate() {
            let expected = ((number + 1) as f64).powf(-THETA) / total;
            assert!((share / expected - 1.0).abs() < 0.03, "{number}: {share}");
        }
        for (from, to) in [(2, 10), (10, 100), (100, 1000)] {
            let expected = zeta(from, to) / total;
            let drawn: f64 = shares[from as usize..to as usize].iter().sum();
            assert!((drawn / expected - 1.0).abs() < 0.12, "{from}..{to}: {drawn}, not {expected}");
        }
    }

    #[test]
    fn the_scrambled_one_has_its_hottest_record_where_the_hash_puts_it() {
        const RECORDS: u64 = 1000;
        let scrambled = Scrambled::new();
        let shares = shares(RECORDS as usize, |random| scrambled.draw(random, RECORDS));
        let hottest = (fnv(0) % RECORDS) as usize;
        // The expected share is 1 / zeta for the first number, and a thousandth of the draws that
        // hit a record by chance.
        let expected = 1.0 / SCRAMBLED_ZETA + 0.0007;
        assert!((shares[hottest] / expected - 1.0).abs() < 0.1, "{}", shares[hottest]);
        assert!(shares.iter().all(|&share| share <= shares[hottest]));
        assert!(shares.iter().all(|&share| share > 0.0));
    }

    #[test]
    fn the_constant_of_the_scrambled_one_is_the_sum_it_stands_for() {
        // The sum up to a million is computed by addition, and the rest by the integral
        // (Euler-Maclaurin).
        let near = 1_000_000;
        let integral = |n: f64| n.powf(1.0 - THETA) / (1.0 - THETA);
        let (a, b) = (near as f64, SCRAMBLED_ITEMS as f64);
        let rest = integral(b) - integral(a) + (b.powf(-THETA) - a.powf(-THETA)) / 2.0;
        assert!((zeta(0, near) + rest - SCRAMBLED_ZETA).abs() < 1e-6);
    }

    #[test]
    fn growing_is_the_same_as_beginning_large() {
        let mut grown = Zipfian::new(10);
        grown.grow(500);
        grown.grow(400);
        let large = Zipfian::new(500);
        assert_eq!(grown.items, large.items);
        assert!((grown.zeta - large.zeta).abs() < 1e-9 && (grown.eta - large.eta).abs() < 1e-9);
        let mut random = Rng::with_seed(1);
        assert!((0..10_000).all(|_| Zipfian::new(1).draw(&mut random) == 0));
    }
}
