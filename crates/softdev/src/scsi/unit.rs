//! A logical unit: its state, and which command goes where.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use qpair_block::Result;
use qpair_scsi_wire::luns::Lun;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::{CHECK_CONDITION, Command, GOOD, Undecodable};

use crate::digest::local_name;
use crate::dma::{DmaSpan, DmaTable, Extent};
use crate::hba::DiskOptions;
use crate::medium::{MediumOptions, Scratch, Volume};

/// Bytes of a disk's volatile write cache.
const CACHE_BYTES: u64 = 64 << 20;
/// Unit attentions that wait to be told, at most: older ones go first.
const ATTENTIONS_MAX: usize = 8;

/// A unit to be made.
#[derive(Clone, Debug)]
pub(crate) struct UnitOptions {
    pub(crate) medium: MediumOptions,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    /// Of a volatile write cache, or 0.
    pub(crate) cache_bytes: u64,
    pub(crate) serial: String,
    /// The unit's name (NAA), and the address of its port.
    pub(crate) naa: u64,
    pub(crate) port: u64,
    /// 1: a solid state drive; else revolutions a minute.
    pub(crate) rotation: u16,
}

impl UnitOptions {
    /// Of a disk: `number` among those of an adapter with that serial number.
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
        }
    }
}

/// A logical unit.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) volume: Volume,
    pub(crate) options: UnitOptions,
    /// What the initiator is to be told before anything else.
    attentions: Mutex<VecDeque<Code>>,
    has_attention: AtomicBool,
    /// Whether the write cache is in use.
    write_cache: AtomicBool,
    is_stopped: AtomicBool,
}

/// What goes with a command: memory that was looked up, of one direction.
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
        self.extents.iter().map(|extent| extent.len()).sum()
    }

    /// The first `len` bytes at most.
    pub(crate) fn span(&mut self, len: usize) -> DmaSpan<'_> {
        DmaTable::truncate(self.extents, len);
        DmaSpan::new(self.table, self.extents)
    }

    /// What the initiator sends, `len` bytes; `None`: it does not send so many.
    pub(crate) fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        if !self.is_out || self.len() < len {
            return None;
        }
        let mut bytes = vec![0; len];
        self.span(len).copy_to(&mut bytes);
        Some(bytes)
    }

    /// Sends bytes, up to what the initiator said that it has room for, and has.
    pub(crate) fn give(&mut self, bytes: &[u8], allocation: usize) -> Answer {
        let bytes = &bytes[..bytes.len().min(allocation)];
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

    pub(crate) fn illegal(code: Code) -> Self {
        Self::check(Sense::new(Key::IllegalRequest, code))
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
        let unit = Self {
            write_cache: AtomicBool::new(volume.has_cache()),
            volume,
            options,
            attentions: Mutex::default(),
            has_attention: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        };
        unit.attend(Code::POWER_ON);
        Ok(unit)
    }

    fn attentions(&self) -> MutexGuard<'_, VecDeque<Code>> {
        self.attentions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened that the initiator is to be told with its next command.
    pub(crate) fn attend(&self, code: Code) {
        let mut attentions = self.attentions();
        if attentions.len() == ATTENTIONS_MAX {
            attentions.pop_front();
        }
        if attentions.back() != Some(&code) {
            attentions.push_back(code);
        }
        self.has_attention.store(true, Ordering::Release);
    }

    fn take_attention(&self) -> Option<Code> {
        if !self.has_attention.load(Ordering::Acquire) {
            return None;
        }
        let mut attentions = self.attentions();
        let code = attentions.pop_front();
        self.has_attention.store(!attentions.is_empty(), Ordering::Release);
        code
    }

    /// It was reset: it forgets what a reset forgets, and says so.
    pub(crate) fn reset(&self, code: Code) {
        self.write_cache.store(self.volume.has_cache(), Ordering::Relaxed);
        self.is_stopped.store(false, Ordering::Relaxed);
        self.attend(code);
    }

    /// The power failed, and is back.
    pub(crate) fn power_cut(&self, seed: u64) {
        // A medium that cannot be written has lost more than this would take.
        let _ = self.volume.lose_cache(seed);
        self.attentions().clear();
        self.reset(Code::POWER_ON);
    }

    pub(crate) fn has_write_cache(&self) -> bool {
        self.write_cache.load(Ordering::Relaxed)
    }

    pub(crate) fn set_write_cache(&self, is_on: bool) {
        self.write_cache.store(is_on && self.volume.has_cache(), Ordering::Relaxed);
    }

    /// Executes a command.
    pub(crate) fn execute(&self, lun: Lun, cdb: &[u8], mut data: Data<'_>) -> Answer {
        let command = match Command::decode(cdb) {
            Ok(command) => command,
            Err(undecodable) => {
                // What is attended to comes first, whatever the command is.
                if lun.number() == Some(0)
                    && let Some(code) = self.take_attention()
                {
                    return Answer::check(Sense::new(Key::UnitAttention, code));
                }
                return match undecodable {
                    Undecodable::Opcode => Answer::illegal(Code::INVALID_OPCODE),
                    Undecodable::Field(byte) => Answer::check(Sense::invalid_field(byte.into())),
                };
            }
        };
        let is_here = lun.number() == Some(0);
        match command {
            Command::Inquiry { page, allocation } => {
                return self.inquiry(is_here, page, allocation.into(), &mut data);
            }
            Command::ReportLuns { select, allocation } => {
                return Self::report_luns(select, allocation as usize, &mut data);
            }
            Command::RequestSense { descriptor, allocation } => {
                let code = if is_here { self.take_attention() } else { Some(Code::NO_SUCH_UNIT) };
                let key = if is_here { Key::UnitAttention } else { Key::IllegalRequest };
                let sense = code.map_or(Sense::default(), |code| Sense::new(key, code));
                let (long, len) = sense.encode_descriptors();
                let fixed = sense.encode_fixed();
                let bytes = if descriptor { &long[..len] } else { &fixed[..] };
                return data.give(bytes, allocation.into());
            }
            _ => {}
        }
        if !is_here {
            return Answer::illegal(Code::NO_SUCH_UNIT);
        }
        if let Some(code) = self.take_attention() {
            return Answer::check(Sense::new(Key::UnitAttention, code));
        }
        self.execute_here(command, &mut data)
    }

    fn execute_here(&self, command: Command, data: &mut Data<'_>) -> Answer {
        match command {
            Command::ModeSense { .. } => return self.mode_sense(&command, data),
            Command::ModeSelect { width, page_format, save, len } => {
                return self.mode_select(width, page_format, save, len.into(), data);
            }
            Command::ReportOperations { .. } => return Self::report_operations(&command, data),
            Command::LogSense { page, subpage, parameter, allocation, .. } => {
                return Self::log_sense(page, subpage, parameter, allocation.into(), data);
            }
            Command::StartStop { start, power, .. } => {
                if power == 0 {
                    self.is_stopped.store(!start, Ordering::Relaxed);
                }
                return Answer::good(0);
            }
            _ => {}
        }
        if self.is_stopped.load(Ordering::Relaxed) {
            return Answer::check(Sense::new(Key::NotReady, Code::NEEDS_START));
        }
        match command {
            Command::TestUnitReady => Answer::good(0),
            Command::ReadCapacity10 => data.give(&self.capacity().encode10(), 8),
            Command::ReadCapacity16 { allocation } => {
                data.give(&self.capacity().encode16(), allocation as usize)
            }
            _ => self.execute_blocks(command, data),
        }
    }
}
