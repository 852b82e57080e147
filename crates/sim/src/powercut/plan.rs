//! The plan of a run, determined by its seed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use qpair_block::BlockDevice;
use qpair_crypt::EncryptionKey;
use qpair_engine::{Canary, Compression, Encryption, LogPlace, StoreOptions};

use super::record::Shape;

/// The size of a member, and of a log device, in bytes.
const MEMBER_BYTES: u64 = 48 << 20;
const LOG_DEVICE_BYTES: u64 = 16 << 20;
/// The key of encrypted stores.
const KEY: [u8; 32] = *b"a key for stores that lose power";

/// A fault to plant, which must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The cut discards data that was flushed.
    LostFlush,
    /// The store of the load does not wait until its log survives a loss of power.
    UnflushedLog,
    Engine(Canary),
}

impl Fault {
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let engine = || Canary::ALL.into_iter().find(|canary| canary.name() == name);
        match name {
            "lost-flush" => Ok(Self::LostFlush),
            "unflushed-log" => Ok(Self::UnflushedLog),
            _ => engine().map(Self::Engine).ok_or_else(|| {
                let names: Vec<_> = Canary::ALL.into_iter().map(Canary::name).collect();
                format!("there are: lost-flush, unflushed-log, {}", names.join(", "))
            }),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LostFlush => "lost-flush",
            Self::UnflushedLog => "unflushed-log",
            Self::Engine(canary) => canary.name(),
        }
    }
}

/// A command of the program to run on the recorded devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Load {
        sorted: bool,
    },
    Delete,
    Compact,
    /// Copies to this many devices, which are recorded and cut too.
    Copy {
        targets: usize,
    },
    Backup {
        targets: usize,
    },
}

impl Action {
    /// Returns the number of recorded devices that the command makes a store on.
    pub(super) fn targets(self) -> usize {
        match self {
            Self::Copy { targets } | Self::Backup { targets } => targets,
            _ => 0,
        }
    }
}

/// One incarnation of a store, from power on to the loss of power.
#[derive(Clone, Debug)]
pub(super) struct Life {
    /// The number of operations of each writer before the store is closed.
    pub(super) operations: usize,
    /// Whether the store is then reopened, and the same number of operations follows.
    pub(super) reopens: bool,
    pub(super) action: Option<Action>,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) members: usize,
    pub(super) has_log_device: bool,
    pub(super) through_target: bool,
    block_bytes: u32,
    pub(super) page_size: usize,
    pub(super) writers: usize,
    pub(super) workers: usize,
    frames: u64,
    checkpoint_bytes: u64,
    pub(super) has_log: bool,
    pub(super) value_bytes_max: usize,
    pub(super) encrypted: bool,
    /// The compression of one of the tables.
    pub(super) compression: Compression,
    /// Whether large values have several runs of pages.
    in_pieces: bool,
    pub(super) lives: Vec<Life>,
    pub(super) fault: Option<Fault>,
}

fn one_of<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(0..of.len())]
}

impl Plan {
    /// Returns the plan of a seed. Any twelve consecutive seeds cover all numbers of members, with
    /// and without a log device, directly and through a target. Without the program, no device is
    /// behind a target, and no command is run.
    pub(super) fn new(seed: u64, has_program: bool, fault: Option<Fault>) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let page_size = one_of(rng, &[512, 1024, 4096, 4096, 8192]);
        let has_log = rng.u8(0..8) > 0 || fault.is_some();
        let workers = rng.usize(1..=2);
        let lives = (0..3).map(|_| Life {
            operations: rng.usize(4..40),
            reopens: rng.u8(0..3) == 0,
            action: (has_program && rng.u8(0..4) > 0).then(|| match rng.u8(0..6) {
                0 => Action::Load { sorted: false },
                1 => Action::Load { sorted: true },
                2 => Action::Delete,
                3 => Action::Compact,
                4 => Action::Copy { targets: rng.usize(1..=2) },
                _ => Action::Backup { targets: rng.usize(1..=2) },
            }),
        });
        let lives = lives.collect();
        Self {
            seed,
            members: (seed % 3) as usize + 1,
            has_log_device: has_log && (seed / 3).is_multiple_of(2),
            through_target: has_program && (seed / 6) % 2 == 1,
            block_bytes: if page_size >= 4096 { one_of(rng, &[512, 4096]) } else { 512 },
            page_size,
            writers: rng.usize(1..=3),
            workers,
            frames: 128 * workers as u64 + one_of(rng, &[0, 64, 2048]),
            checkpoint_bytes: one_of(rng, &[64 << 10, 256 << 10, 4 << 20]),
            has_log,
            value_bytes_max: one_of(rng, &[100, 1000, 12_000, 40_000]),
            encrypted: seed % 4 == 1,
            compression: match seed % 5 {
                1 => Compression::Lz4,
                3 => Compression::Zstd,
                _ => Compression::None,
            },
            in_pieces: rng.bool(),
            lives,
            fault,
        }
    }

    /// Returns the devices of a store: its members and its log device.
    pub(super) fn shapes(&self) -> Vec<Shape> {
        let shape = |size_bytes| Shape { size_bytes, block_bytes: self.block_bytes };
        let mut shapes = vec![shape(MEMBER_BYTES); self.members];
        shapes.extend(self.has_log_device.then(|| shape(LOG_DEVICE_BYTES)));
        shapes
    }

    pub(super) fn target_shape(&self) -> Shape {
        Shape { size_bytes: MEMBER_BYTES, block_bytes: self.block_bytes }
    }

    /// Returns the key of the stores.
    pub(super) fn key(&self) -> Option<Arc<dyn Encryption>> {
        self.encrypted.then(|| Arc::new(EncryptionKey::from_bytes(KEY)) as Arc<dyn Encryption>)
    }

    /// Returns the arguments by which a command gets the key, from a file in this folder.
    pub(super) fn key_arguments(&self, folder: &Path) -> Result<Vec<String>, String> {
        if !self.encrypted {
            return Ok(Vec::new());
        }
        let file = folder.join("key");
        std::fs::write(&file, KEY).map_err(|error| format!("writing a key file: {error}"))?;
        Ok(vec!["--key-file".to_owned(), file.display().to_string()])
    }

    /// Returns the members and the options for a store on these devices. No bug is planted.
    pub(super) fn store(
        &self,
        mut devices: Vec<Arc<dyn BlockDevice>>,
    ) -> (Vec<Arc<dyn BlockDevice>>, StoreOptions) {
        let log = devices.split_off(self.members.min(devices.len()));
        let defaults = StoreOptions::default();
        let options = StoreOptions {
            memory_bytes: self.frames * self.page_size as u64,
            workers: self.workers,
            page_size: self.page_size,
            checkpoint_bytes: self.checkpoint_bytes,
            log: self.has_log,
            log_place: log.into_iter().next().map_or(LogPlace::Unsaid, LogPlace::Device),
            run_pages_max: if self.in_pieces { 3 } else { u64::MAX },
            encryption: self.key(),
            ..defaults
        };
        (devices, options)
    }

    /// Like [`Self::store`], with the planted bug for the store of a load.
    pub(super) fn store_of_load(
        &self,
        devices: Vec<Arc<dyn BlockDevice>>,
    ) -> (Vec<Arc<dyn BlockDevice>>, StoreOptions) {
        let (members, mut options) = self.store(devices);
        options.log_flushed = self.fault != Some(Fault::UnflushedLog);
        if let Some(Fault::Engine(canary)) = self.fault {
            options.canary = Some(canary);
        }
        (members, options)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { members, page_size, block_bytes, writers, workers, frames, compression, .. } =
            self;
        let kept = match (self.has_log, self.has_log_device) {
            (false, _) => "without a log",
            (true, false) => "its log in it",
            (true, true) => "with a log device",
        };
        let way = if self.through_target { ", through qpair target" } else { "" };
        let encrypted = if self.encrypted { ", encrypted" } else { "" };
        write!(
            f,
            "{members} members, {kept}{way}{encrypted}, compression {compression}; {writers} writers, {workers} workers, {frames} pages of {page_size} bytes, blocks of {block_bytes}; commands"
        )?;
        for life in &self.lives {
            match life.action {
                None => f.write_str(" -")?,
                Some(action) => write!(f, " {action:?}")?,
            }
        }
        Ok(())
    }
}
