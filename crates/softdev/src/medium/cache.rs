//! The volatile write cache of a drive, modelled by its visible effect: data that was not flushed
//! may be lost with the power.
//!
//! The medium always has the newest bytes. The cache keeps the content of stable storage: for each
//! sector written since it was last made durable, the content before. A flush drops these contents;
//! a loss of power puts some of them back. The number of sectors is bounded: the oldest count as
//! written to stable storage first.

use qpair_memory::locks::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::MutexGuard;

/// The storage behind a cache.
pub trait Storage {
    /// Reads a range.
    ///
    /// # Errors
    /// The error of the storage.
    fn read_bytes(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes a range.
    ///
    /// # Errors
    /// The error of the storage.
    fn write_bytes(&self, at: u64, from: &[u8]) -> io::Result<()>;
}

/// The number of shards. Each has a lock of its own, so that queues seldom wait for each other.
const SHARDS: u64 = 16;
/// The number of neighbouring sectors that are in one shard.
const RUN_SECTORS: u64 = 64;
/// The maximum length of a range that is cached. Longer ranges go to stable storage at once.
pub(crate) const RANGE_BYTES_MAX: u64 = 8 << 20;

/// A volatile write cache. Callers report every write to it.
#[derive(Debug)]
pub struct VolatileCache {
    shards: Vec<Mutex<Shard>>,
    sector_shift: u32,
    /// The maximum number of sectors of a shard.
    sectors_max: usize,
}

#[derive(Debug, Default)]
struct Shard {
    /// The content in stable storage of each sector whose newest content is not there yet.
    stable: HashMap<u64, Box<[u8]>>,
    /// The sectors in the order in which they came, including sectors that were forgotten since.
    order: VecDeque<u64>,
    /// Memory for reuse.
    spare: Vec<Box<[u8]>>,
}

impl Shard {
    fn forget(&mut self, sector: u64) {
        self.spare.extend(self.stable.remove(&sector));
    }

    fn forget_all(&mut self) {
        self.spare.extend(self.stable.drain().map(|(_, bytes)| bytes));
        self.order.clear();
    }
}

impl VolatileCache {
    /// Creates a cache of `size_bytes` for sectors of `1 << sector_shift` bytes.
    #[must_use]
    pub fn new(size_bytes: u64, sector_shift: u32) -> Self {
        let sectors_max = ((size_bytes >> sector_shift) / SHARDS).max(1) as usize;
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, sector_shift, sectors_max }
    }

    fn shard(&self, sector: u64) -> Option<MutexGuard<'_, Shard>> {
        let shard = self.shards.get((sector / RUN_SECTORS % SHARDS) as usize)?;
        Some(shard.lock())
    }

    fn sectors(&self, at: u64, len: u64) -> std::ops::Range<u64> {
        at >> self.sector_shift..(at + len) >> self.sector_shift
    }

    /// Saves the content of stable storage before a range is written.
    ///
    /// # Errors
    /// The error of reading the storage.
    pub fn keep(&self, medium: &impl Storage, at: u64, len: u64) -> io::Result<()> {
        for sector in self.sectors(at, len) {
            let Some(mut shard) = self.shard(sector) else { continue };
            if shard.stable.contains_key(&sector) {
                continue;
            }
            while shard.order.len() >= self.sectors_max {
                if let Some(oldest) = shard.order.pop_front() {
                    shard.forget(oldest);
                }
            }
            let new = || vec![0; 1 << self.sector_shift].into_boxed_slice();
            let mut bytes = shard.spare.pop().unwrap_or_else(new);
            medium.read_bytes(sector << self.sector_shift, &mut bytes)?;
            shard.stable.insert(sector, bytes);
            shard.order.push_back(sector);
        }
        Ok(())
    }

    /// Notes that a range went to stable storage.
    pub fn forget(&self, at: u64, len: u64) {
        let sectors = self.sectors(at, len);
        if len <= RANGE_BYTES_MAX {
            for sector in sectors {
                if let Some(mut shard) = self.shard(sector) {
                    shard.forget(sector);
                }
            }
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.stable.retain(|sector, _| !sectors.contains(sector));
        }
    }

    /// Notes that everything went to stable storage.
    pub fn forget_all(&self) {
        for shard in &self.shards {
            shard.lock().forget_all();
        }
    }

    /// Cuts the power: each sector that is not on stable storage is lost if `loses` says so. The
    /// sectors come in ascending order. Returns the number of sectors, and how many are lost.
    ///
    /// # Errors
    /// The error of writing back the content of stable storage.
    pub fn lose(
        &self,
        medium: &impl Storage,
        mut loses: impl FnMut(u64) -> bool,
    ) -> io::Result<(usize, usize)> {
        // All locks are held to the end, so that a sector that another thread writes meanwhile is
        // not overwritten by its older content.
        let mut shards: Vec<_> = self.shards.iter().map(Mutex::lock).collect();
        let mut unflushed = BTreeMap::new();
        for shard in &mut shards {
            unflushed.extend(shard.stable.drain());
            shard.order.clear();
        }
        let (count, mut lost) = (unflushed.len(), 0);
        for (sector, bytes) in unflushed {
            if loses(sector) {
                medium.write_bytes(sector << self.sector_shift, &bytes)?;
                lost += 1;
            }
        }
        Ok((count, lost))
    }
}

/// Returns, by a seed, the sectors that a loss of power takes. Some losses take all sectors and
/// some take none; independent chances for each sector would almost never give either case.
pub(super) fn losses(seed: u64) -> impl Fn(u64) -> bool {
    let share = [1.0, 0.9, 0.5, 0.5, 0.1, 0.0][fastrand::Rng::with_seed(seed).usize(0..6)];
    move |sector| {
        let mixed = seed ^ sector.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        fastrand::Rng::with_seed(mixed).f64() < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::{Medium, MediumOptions};

    #[test]
    fn what_was_flushed_stays_and_the_rest_is_lost_by_chance() {
        let mut cuts = [0; 3];
        for seed in 0..100 {
            let (medium, _) = Medium::open(&MediumOptions::Ram, 1 << 20).unwrap();
            let cache = VolatileCache::new(1 << 20, 9);
            let write = |sector: u64, value: u8| {
                cache.keep(&medium, sector << 9, 512).unwrap();
                medium.write_bytes(sector << 9, &[value; 512]).unwrap();
            };
            (0..200).for_each(|sector| write(sector, 1));
            cache.forget_all();
            (100..200).for_each(|sector| write(sector, 2));
            (100..200).for_each(|sector| write(sector, 3));
            cache.forget(150 << 9, 50 << 9);
            cache.lose(&medium, losses(seed)).unwrap();
            let value = |sector: u64| {
                let mut bytes = [0; 512];
                medium.read_bytes(sector << 9, &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
                bytes[0]
            };
            assert!((0..100).all(|sector| value(sector) == 1));
            assert!((150..200).all(|sector| value(sector) == 3));
            let lost = (100..150).filter(|sector| value(*sector) == 1).count();
            assert!((100..150).all(|sector| matches!(value(sector), 1 | 3)));
            cuts[usize::from(lost > 0) + usize::from(lost == 50)] += 1;
        }
        assert!(cuts.iter().all(|count| *count > 5), "none, some, all: {cuts:?}");
    }

    #[test]
    fn the_oldest_go_to_stable_storage_when_it_is_full() {
        let (medium, _) = Medium::open(&MediumOptions::Ram, 8 << 20).unwrap();
        let cache = VolatileCache::new(64 << 10, 9);
        for sector in 0..10_000 {
            cache.keep(&medium, sector << 9, 512).unwrap();
        }
        let kept: usize = cache.shards.iter().map(|shard| shard.lock().stable.len()).sum();
        assert!(kept <= 128, "{kept}");
        assert!(cache.shard(9_999).unwrap().stable.contains_key(&9_999));
    }
}
