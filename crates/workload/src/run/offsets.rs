//! Chooses the offset of the next request.
//!
//! Invariants:
//! - every range lies in the region and begins at a multiple of the unit, counted from the region's
//!   beginning;
//! - with a map, no block is visited twice before all have been visited once.

use qpair_block::{Error, ErrorKind, Result};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution as _, Normal, Zipf};

use crate::job::{Direction, Distribution, Extent, Job, Order, Steps, Stride, Zone};

use super::permutation::Permutation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) begin_bytes: u64,
    /// The length of the region, a multiple of the unit.
    pub(crate) len_bytes: u64,
}

enum Choice {
    Uniform,
    Zipf(Zipf<f64>),
    /// The exponent of the self-similar distribution that fio calls Pareto's.
    Pareto(f64),
    Normal(Normal<f64>),
    /// The zones. For each, the last of 100 draws that selects it, and its units.
    Zones(Vec<(u8, std::ops::Range<u64>)>),
}

/// The set of visited units, of a job with a random map.
enum Map {
    None,
    /// All requests have the length of one unit, so their order is a permutation.
    Permutation {
        at: u64,
    },
    /// One bit for each unit.
    Bits {
        words: Vec<u64>,
        left: u64,
    },
}

struct Parts {
    stride: Stride,
    whole: Region,
    /// The number of bytes still to move in this part.
    left_bytes: u64,
}

pub(crate) struct Offsets {
    /// The region, or the part of it that is in use.
    region: Region,
    parts: Option<Parts>,
    unit_bytes: u64,
    /// The smallest request, by direction.
    least_bytes: [u32; 3],
    units: u64,
    order: Order,
    /// The next byte of the region in sequential order, by direction.
    next_bytes: [u64; 3],
    steps: Steps,
    until_random: u32,
    /// The last offset of each direction; `None` before its first request.
    last_bytes: [Option<u64>; 3],
    choice: Choice,
    /// The positions of the likely blocks of a skewed distribution, and the order in which a
    /// permutation map visits units.
    permutation: Permutation,
    map: Map,
}

impl Offsets {
    /// # Errors
    /// `Limit` if the map of a very large region does not fit into memory.
    pub(crate) fn new(job: &Job, region: Region, seed: u64) -> Result<Self> {
        let sizes = used_sizes(job);
        let unit_bytes = match job.align_bytes {
            0 => u64::from(sizes.0).max(1),
            align => u64::from(align),
        };
        let parts =
            job.stride.map(|stride| Parts { stride, whole: region, left_bytes: stride.move_bytes });
        let region = match &parts {
            None => region,
            Some(parts) => parts.at(region.begin_bytes),
        };
        let units = (region.len_bytes / unit_bytes).max(1);
        let choice = match &job.distribution {
            Distribution::Uniform => Choice::Uniform,
            Distribution::Zoned(zones) => Choice::Zones(zones_in_units(zones, units, unit_bytes)),
            // The options have checked the parameters already.
            Distribution::Zipf { theta } => {
                Zipf::new(units as f64, *theta).map_or(Choice::Uniform, Choice::Zipf)
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
            parts,
            unit_bytes,
            least_bytes: [0, 1, 2].map(|at| {
                job.block_sizes[at].min().saturating_mul(u32::from(job.vector_len.max(1)))
            }),
            units,
            order: job.order,
            next_bytes: [0; 3],
            steps: job.steps,
            until_random: 0,
            last_bytes: [None; 3],
            choice,
            permutation: Permutation::new(units, seed),
            map,
        })
    }

    /// Returns the next range of at most `len_bytes`: its first byte on the device, and its length.
    #[inline]
    pub(crate) fn next(
        &mut self,
        direction: Direction,
        len_bytes: u32,
        random: &mut SmallRng,
    ) -> (u64, u32) {
        if self.parts.is_some() {
            self.stride(u64::from(len_bytes));
        }
        let len = u64::from(len_bytes).min(self.region.len_bytes);
        let (at_bytes, len) = match self.order {
            Order::Sequential => self.sequential(direction, len),
            Order::Random if self.steps.random_every > 1 => self.in_runs(direction, len, random),
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

    /// Continues with the next part if enough bytes were moved in this one.
    fn stride(&mut self, len: u64) {
        let Some(parts) = &mut self.parts else { return };
        if parts.left_bytes == 0 {
            let next = self
                .region
                .begin_bytes
                .saturating_add(parts.stride.part_bytes)
                .saturating_add(parts.stride.skip_bytes);
            self.region = parts.at(next);
            parts.left_bytes = parts.stride.move_bytes;
            self.units = (self.region.len_bytes / self.unit_bytes).max(1);
            self.next_bytes = [0; 3];
            // The order within a part begins again, with the same sequence if the part has the same
            // length.
            match &mut self.map {
                Map::None => {}
                Map::Permutation { at } => *at = self.units,
                Map::Bits { left, .. } => *left = 0,
            }
        }
        parts.left_bytes = parts.left_bytes.saturating_sub(len.min(self.region.len_bytes));
    }

    /// Chooses random positions, each followed by requests after it or at the same position.
    fn in_runs(&mut self, direction: Direction, len: u64, random: &mut SmallRng) -> (u64, u64) {
        let at = direction as usize;
        let behind = self.next_bytes[at].min(self.region.len_bytes);
        let fits = behind + len <= self.region.len_bytes;
        let place = match (self.until_random, self.steps.repeat, self.last_bytes[at]) {
            (1.., true, Some(last)) => last.min(self.region.len_bytes - len),
            (1.., false, _) if fits => behind,
            _ => {
                let places = (self.region.len_bytes - len) / self.unit_bytes + 1;
                self.choose(places, random) * self.unit_bytes
            }
        };
        self.until_random = match self.until_random {
            0 => self.steps.random_every - 1,
            more => more - 1,
        };
        self.next_bytes[at] = place + len;
        self.last_bytes[at] = Some(place);
        (place, len)
    }

    fn sequential(&mut self, direction: Direction, len: u64) -> (u64, u64) {
        let next = &mut self.next_bytes[direction as usize];
        let skip = self.steps.skip_bytes;
        // As in fio, the first request is at the beginning, and past one end the position continues
        // at the other.
        if skip != 0 && *next > 0 {
            let end = self.region.len_bytes;
            let stepped = next.checked_add_signed(skip).filter(|at| *at < end);
            let from_end = end.checked_add_signed(skip).filter(|_| skip < 0);
            *next = stepped.or(from_end).unwrap_or(0);
        }
        if *next >= self.region.len_bytes {
            *next = 0;
        }
        let at = *next;
        let len = len.min(self.region.len_bytes - at);
        *next = at + len;
        (at, len)
    }

    #[inline]
    fn choose(&self, places: u64, random: &mut SmallRng) -> u64 {
        let unit = match &self.choice {
            Choice::Uniform => return random.random_range(0..places),
            // Ranks begin at 1. The likely blocks are scattered over the region, as hot blocks are.
            Choice::Zipf(zipf) => {
                self.permutation.image((zipf.sample(random) as u64 - 1).min(self.units - 1))
            }
            Choice::Pareto(exponent) => {
                let u: f64 = random.random();
                let rank = (self.units as f64 * u.powf(*exponent)) as u64;
                self.permutation.image(rank.min(self.units - 1))
            }
            Choice::Zones(zones) => {
                let draw = random.random_range(0..100);
                let last = zones.len() - 1;
                let zone = zones.iter().find(|(until, _)| draw < *until).unwrap_or(&zones[last]);
                random.random_range(zone.1.clone())
            }
            Choice::Normal(normal) => {
                normal.sample(random).rem_euclid(self.units as f64) as u64 % self.units
            }
        };
        unit.min(places - 1)
    }

    /// Visits up to `len` bytes of consecutive unvisited units, from a random one on. If fewer than
    /// `least` bytes are free, visits others again.
    fn unvisited(&mut self, len: u64, least: u64, random: &mut SmallRng) -> (u64, u64) {
        let Map::Bits { words, left } = &mut self.map else { return (0, len) };
        if *left == 0 {
            words.fill(0);
            *left = self.units;
        }
        let is_set = |words: &[u64], unit: u64| words[(unit / 64) as usize] >> (unit % 64) & 1 == 1;
        let mut first = random.random_range(0..self.units);
        while is_set(words, first) {
            // Check whole words: near the end nearly all bits are set.
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

impl Parts {
    /// Returns the part that begins at this offset, or the first part if the offset is past the
    /// end.
    fn at(&self, begin_bytes: u64) -> Region {
        let end = self.whole.begin_bytes + self.whole.len_bytes;
        let begin_bytes = if begin_bytes < end { begin_bytes } else { self.whole.begin_bytes };
        Region { begin_bytes, len_bytes: self.stride.part_bytes.min(end - begin_bytes) }
    }
}

/// Returns consecutive zones of at least one unit each, without zones that get no requests.
fn zones_in_units(zones: &[Zone], units: u64, unit_bytes: u64) -> Vec<(u8, std::ops::Range<u64>)> {
    let (mut until, mut begin_percent, mut begin_bytes) = (0, 0u64, 0u64);
    let mut found = Vec::new();
    for zone in zones {
        let (begin, end) = match zone.size {
            Extent::Percent(percent) => {
                let begin = begin_percent;
                begin_percent += u64::from(percent);
                (units * begin / 100, units * begin_percent / 100)
            }
            Extent::Bytes(bytes) => {
                let begin = begin_bytes;
                begin_bytes = begin_bytes.saturating_add(bytes);
                (begin / unit_bytes, begin_bytes / unit_bytes)
            }
        };
        until += zone.access_percent;
        let begin = begin.min(units - 1);
        if zone.access_percent > 0 {
            found.push((until, begin..end.clamp(begin + 1, units)));
        }
    }
    if found.is_empty() {
        found.push((100, 0..units));
    }
    found
}

/// Returns `count` default values. `what` names them in the error.
///
/// # Errors
/// Returns `Limit` if there is not enough memory.
pub(crate) fn zeroes<T: Clone + Default>(count: u64, what: &str) -> Result<Vec<T>> {
    let mut zeroes = Vec::new();
    let reserved = usize::try_from(count).ok().map(|count| zeroes.try_reserve_exact(count));
    if !matches!(reserved, Some(Ok(()))) {
        return Err(Error::new(ErrorKind::Limit, format!("there is no memory for {what}"))
            .hint("use less of the device (size=), larger blocks, or norandommap"));
    }
    zeroes.resize(count as usize, T::default());
    Ok(zeroes)
}

/// Returns the sizes of a job's smallest and largest request, in bytes.
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

pub(crate) fn used_directions(job: &Job) -> impl Iterator<Item = Direction> + use<> {
    use crate::job::Verbs;
    let verbs = job.verbs;
    Direction::ALL.into_iter().filter(move |direction| match verbs {
        Verbs::Read => *direction == Direction::Read,
        Verbs::Write => *direction == Direction::Write,
        Verbs::Trim => *direction == Direction::Trim,
        Verbs::TrimWrite => *direction != Direction::Read,
        Verbs::Mixed { .. } => *direction != Direction::Trim,
    })
}

/// Returns a separate random generator for each clone of each job. The same seed gives the same
/// requests.
pub(crate) fn generator(seed: u64, clone: u32) -> SmallRng {
    SmallRng::seed_from_u64(seed ^ u64::from(clone).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests;
