//! Chooses the length and direction of the next request.

use rand::Rng;
use rand::rngs::SmallRng;

use crate::job::{BlockSizes, Direction, Job, Verbs};

pub(super) struct Draw {
    verbs: Verbs,
    sizes: [BlockSizes; 3],
    pieces: u32,
}

impl Draw {
    pub(super) fn new(job: &Job) -> Self {
        Self {
            verbs: job.verbs,
            sizes: job.block_sizes.clone(),
            pieces: u32::from(job.vector_len.max(1)),
        }
    }

    #[inline]
    pub(super) fn direction(&self, random: &mut SmallRng) -> Direction {
        match self.verbs {
            Verbs::Read => Direction::Read,
            Verbs::Write => Direction::Write,
            Verbs::Trim | Verbs::TrimWrite => Direction::Trim,
            Verbs::Mixed { read_percent } => {
                if random.random_range(0..100) < read_percent {
                    Direction::Read
                } else {
                    Direction::Write
                }
            }
        }
    }

    #[inline]
    pub(super) fn len_bytes(&self, direction: Direction, random: &mut SmallRng) -> u32 {
        let one = match &self.sizes[direction as usize] {
            BlockSizes::Fixed(bytes) => *bytes,
            BlockSizes::Range(min, max) => min * random.random_range(1..=(max / min).max(1)),
            BlockSizes::Split(parts) => {
                let mut point = random.random_range(0..100u8);
                let mut chosen = parts.last().map_or(0, |part| part.0);
                for (bytes, percent) in parts {
                    if point < *percent {
                        chosen = *bytes;
                        break;
                    }
                    point -= percent;
                }
                chosen
            }
        };
        one * self.pieces
    }
}
