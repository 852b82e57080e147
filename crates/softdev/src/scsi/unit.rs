//! A logical unit on a medium.

use qpair_block::Result;
use qpair_scsi_unit::{Facts, Limits, LogicalUnit, Reply, Step};
use qpair_scsi_wire::command::opcode;
use qpair_scsi_wire::luns::Lun;
use qpair_scsi_wire::sense::{Code, Sense};
use qpair_scsi_wire::{CHECK_CONDITION, GOOD};

use crate::digest::local_name;
use crate::hba::DiskOptions;
use crate::medium::{Scratch, Volume};
use qpair_pci::model::{DmaSpan, DmaTable, Extent};

/// The size of a disk's volatile write cache, in bytes.
const CACHE_BYTES: u64 = 64 << 20;
const PRODUCT: &str = "SOFT SAS DISK";

#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) volume: Volume,
    pub(crate) logical: LogicalUnit,
}

/// The data buffer of a command: memory for one direction, already looked up.
pub(crate) struct Data<'a> {
    pub(crate) table: &'a DmaTable,
    pub(crate) extents: &'a mut Vec<Extent>,
    /// Whether the initiator sends the data. Otherwise it receives data, if there is any.
    pub(crate) is_out: bool,
    pub(crate) scratch: &'a mut Scratch,
}

impl Data<'_> {
    /// Returns the number of bytes of the buffer.
    pub(crate) fn len(&self) -> usize {
        self.extents.iter().map(|extent| extent.len_bytes()).sum()
    }

    /// Returns at most the first `len` bytes.
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

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u8,
    pub(crate) sense: Option<Sense>,
    /// The number of bytes moved.
    pub(crate) moved: usize,
    /// Whether the command had more data than there was memory for.
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
    /// Opens disk `number` of the adapter with this serial number.
    pub(crate) fn open(
        disk: &DiskOptions,
        serial: &str,
        number: u32,
        has_cache: bool,
    ) -> Result<Self> {
        let (block_bytes, naa) = (disk.logical_block_bytes, local_name(serial, number, 4));
        let cache_bytes = if has_cache { CACHE_BYTES } else { 0 };
        let volume = Volume::open(&disk.medium, disk.size_bytes, block_bytes, cache_bytes)?;
        let facts = Facts {
            product: PRODUCT,
            serial: format!("{serial}{number:02}"),
            naa,
            port: Some(naa + 1),
            block_bytes,
            // A block of 512 bytes is an eighth of a physical block, as on 512e drives.
            physical_exponent: if block_bytes == 512 { 3 } else { 0 },
            rotation: disk.profile.rotation(),
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
            without: if disk.timestamp { &[] } else { &[opcode::MAINTENANCE_OUT] },
        };
        Ok(Self { volume, logical: LogicalUnit::new(facts) })
    }

    /// Resets the unit, which then reports a unit attention with this code.
    pub(crate) fn reset(&self, code: Code) {
        self.logical.reset(code);
    }

    pub(crate) fn hard_reset(&self, code: Code) {
        self.logical.hard_reset(code);
    }

    /// Simulates a power failure, after which the power is back.
    pub(crate) fn power_cut(&self, seed: u64) {
        // If the medium cannot be written, more is lost than the cut would take.
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
