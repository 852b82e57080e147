//! Where the next request goes.
//!
//! Invariants:
//! - every range lies in the region and begins on a multiple of the unit, counted from the region's begin;
//! - with a map, no block comes twice before all have come once.

use qpair_block::{Error, ErrorKind, Result};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution as _, Normal, Zipf};

use crate::job::{Direction, Distribution, Job, Order};

use super::permutation::Permutation;

/// The part of a device that a job uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Its first byte.
    pub(crate) begin_bytes: u64,
    /// Its length: a multiple of the unit.
    pub(crate) len_bytes: u64,
}

/// How a random unit is chosen.
enum Choice {
    Uniform,
    Zipf(Zipf<f64>),
    /// Exponent of the self-similar distribution that fio calls Pareto's.
    Pareto(f64),
    Normal(Normal<f64>),
}

/// What has been visited.
enum Map {
    None,
    /// All requests are of one unit: their order is a permutation.
    Permutation {
        at: u64,
    },
    /// One bit for each unit.
    Bits {
        words: Vec<u64>,
        left: u64,
    },
}

/// The offsets of one target.
pub(crate) struct Offsets {
    region: Region,
    unit_bytes: u64,
    /// Smallest request, by direction.
    least_bytes: [u32; 3],
    units: u64,
    order: Order,
    /// Next byte of the region in sequential order, by direction.
    next_bytes: [u64; 3],
    choice: Choice,
    /// Where likely blocks lie, and in which order a map visits them.
    permutation: Permutation,
    map: Map,
}

impl Offsets {
    /// # Errors
    /// `Limit` if the map of a very large region does not fit into memory.
    pub(crate) fn new(job: &Job, region: Region, seed: u64) -> Result<Self> {
        let sizes = used_sizes(job);
        let unit_bytes = u64::from(sizes.0).max(1);
        let units = (region.len_bytes / unit_bytes).max(1);
        let choice = match job.distribution {
            Distribution::Uniform => Choice::Uniform,
            // The constructors refuse what the options have refused before.
            Distribution::Zipf { theta } => {
                Zipf::new(units as f64, theta).map_or(Choice::Uniform, Choice::Zipf)
            }
            Distribution::Pareto { h } => Choice::Pareto(h.ln() / (1.0 - h).ln()),
            Distribution::Normal { deviation_percent } => {
                let deviation = units as f64 * deviation_percent / 100.0;
                Normal::new(units as f64 / 2.0, deviation).map_or(Choice::Uniform, Choice::Normal)
            }
        };
        let mapped = job.random_map
            && job.order == Order::Random
            && job.distribution == Distribution::Uniform;
        let map = match (mapped, sizes.0 == sizes.1) {
            (false, _) => Map::None,
            (true, true) => Map::Permutation { at: 0 },
            (true, false) => Map::Bits {
                words: zeroes(units.div_ceil(64), "the map of blocks that were visited")?,
                left: units,
            },
        };
        Ok(Self {
            region,
            unit_bytes,
            least_bytes: [0, 1, 2].map(|at| {
                job.block_sizes[at].min().saturating_mul(u32::from(job.vector_len.max(1)))
            }),
            units,
            order: job.order,
            next_bytes: [0; 3],
            choice,
            permutation: Permutation::new(units, seed),
            map,
        })
    }

    /// The next range of at most `len_bytes`: its first byte on the device, and its length.
    #[inline]
    pub(crate) fn next(
        &mut self,
        direction: Direction,
        len_bytes: u32,
        random: &mut SmallRng,
    ) -> (u64, u32) {
        let len = u64::from(len_bytes).min(self.region.len_bytes);
        let (at_bytes, len) = match self.order {
            Order::Sequential => self.sequential(direction, len),
            Order::Random => match &mut self.map {
                Map::Permutation { at } => {
                    if *at == self.units {
                        *at = 0;
                        self.permutation = Permutation::new(self.units, random.random());
                    }
                    *at += 1;
                    (self.permutation.image(*at - 1) * self.unit_bytes, len)
                }
                Map::Bits { .. } => {
                    let least = u64::from(self.least_bytes[direction as usize]);
                    self.unvisited(len, least.min(len), random)
                }
                Map::None => {
                    let places = (self.region.len_bytes - len) / self.unit_bytes + 1;
                    (self.choose(places, random) * self.unit_bytes, len)
                }
            },
        };
        (self.region.begin_bytes + at_bytes, len as u32)
    }

    fn sequential(&mut self, direction: Direction, len: u64) -> (u64, u64) {
        let next = &mut self.next_bytes[direction as usize];
        if *next >= self.region.len_bytes {
            *next = 0;
        }
        let at = *next;
        let len = len.min(self.region.len_bytes - at);
        *next = at + len;
        (at, len)
    }

    /// A place below `places`.
    #[inline]
    fn choose(&self, places: u64, random: &mut SmallRng) -> u64 {
        let unit = match &self.choice {
            Choice::Uniform => return random.random_range(0..places),
            // Ranks begin at 1; the likely ones are strewn over the region, as hot blocks are.
            Choice::Zipf(zipf) => {
                self.permutation.image((zipf.sample(random) as u64 - 1).min(self.units - 1))
            }
            Choice::Pareto(exponent) => {
                let u: f64 = random.random();
                let rank = (self.units as f64 * u.powf(*exponent)) as u64;
                self.permutation.image(rank.min(self.units - 1))
            }
            Choice::Normal(normal) => {
                normal.sample(random).rem_euclid(self.units as f64) as u64 % self.units
            }
        };
        unit.min(places - 1)
    }

    /// Units that were not visited, from a random one on, as many in a row as `len` asks for and there are.
    /// Where fewer are free than `least` bytes, others are visited again.
    fn unvisited(&mut self, len: u64, least: u64, random: &mut SmallRng) -> (u64, u64) {
        let Map::Bits { words, left } = &mut self.map else { return (0, len) };
        if *left == 0 {
            words.fill(0);
            *left = self.units;
        }
        let is_set = |words: &[u64], unit: u64| words[(unit / 64) as usize] >> (unit % 64) & 1 == 1;
        let mut first = random.random_range(0..self.units);
        while is_set(words, first) {
            // Whole words at a time: near the end nearly all are set.
            first = match words[(first / 64) as usize] {
                u64::MAX => (first / 64 + 1) * 64,
                _ => first + 1,
            };
            if first >= self.units {
                first = 0;
            }
        }
        let wanted = (len / self.unit_bytes).max(1);
        let mut count = 0;
        while count < wanted && first + count < self.units && !is_set(words, first + count) {
            let unit = first + count;
            words[(unit / 64) as usize] |= 1 << (unit % 64);
            count += 1;
        }
        *left -= count;
        let least = least.div_ceil(self.unit_bytes).min(self.units);
        if count < least {
            count = least;
            first = first.min(self.units - least);
            for unit in first..first + count {
                let (word, bit) = (&mut words[(unit / 64) as usize], 1 << (unit % 64));
                *left -= u64::from(*word & bit == 0);
                *word |= bit;
            }
        }
        (first * self.unit_bytes, count * self.unit_bytes)
    }
}

/// That many zeroes.
///
/// # Errors
/// `Limit` if there is no memory for them.
pub(crate) fn zeroes<T: Clone + Default>(count: u64, what: &str) -> Result<Vec<T>> {
    let mut zeroes = Vec::new();
    let reserved = usize::try_from(count).ok().map(|count| zeroes.try_reserve_exact(count));
    if !matches!(reserved, Some(Ok(()))) {
        return Err(Error::new(ErrorKind::Limit, format!("no memory for {what}"))
            .hint("use less of the device (size=), larger blocks, or norandommap"));
    }
    zeroes.resize(count as usize, T::default());
    Ok(zeroes)
}

/// Smallest and largest request of a job, bytes.
pub(crate) fn used_sizes(job: &Job) -> (u32, u32) {
    let pieces = u32::from(job.vector_len.max(1));
    let used = used_directions(job).map(|direction| &job.block_sizes[direction as usize]);
    let (mut min, mut max) = (u32::MAX, 0);
    for sizes in used {
        min = min.min(sizes.min().saturating_mul(pieces));
        max = max.max(sizes.max().saturating_mul(pieces));
    }
    (min, max)
}

/// Directions that a job's verbs have.
pub(crate) fn used_directions(job: &Job) -> impl Iterator<Item = Direction> + use<> {
    use crate::job::Verbs;
    let verbs = job.verbs;
    Direction::ALL.into_iter().filter(move |direction| match verbs {
        Verbs::Read => *direction == Direction::Read,
        Verbs::Write => *direction == Direction::Write,
        Verbs::Trim => *direction == Direction::Trim,
        Verbs::Mixed { .. } => *direction != Direction::Trim,
    })
}

/// A generator of its own for each clone of each job: the same seed gives the same requests.
pub(crate) fn generator(seed: u64, clone: u32) -> SmallRng {
    SmallRng::seed_from_u64(seed ^ u64::from(clone).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{BlockSizes, Verbs};
    use qpair_block::DeviceSpec;
    use qpair_kernel::Mode;

    fn job() -> Job {
        Job::new("t", DeviceSpec::parse("null:size=1MiB").unwrap(), Mode::default())
    }

    fn all(job: &Job, units: u64, count: usize) -> Vec<(u64, u32)> {
        let region = Region { begin_bytes: 8192, len_bytes: units * 4096 };
        let mut offsets = Offsets::new(job, region, 7).unwrap();
        let mut random = generator(job.seed, 0);
        let max = used_sizes(job).1;
        (0..count).map(|_| offsets.next(Direction::Read, max, &mut random)).collect()
    }

    #[test]
    fn a_map_visits_each_block_once() {
        for units in [1, 2, 3, 64, 100, 1000] {
            for _ in 0..2 {
                let mut ranges = all(&job(), units, units as usize);
                ranges.sort_unstable();
                let expected: Vec<_> = (0..units).map(|unit| (8192 + unit * 4096, 4096)).collect();
                assert_eq!(ranges, expected);
            }
        }
    }

    #[test]
    fn a_map_of_mixed_sizes_covers_all_without_overlap() {
        let sizes = BlockSizes::Split(vec![(4096, 50), (16384, 50)]);
        let job = Job { block_sizes: [sizes.clone(), sizes.clone(), sizes], ..job() };
        let mut ranges = all(&job, 101, 60);
        let mut covered = 0;
        // Up to the first round's end.
        ranges.truncate(
            ranges
                .iter()
                .position(|(_, len)| {
                    covered += u64::from(*len);
                    covered == 101 * 4096
                })
                .unwrap()
                + 1,
        );
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + u64::from(pair[0].1) == pair[1].0));
    }

    #[test]
    fn sequential_order_begins_again_at_the_end() {
        let job = Job { order: Order::Sequential, ..job() };
        let starts: Vec<u64> = all(&job, 3, 5).into_iter().map(|range| range.0).collect();
        assert_eq!(starts, [8192, 12288, 16384, 8192, 12288]);
    }

    #[test]
    fn unlike_blocks_are_unlike() {
        for (distribution, least) in [
            (Distribution::Zipf { theta: 1.2 }, 0.5),
            (Distribution::Pareto { h: 0.2 }, 0.7),
            (Distribution::Normal { deviation_percent: 5.0 }, 0.9),
        ] {
            let job = Job { distribution, verbs: Verbs::Read, ..job() };
            let mut counts = vec![0u32; 1000];
            for (start, _) in all(&job, 1000, 20_000) {
                counts[((start - 8192) / 4096) as usize] += 1;
            }
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let fifth: u32 = counts[..200].iter().sum();
            assert!(f64::from(fifth) > least * 20_000.0, "{distribution:?}: {fifth}");
        }
    }
}
