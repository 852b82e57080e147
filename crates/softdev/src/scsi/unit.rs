//! A logical unit on a medium.

use qpair_block::Result;
use qpair_scsi_unit::{Facts, Limits, LogicalUnit, Reply, Step};
use qpair_scsi_wire::command::opcode;
use qpair_scsi_wire::luns::Lun;
use qpair_scsi_wire::sense::{Code, Sense};
use qpair_scsi_wire::{CHECK_CONDITION, GOOD};

use crate::digest::local_name;
use crate::hba::DiskOptions;
use crate::medium::{MediumOptions, Scratch, Volume};
use qpair_pci::model::{DmaSpan, DmaTable, Extent};

/// Bytes of a disk's volatile write cache.
const CACHE_BYTES: u64 = 64 << 20;
const PRODUCT: &str = "SOFT SAS DISK";

/// A unit to be made.
#[derive(Clone, Debug)]
pub(crate) struct UnitOptions {
    pub(crate) medium: MediumOptions,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    /// The size of the volatile write cache; 0 if there is none.
    pub(crate) cache_bytes: u64,
    pub(crate) serial: String,
    /// The unit's name (NAA), and the address of its port.
    pub(crate) naa: u64,
    pub(crate) port: u64,
    /// 1: a solid state drive; else revolutions a minute.
    pub(crate) rotation: u16,
    /// Whether the unit keeps a timestamp that can be set.
    pub(crate) timestamp: bool,
}

impl UnitOptions {
    /// Returns the options of a disk, which has this `number` on the adapter with this serial
    /// number.
    pub(crate) fn of(disk: &DiskOptions, serial: &str, number: u32, has_cache: bool) -> Self {
        let naa = local_name(serial, number, 4);
        Self {
            medium: disk.medium.clone(),
            size_bytes: disk.size_bytes,
            block_bytes: disk.logical_block_bytes,
            cache_bytes: if has_cache { CACHE_BYTES } else { 0 },
            serial: format!("{serial}{number:02}"),
            naa,
            port: naa + 1,
            rotation: disk.profile.rotation(),
            timestamp: disk.timestamp,
        }
    }
}

/// A logical unit.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) volume: Volume,
    pub(crate) logical: LogicalUnit,
}

/// The data buffer of a command: memory that was looked up, for one direction.
pub(crate) struct Data<'a> {
    pub(crate) table: &'a DmaTable,
    pub(crate) extents: &'a mut Vec<Extent>,
    /// The initiator sends; else it receives, if there is any.
    pub(crate) is_out: bool,
    pub(crate) scratch: &'a mut Scratch,
}

impl Data<'_> {
    /// Bytes that there are.
    pub(crate) fn len(&self) -> usize {
        self.extents.iter().map(|extent| extent.len_bytes()).sum()
    }

    /// The first `len` bytes at most.
    pub(crate) fn span(&mut self, len: usize) -> DmaSpan<'_> {
        DmaTable::truncate(self.extents, len);
        DmaSpan::new(self.table, self.extents)
    }

    /// Copies the first bytes that the initiator sends. Returns false if it sends fewer.
    fn take(&mut self, into: &mut [u8]) -> bool {
        let is_whole = self.is_out && self.len() >= into.len();
        if is_whole {
            self.span(into.len()).copy_to(into);
        }
        is_whole
    }

    /// Sends bytes, as far as the initiator has room.
    fn give(&mut self, bytes: &[u8]) -> Answer {
        if self.is_out {
            return Answer::good(0);
        }
        let moved = self.len().min(bytes.len());
        self.span(moved).copy_from(bytes);
        Answer { is_overrun: moved < bytes.len(), ..Answer::good(moved) }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u8,
    pub(crate) sense: Option<Sense>,
    /// Bytes moved.
    pub(crate) moved: usize,
    /// There was more to move than memory for it.
    pub(crate) is_overrun: bool,
}

impl Answer {
    pub(crate) fn good(moved: usize) -> Self {
        Self { status: GOOD, sense: None, moved, is_overrun: false }
    }

    pub(crate) fn check(sense: Sense) -> Self {
        Self { status: CHECK_CONDITION, sense: Some(sense), moved: 0, is_overrun: false }
    }
}

impl Unit {
    pub(crate) fn open(options: UnitOptions) -> Result<Self> {
        let volume = Volume::open(
            &options.medium,
            options.size_bytes,
            options.block_bytes,
            options.cache_bytes,
        )?;
        let facts = Facts {
            product: PRODUCT,
            serial: options.serial,
            naa: options.naa,
            port: Some(options.port),
            block_bytes: options.block_bytes,
            // Blocks of 512 bytes are eighths of a physical one, as on drives that say 512e.
            physical_exponent: if options.block_bytes == 512 { 3 } else { 0 },
            rotation: options.rotation,
            has_cache: volume.has_cache(),
            read_only: false,
            reads_zeroes: true,
            limits: Limits {
                transfer_bytes_max: 4 << 20,
                unmap_bytes_max: 512 << 20,
                unmap_ranges_max: 256,
                write_same_bytes_max: 64 << 20,
            },
            now: qpair_block::time::now,
            without: if options.timestamp { &[] } else { &[opcode::MAINTENANCE_OUT] },
        };
        Ok(Self { volume, logical: LogicalUnit::new(facts) })
    }

    /// Resets the unit, which then reports a unit attention with this code.
    pub(crate) fn reset(&self, code: Code) {
        self.logical.reset(code);
    }

    /// A hard reset.
    pub(crate) fn hard_reset(&self, code: Code) {
        self.logical.hard_reset(code);
    }

    /// The power failed, and is back.
    pub(crate) fn power_cut(&self, seed: u64) {
        // A medium that cannot be written has lost more than this would take.
        let _ = self.volume.lose_cache(seed);
        self.logical.power_cut();
    }

    /// Executes a command.
    pub(crate) fn execute(&self, lun: Lun, cdb: &[u8], mut data: Data<'_>) -> Answer {
        let blocks = self.volume.blocks;
        match self.logical.begin(lun, cdb, blocks, |into| data.take(into)) {
            Step::Ended(Reply::Good(taken)) => Answer::good(taken as usize),
            Step::Ended(Reply::Data(bytes)) => data.give(&bytes),
            Step::Ended(Reply::Check(sense)) => Answer::check(sense),
            Step::Work(work) => self.carry_out(work, &mut data),
        }
    }
}
