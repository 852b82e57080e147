//! Namespaces whose blocks are not here: the thread that steps the controller is handed their commands ([`super::handed`]). They come and go
//! while a driver is there, which is told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair_nvme_wire::{IdentifyController, IdentifyNamespace, LbaFormat, Status};

use super::handed::Ticket;
use super::logs::Names;
use super::options::{Doorbells, SoftNvmeOptions};
use qpair_pci::model::locked;

/// Optional events: that namespaces have changed (Base §5.17.2.1, OAES).
pub(crate) const NAMESPACES_CHANGED: u32 = 1 << 8;

/// A controller to be made of namespaces that come later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OuterOptions {
    /// Most pairs of I/O queues, 1 to 511.
    pub queues_max: u16,
    /// Most entries of an I/O queue, 2 to 65536.
    pub queue_entries_max: u32,
    /// Largest transfer as a power of two of 4 KiB, 1 to 10.
    pub mdts: u8,
    /// How drivers tell of commands.
    pub doorbells: Doorbells,
    /// Serial number, at most 20 printable characters.
    pub serial: String,
    /// Model, at most 40 characters.
    pub model: String,
    /// The subsystem's name (NQN), which all of its controllers share.
    pub subsystem: String,
    /// The controller's number in its subsystem.
    pub controller_id: u16,
    /// Highest number of a namespace.
    pub namespaces_max: u32,
}

impl OuterOptions {
    /// What it is as a drive. It always says that it has a volatile write cache, so that drivers flush: the holder of the blocks knows better.
    pub(crate) fn of_drive(&self) -> SoftNvmeOptions {
        SoftNvmeOptions {
            namespaces: Vec::new(),
            queues_max: self.queues_max,
            queue_entries_max: self.queue_entries_max,
            mdts: self.mdts,
            volatile_write_cache: true,
            serial: self.serial.clone(),
            doorbells: self.doorbells,
            ..SoftNvmeOptions::default()
        }
    }
}

/// A namespace, as a driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterNamespace {
    /// Its number, from 1 on.
    pub nsid: u32,
    /// How many blocks it has.
    pub blocks: u64,
    /// Bytes of a block, a power of two.
    pub logical_block_bytes: u32,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// Whether blocks of it can be deallocated; else what asks for it succeeds and does nothing, as it may (NVM Command Set §3.2.3).
    pub deallocates: bool,
    /// Its UUID, which no other namespace has.
    pub uuid: [u8; 16],
}

impl OuterNamespace {
    /// First byte and bytes of `blocks` blocks from `first` on.
    pub(crate) fn range(&self, first: u64, blocks: u32) -> Result<(u64, u64), Status> {
        let blocks = u64::from(blocks);
        if first >= self.blocks || blocks > self.blocks - first {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        let block = u64::from(self.logical_block_bytes);
        Ok((first * block, blocks * block))
    }
}

/// What such a controller has beside the others.
#[derive(Debug)]
pub(crate) struct Outer {
    options: OuterOptions,
    /// By number.
    namespaces: Mutex<Vec<OuterNamespace>>,
    /// Flushes of all namespaces that the controller itself wants, and what waits for them.
    pub(crate) flushes: Mutex<Vec<Ticket>>,
    /// Memory was opened or closed since a caller asked.
    pub(crate) is_memory_new: AtomicBool,
}

impl Outer {
    pub(crate) fn new(options: OuterOptions) -> Self {
        let (namespaces, flushes) = (Mutex::default(), Mutex::default());
        Self { options, namespaces, flushes, is_memory_new: AtomicBool::new(true) }
    }

    /// Puts others in their place; which have changed.
    pub(crate) fn set(&self, mut namespaces: Vec<OuterNamespace>) -> Vec<u32> {
        namespaces.sort_by_key(|it| it.nsid);
        let mut held = locked(&self.namespaces);
        let differs = |these: &[OuterNamespace], others: &[OuterNamespace]| {
            these.iter().filter(|it| !others.contains(it)).map(|it| it.nsid).collect::<Vec<_>>()
        };
        let mut changed = differs(&held, &namespaces);
        changed.extend(differs(&namespaces, &held));
        *held = namespaces;
        changed
    }

    pub(crate) fn all(&self) -> std::sync::MutexGuard<'_, Vec<OuterNamespace>> {
        locked(&self.namespaces)
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.all().iter().map(|it| it.nsid).collect()
    }

    fn get(&self, nsid: u32) -> Result<OuterNamespace, Status> {
        self.all().iter().find(|it| it.nsid == nsid).copied().ok_or(Status::INVALID_NAMESPACE)
    }

    pub(crate) fn names(&self, nsid: u32) -> Result<Names, Status> {
        let uuid = self.get(nsid)?.uuid;
        Ok(Names { uuid, nguid: uuid, ..Names::default() })
    }

    /// Zeroes for a number that could be one's, and is none's now.
    pub(crate) fn identify(&self, nsid: u32) -> Result<IdentifyNamespace, Status> {
        let Ok(it) = self.get(nsid) else {
            let could_be = (1..=self.options.namespaces_max).contains(&nsid);
            return could_be.then(IdentifyNamespace::default).ok_or(Status::INVALID_NAMESPACE);
        };
        let data_shift = it.logical_block_bytes.trailing_zeros() as u8;
        Ok(IdentifyNamespace {
            size_blocks: it.blocks,
            capacity_blocks: it.blocks,
            used_blocks: it.blocks,
            formats: vec![LbaFormat { metadata_bytes: 0, data_shift }],
            shared: true,
            write_protected: it.read_only,
            nguid: it.uuid,
            ..IdentifyNamespace::default()
        })
    }

    pub(crate) fn identify_controller(&self, of_drive: IdentifyController) -> IdentifyController {
        const SEVERAL_CONTROLLERS: u8 = 1 << 1;
        const DATASET_MANAGEMENT: u16 = 1 << 2;
        const WRITE_ZEROES: u16 = 1 << 3;
        let options = &self.options;
        // Drivers read it once, and namespaces come later.
        let all = self.all();
        let deallocates = all.is_empty() || all.iter().any(|it| it.deallocates);
        IdentifyController {
            model: options.model.clone(),
            subsystem: options.subsystem.clone(),
            controller_id: options.controller_id,
            multi_path: SEVERAL_CONTROLLERS,
            async_events: NAMESPACES_CHANGED,
            namespaces: options.namespaces_max,
            nvm_commands: WRITE_ZEROES | if deallocates { DATASET_MANAGEMENT } else { 0 },
            ..of_drive
        }
    }

    pub(crate) fn tell_of_memory(&self) {
        self.is_memory_new.store(true, Ordering::Release);
    }
}
