//! The configuration of one run, determined by its seed alone.

use std::sync::Arc;

use fastrand::Rng;
use qpair_crypt::EncryptionKey;
use qpair_engine::{Canary, Compression, Durability, Encryption, StoreOptions};
use qpair_sim_block::{SimFaults, SimLatency};

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) workers: usize,
    pub(crate) page_size: usize,
    pub(crate) frames: u64,
    pub(crate) members: usize,
    pub(crate) stripe_unit_bytes: u64,
    pub(crate) depth: u32,
    pub(crate) batch: u32,
    /// The size up to which each member grows, in bytes.
    pub(crate) size_bytes_max: u64,
    pub(crate) volatile_write_cache: bool,
    /// The alignment of memory that the devices require, in bytes. In some runs it is larger than
    /// their blocks.
    pub(crate) memory_alignment_bytes: u32,
    /// Whether the store is encrypted.
    pub(crate) encrypted: bool,
    /// Whether half of the temporary tables have keys of more than 1,024 bytes.
    pub(crate) long_keys: bool,
    /// The number of tables in four whose values are compressed.
    pub(crate) compressed_tables: u8,
    pub(crate) latency: SimLatency,
    pub(crate) keys: u16,
    pub(crate) lives: u32,
    /// The factor by which incarnations are longer than usual, with as many times more keys.
    pub(crate) length: u16,
    /// Whether the store has a log. Without one, a crash goes back to the last checkpoint.
    pub(crate) log: bool,
    /// Whether the log is flushed. If not, a power cut may lose any of the log that the last
    /// checkpoint does not cover.
    pub(crate) log_flushed: bool,
    /// The durability of single changes.
    pub(crate) durability: Durability,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) log_segment_bytes: u32,
    /// The size in bytes up to which the log device grows, if the log has a device of its own.
    pub(crate) log_device_bytes_max: Option<u64>,
    /// The limit of memory for older versions, if the run is to exceed it.
    pub(crate) versions_bytes_max: Option<u64>,
    pub(crate) history_bytes_max: u64,
    pub(crate) transaction_bytes_max: Option<usize>,
    /// Whether half of all values do not fit a leaf.
    pub(crate) large: bool,
    /// Whether the keys that one task owns are adjacent.
    pub(crate) blocks: bool,
    /// One of this many steps runs a management operation: see [`super::errands`].
    pub(crate) errands: Option<u32>,
    pub(crate) damage: Option<Damage>,
}

const LOG_SEGMENT_BYTES: [u32; 4] = [4 << 10, 16 << 10, 64 << 10, 1 << 20];
const CHECKPOINT_BYTES: [u64; 5] = [1, 16 << 10, 64 << 10, 256 << 10, 256 << 20];

/// Turns the seed of a run into the seed of its memory alignment.
const ALIGNMENT_SEED: u64 = 0x616C_6967_6E65_6421;

/// Turns the seed of a run into the seed of its encryption and compression.
const TRANSFORMATION_SEED: u64 = 0x6372_7970_7465_6421;

/// The factor by which the incarnations of a few stores are longer: trees get deep, leave memory,
/// and shrink again.
const LENGTH_MAX: u16 = 20;

/// How a store is damaged after its last incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// No damage. The store is repaired all the same.
    Nothing,
    /// Damage after the store was closed.
    Closed,
    /// Damage while the store is in use: bits flip, or sectors go bad.
    Running,
    /// After the store was closed, some pages are replaced by older versions.
    Stale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The store is closed; then the power is cut.
    Close,
    /// The process is killed while the store is in use. The devices keep their power.
    Kill,
    /// The power is cut after this many writes and flushes, if the incarnation lasts that long.
    Cut(u64),
    /// The power is cut after this many writes of superblocks and checkpoint records.
    CutAtRecord(u64),
}

impl End {
    /// Replaces a cut at any write by one at the write of a record.
    fn at_a_record(self) -> Self {
        match self {
            Self::Cut(changes) => Self::CutAtRecord(changes % 6 + 1),
            other => other,
        }
    }
}

/// One incarnation of the store, from an open to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) end: End,
    /// The faults of the devices, from the opening on or from the moment after it.
    pub(crate) faults: SimFaults,
    pub(crate) faults_at_open: bool,
    /// Whether faults occur behind the HBA, if there is one, at the same times.
    pub(crate) troubled: bool,
    pub(crate) tasks: u32,
    pub(crate) steps_per_task: u32,
    /// Whether every page is checked first.
    pub(crate) checks: bool,
}

impl Scenario {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let workers = rng.usize(1..=3);
        let page_size = one_of(rng, &[512, 1024, 4096, 4096]);
        let log_segment_bytes = one_of(rng, &LOG_SEGMENT_BYTES);
        let mean_ns = |rng: &mut Rng, most: u64| 1000 + rng.u64(0..most);
        let length = if rng.u8(0..32) == 0 { LENGTH_MAX } else { 1 };
        Self {
            length,
            workers,
            page_size,
            frames: (32 * workers as u64).max(64) + rng.u64(0..100),
            members: if rng.u8(0..3) == 0 { 2 } else { 1 },
            stripe_unit_bytes: page_size as u64 * one_of(rng, &[1, 4, 16]),
            depth: one_of(rng, &[4, 16, 64, 512]),
            batch: one_of(rng, &[1, 8, 32]),
            size_bytes_max: match rng.u8(0..16) {
                0 => 3 << 20,
                1 => rng.u64(16..48) << 16,
                _ => 64 << 20,
            },
            volatile_write_cache: rng.u8(0..8) != 0,
            memory_alignment_bytes: 1,
            encrypted: false,
            long_keys: false,
            compressed_tables: 0,
            latency: SimLatency {
                read_ns: mean_ns(rng, 100_000),
                write_ns: mean_ns(rng, 50_000),
                flush_ns: mean_ns(rng, 500_000),
                spike: one_of(rng, &[0.0, 0.002, 0.05]),
            },
            keys: length * rng.u16(20..400),
            lives: rng.u32(2..=5),
            log: rng.u8(0..10) != 0,
            durability: one_of(
                rng,
                &[Durability::Sync, Durability::Sync, Durability::Group, Durability::Async],
            ),
            checkpoint_bytes: one_of(rng, &CHECKPOINT_BYTES),
            log_segment_bytes,
            log_device_bytes_max: (rng.u8(0..3) == 0).then(|| {
                let segment_bytes = u64::from(log_segment_bytes).max(4 * page_size as u64);
                let least = (64 << 10) + workers as u64 * 4 * segment_bytes;
                least + one_of(rng, &[0, 0, segment_bytes, least, 64 << 20])
            }),
            versions_bytes_max: (rng.u8(0..4) == 0).then(|| {
                let most = one_of(rng, &[20_000, 20_000, 200_000]);
                rng.u64(1000..most)
            }),
            history_bytes_max: one_of(rng, &[0, 64 << 10, 1 << 20, 1 << 30]),
            transaction_bytes_max: (rng.u8(0..6) == 0).then(|| rng.usize(500..10_000)),
            large: rng.u8(0..8) == 0 && length == 1,
            blocks: rng.bool(),
            errands: rng.bool().then(|| one_of(rng, &[20, 100, 500])),
            damage: match rng.u8(0..8) {
                0 | 1 => Some(Damage::Closed),
                2 | 3 => Some(Damage::Running),
                4 => Some(Damage::Stale),
                5 if rng.bool() => Some(Damage::Nothing),
                _ => None,
            },
            log_flushed: rng.u8(0..6) != 0,
        }
    }

    /// Returns this incarnation with the changes that a planted bug needs to show.
    pub(crate) fn shaped_for(self, canary: Option<Canary>) -> Self {
        match canary {
            // Many checkpoints, so that log segments are reused soon.
            Some(Canary::ReuseLogBeforeRecord) => {
                Self { log: true, log_segment_bytes: 4 << 10, checkpoint_bytes: 16 << 10, ..self }
            }
            _ => self,
        }
    }

    /// Returns this scenario with, in one run of four, devices that require a memory alignment
    /// above their block size. The alignment has its own generator, so that the other seeds do not
    /// change.
    pub(crate) fn aligned(self, seed: u64) -> Self {
        let is_aligned = Rng::with_seed(seed ^ ALIGNMENT_SEED).u8(0..4) == 0;
        Self { memory_alignment_bytes: if is_aligned { 4096 } else { 1 }, ..self }
    }

    /// Returns this scenario with, in one run of four, an encrypted store, in one of three,
    /// compressed tables, and in half of those with pages of 4 KiB, long keys. The choices have
    /// their own generator, so that the other seeds do not change.
    pub(crate) fn transformed(self, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ TRANSFORMATION_SEED);
        let encrypted = rng.u8(0..4) == 0;
        let compressed_tables = if rng.u8(0..3) == 0 { rng.u8(1..=4) } else { 0 };
        // A single put of a long key, which puts its group, must be within the limit.
        let is_roomy = self.transaction_bytes_max.is_none_or(|bytes_max| bytes_max >= 8192);
        let long_keys = self.page_size >= 4096 && is_roomy && rng.bool();
        Self { encrypted, long_keys, compressed_tables, ..self }
    }

    /// Returns the compression for a new table of this name.
    pub(crate) fn compression(&self, name: &str) -> Compression {
        let number = name.bytes().fold(0, u8::wrapping_add) % 8;
        match (number / 2 < self.compressed_tables, number.is_multiple_of(2)) {
            (false, _) => Compression::None,
            (true, false) => Compression::Lz4,
            (true, true) => Compression::Zstd,
        }
    }

    /// Returns this scenario for disks behind an HBA. They do not grow, are not small, and keep no
    /// more requests than their controller has room for.
    pub(crate) fn on_hba(self) -> Self {
        Self {
            depth: self.depth.min(64),
            size_bytes_max: 64 << 20,
            log_device_bytes_max: self.log_device_bytes_max.map(|_| 64 << 20),
            damage: None,
            ..self
        }
    }

    /// Returns this scenario for lists: without damage, and with enough space that no records must
    /// be deleted to make room.
    pub(crate) fn for_lists(self) -> Self {
        Self { size_bytes_max: 64 << 20, damage: None, ..self }
    }

    pub(crate) fn store_options(&self) -> StoreOptions {
        let defaults = StoreOptions::default();
        StoreOptions {
            versions_bytes_max: self.versions_bytes_max.unwrap_or(defaults.versions_bytes_max),
            history_bytes_max: self.history_bytes_max,
            readers_bytes_max: match self.keys % 3 {
                0 => 32 << 10,
                _ => defaults.readers_bytes_max,
            },
            transaction_bytes_max: self
                .transaction_bytes_max
                .unwrap_or(defaults.transaction_bytes_max),
            log: self.log,
            log_flushed: self.log_flushed,
            durability: self.durability,
            checkpoint_bytes: self.checkpoint_bytes,
            log_segment_bytes: self.log_segment_bytes,
            run_pages_max: match self.keys % 2 {
                0 => 1 + u64::from(self.keys % 5),
                _ => u64::MAX,
            },
            // More memory than a small device has room to write out, so that the pool must be
            // fitted to the device.
            memory_bytes: match self.is_small() && self.keys.is_multiple_of(3) {
                true => 16 * self.frames * self.page_size as u64,
                false => self.frames * self.page_size as u64,
            },
            workers: self.workers,
            depth: self.depth,
            batch: self.batch,
            // So that some requests are held back.
            reads: if self.batch == 1 { 2 } else { 0 },
            page_size: self.page_size,
            stripe_unit_bytes: self.stripe_unit_bytes,
            encryption: self.encrypted.then(|| {
                let key = EncryptionKey::from_bytes([self.page_size as u8; 32]).simulated();
                Arc::new(key) as Arc<dyn Encryption>
            }),
            ..defaults
        }
    }

    /// Returns the options of one incarnation, which sometimes differ from the previous ones. The
    /// logs themselves say which options they were made with.
    pub(crate) fn options_of_a_life(&self, rng: &mut Rng) -> StoreOptions {
        let options = self.store_options();
        if rng.u8(0..4) != 0 {
            return options;
        }
        StoreOptions {
            workers: rng.usize(1..=self.workers),
            checkpoint_bytes: one_of(rng, &CHECKPOINT_BYTES),
            log_segment_bytes: match self.log_device_bytes_max {
                // The device was formatted for segments of this size.
                Some(_) => self.log_segment_bytes,
                None => one_of(rng, &LOG_SEGMENT_BYTES),
            },
            ..options
        }
    }

    /// Whether a commit requested with this durability survives a crash after it is acknowledged.
    pub(crate) fn is_durable(&self, durability: Durability) -> bool {
        self.log && self.log_flushed && durability != Durability::Async
    }

    /// Whether the devices may become full before the run is over.
    pub(crate) fn is_small(&self) -> bool {
        self.size_bytes_max < 8 << 20
    }

    /// Whether a commit may be refused because it is too large.
    pub(crate) fn bounds_transactions(&self) -> bool {
        self.transaction_bytes_max.is_some() || self.log_device_bytes_max.is_some()
    }

    /// Whether a snapshot may be invalidated because it needs too much space. Recently replaced
    /// large values have a limited share of the device, and on a full device they make room for
    /// changes.
    pub(crate) fn bounds_snapshots(&self) -> bool {
        self.versions_bytes_max.is_some()
            || (1..=1 << 20).contains(&self.history_bytes_max)
            || self.is_small()
    }

    /// Draws the length of a value in bytes. Some values do not fit a leaf.
    pub(crate) fn value_len(&self, rng: &mut Rng) -> u32 {
        match rng.u8(0..40) {
            0..20 if self.large => rng.u32(0..12 * self.page_size as u32),
            0 => rng.u32(0..4 * self.page_size as u32),
            1..8 => rng.u32(0..self.page_size as u32 / 4),
            _ => rng.u32(0..64),
        }
    }
}

impl Life {
    pub(crate) fn new(rng: &mut Rng, length: u16) -> Self {
        let times = f64::from(length);
        // Small and large numbers are equally likely.
        let changes = |rng: &mut Rng| {
            let most = 1 << rng.u8(1..12);
            rng.u64(1..=most) * u64::from(length)
        };
        let end = match rng.u8(0..10) {
            0 | 1 => End::Close,
            2 | 3 => End::Kill,
            4 | 5 => End::CutAtRecord(rng.u64(1..=12 * u64::from(length))),
            _ => End::Cut(changes(rng)),
        };
        let faults = match rng.u8(0..8) {
            0 => SimFaults { write_error: 0.01 / times, ..SimFaults::default() },
            1 => SimFaults { flush_error: 0.05 / times, ..SimFaults::default() },
            2 => SimFaults { read_error: 0.01 / times, ..SimFaults::default() },
            _ => SimFaults::default(),
        };
        Self {
            end,
            faults,
            faults_at_open: rng.bool(),
            troubled: true,
            tasks: rng.u32(1..=8),
            steps_per_task: u32::from(length) * rng.u32(1..=60),
            checks: rng.u8(0..4) == 0,
        }
    }

    /// Returns the `nth` incarnation of a store with the changes that a planted bug needs to show.
    /// Without them, only few of thousands of runs would show it.
    pub(crate) fn shaped_for(self, canary: Option<Canary>, nth: u32) -> Self {
        match canary {
            // A write of the log fails, and the power is cut soon after the store was reopened.
            Some(Canary::UnwrittenLogs) if nth.is_multiple_of(2) => {
                let faults = SimFaults { write_error: 0.05, ..SimFaults::default() };
                Self { faults, faults_at_open: false, end: End::Kill, ..self }
            }
            Some(Canary::UnwrittenLogs) => Self { faults: SimFaults::default(), ..self },
            // The power is cut during commits while a record is written.
            Some(Canary::ReuseLogBeforeRecord) => {
                Self { end: self.end.at_a_record(), tasks: 8, steps_per_task: 60, ..self }
            }
            _ => self,
        }
    }

    /// Draws an incarnation in which the content of the devices is damaged.
    pub(crate) fn damaged(rng: &mut Rng) -> Self {
        let faults = match rng.bool() {
            true => SimFaults { bit_flip: 0.02, ..SimFaults::default() },
            false => SimFaults { bad_sector: 0.02, ..SimFaults::default() },
        };
        Self { end: End::Kill, faults, tasks: 4, steps_per_task: 40, checks: false, ..Self::last() }
    }

    /// Returns an incarnation without faults, in which every page is checked.
    pub(crate) fn last() -> Self {
        Self {
            end: End::Close,
            faults: SimFaults::default(),
            faults_at_open: false,
            troubled: false,
            tasks: 2,
            steps_per_task: 5,
            checks: true,
        }
    }
}

fn one_of<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(0..of.len())]
}
