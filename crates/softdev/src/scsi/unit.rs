//! A logical unit on a medium.

use qpair_block::Result;
use qpair_scsi_unit::{Facts, Limits, LogicalUnit, ModeSelect, Reply, Step};
use qpair_scsi_wire::command::opcode;
use qpair_scsi_wire::luns::Lun;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::{CHECK_CONDITION, GOOD};

use super::blocks::{TRANSFER_BYTES_MAX, UNMAP_BYTES_MAX, UNMAP_RANGES_MAX, WRITE_SAME_BYTES_MAX};

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

    /// Returns the first `len` bytes that the initiator sends, or `None` if it sends fewer.
    pub(crate) fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        if !self.is_out || self.len() < len {
            return None;
        }
        let mut bytes = vec![0; len];
        self.span(len).copy_to(&mut bytes);
        Some(bytes)
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
                transfer_bytes_max: TRANSFER_BYTES_MAX,
                unmap_bytes_max: UNMAP_BYTES_MAX,
                unmap_ranges_max: UNMAP_RANGES_MAX,
                write_same_bytes_max: WRITE_SAME_BYTES_MAX,
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
        match self.logical.begin(lun, cdb, self.volume.blocks) {
            Step::Ended(Reply::Good) => Answer::good(0),
            Step::Ended(Reply::Data(bytes)) => data.give(&bytes),
            Step::Ended(Reply::Check(sense)) => Answer::check(sense),
            Step::ModeSelect(select) => self.mode_select(select, &mut data),
            Step::SetTimestamp(len) => {
                let bytes = data.take(len).unwrap_or_default();
                let set = self.logical.set_timestamp(&bytes);
                set.map_or_else(Answer::check, |()| Answer::good(len))
            }
            Step::Blocks(command) => self.execute_blocks(command, &mut data),
        }
    }

    fn mode_select(&self, select: ModeSelect, data: &mut Data<'_>) -> Answer {
        let len = select.len.into();
        let Some(bytes) = data.take(len) else {
            return Answer::check(Sense::new(Key::IllegalRequest, Code::PARAMETER_LIST_LENGTH));
        };
        let write_cache = match self.logical.mode_select(select, &bytes) {
            Ok(write_cache) => write_cache,
            Err(sense) => return Answer::check(sense),
        };
        if !write_cache && self.logical.has_write_cache() && self.volume.flush().is_err() {
            return Answer::check(Sense::new(Key::MediumError, Code::WRITE_ERROR));
        }
        self.logical.set_write_cache(write_cache);
        Answer::good(len)
    }
}
