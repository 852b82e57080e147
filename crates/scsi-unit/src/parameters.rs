//! Commands that report the properties of a unit, and the few that change them.

use qpair_scsi_wire::capacity::Capacity;
use qpair_scsi_wire::inquiry::{Inquiry, TYPE_DISK, TYPE_NONE};
use qpair_scsi_wire::luns::{self, Lun};
use qpair_scsi_wire::mode::{self, Head};
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::vpd::{self, BlockLimits, Characteristics, Provisioning};
use qpair_scsi_wire::{Command, Width, operations};

use crate::blocks::Work;
use crate::operations::OPERATIONS;
use crate::unit::{LogicalUnit, Reply, Step};

const VENDOR: &str = "QPAIR";
const REVISION: &str = "0001";
/// The number of bytes that a transfer should not exceed.
const TRANSFER_BYTES_BEST: u64 = 1 << 20;

impl LogicalUnit {
    pub(crate) fn inquiry(&self, is_here: bool, page: Option<u8>, allocation: usize) -> Reply {
        let Some(page) = page else {
            let (qualifier, device_type) = if is_here { (0, TYPE_DISK) } else { (3, TYPE_NONE) };
            let inquiry = Inquiry {
                qualifier,
                device_type,
                version: 6,
                queues: is_here,
                vendor: VENDOR.into(),
                product: self.facts().product.into(),
                revision: REVISION.into(),
                ..Inquiry::default()
            };
            return Reply::data(&inquiry.encode(), allocation);
        };
        if !is_here {
            return Reply::illegal(Code::NO_SUCH_UNIT);
        }
        match self.vital_page(page) {
            Some(bytes) => Reply::data(&bytes, allocation),
            None => Reply::Check(Sense::invalid_field(2)),
        }
    }

    fn vital_page(&self, page: u8) -> Option<Vec<u8>> {
        use vpd::page;
        let facts = self.facts();
        let limits = facts.limits;
        let blocks = |bytes: u64| bytes / u64::from(facts.block_bytes.max(1));
        Some(match page {
            page::SUPPORTED => vpd::encode(
                page,
                &[
                    page::SUPPORTED,
                    page::UNIT_SERIAL_NUMBER,
                    page::DEVICE_IDENTIFICATION,
                    page::BLOCK_LIMITS,
                    page::BLOCK_DEVICE_CHARACTERISTICS,
                    page::LOGICAL_BLOCK_PROVISIONING,
                ],
            ),
            page::UNIT_SERIAL_NUMBER => vpd::encode(page, facts.serial.as_bytes()),
            page::DEVICE_IDENTIFICATION => {
                vpd::encode(page, &vpd::encode_identification(facts.naa, facts.port))
            }
            page::BLOCK_LIMITS => BlockLimits {
                granularity_blocks: 1,
                transfer_blocks_max: blocks(limits.transfer_bytes_max) as u32,
                transfer_blocks_best: blocks(TRANSFER_BYTES_BEST.min(limits.transfer_bytes_max))
                    as u32,
                unmap_blocks_max: blocks(limits.unmap_bytes_max) as u32,
                unmap_ranges_max: limits.unmap_ranges_max,
                unmap_granularity_blocks: 1,
                write_same_blocks_max: blocks(limits.write_same_bytes_max),
                write_same_needs_blocks: true,
            }
            .encode(),
            page::BLOCK_DEVICE_CHARACTERISTICS => {
                Characteristics { rotation: facts.rotation, zoned: 0 }.encode()
            }
            page::LOGICAL_BLOCK_PROVISIONING => Provisioning {
                unmap: facts.unmaps(),
                // WRITE SAME with UNMAP makes blocks read as zeroes in any case.
                write_same: !facts.read_only && limits.write_same_bytes_max > 0,
                reads_zeroes: facts.reads_zeroes,
                kind: 2,
            }
            .encode(),
            _ => return None,
        })
    }

    pub(crate) fn capacity(&self, blocks: u64) -> Capacity {
        let facts = self.facts();
        Capacity {
            last_block: blocks.saturating_sub(1),
            block_bytes: facts.block_bytes,
            physical_exponent: facts.physical_exponent,
            provisioned: facts.unmaps(),
            reads_zeroes: facts.reads_zeroes,
            ..Capacity::default()
        }
    }

    pub(crate) fn report_luns(select: u8, allocation: usize) -> Reply {
        let units = match select {
            0 | 2 => vec![Lun::default()],
            // Well-known units: there are none.
            1 => Vec::new(),
            _ => return Reply::Check(Sense::invalid_field(2)),
        };
        Reply::data(&luns::encode(&units), allocation)
    }

    /// Returns a mode page with its current values, or with the bits that can be changed.
    fn mode_page(&self, page: u8, is_changeable: bool) -> Option<Vec<u8>> {
        let mut bytes = match page {
            mode::page::CACHING => {
                let is_on = match is_changeable {
                    true => self.facts().has_cache,
                    false => self.has_write_cache(),
                };
                return Some(mode::encode_caching(is_on).to_vec());
            }
            // The drive reports errors and repairs them: AWRE, ARRE.
            mode::page::ERROR_RECOVERY => vec![page, 10, 0xC0, 8, 0, 0, 0, 0, 8, 0, 0, 0],
            // Commands are reordered without restriction.
            mode::page::CONTROL => vec![page, 10, 2, 0x10, 0, 0, 0, 0, 0, 0, 0, 0],
            mode::page::INFORMATIONAL_EXCEPTIONS => vec![page, 10, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            _ => return None,
        };
        if is_changeable {
            bytes[2..].fill(0);
        }
        Some(bytes)
    }

    pub(crate) fn mode_sense(&self, command: &Command, count: u64) -> Reply {
        let Command::ModeSense { width, no_blocks, control, page, subpage, allocation } = *command
        else {
            return Reply::illegal(Code::INVALID_OPCODE);
        };
        if control == 3 {
            return Reply::illegal(Code::SAVING_NOT_SUPPORTED);
        }
        if !matches!(subpage, 0 | 0xFF) {
            return Reply::Check(Sense::invalid_field(3));
        }
        let wanted = match page {
            mode::page::ALL => vec![
                mode::page::ERROR_RECOVERY,
                mode::page::CACHING,
                mode::page::CONTROL,
                mode::page::INFORMATIONAL_EXCEPTIONS,
            ],
            page => vec![page],
        };
        let mut pages = Vec::new();
        for page in wanted {
            match self.mode_page(page, control == 1) {
                Some(bytes) => pages.extend(bytes),
                None => return Reply::Check(Sense::invalid_field(2)),
            }
        }
        let mut blocks = Vec::new();
        if !no_blocks {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            blocks.extend(count.to_be_bytes());
            blocks.extend(self.facts().block_bytes.to_be_bytes());
        }
        let write_protected = self.facts().read_only;
        let head = Head { write_protected, force_unit_access: true, pages_at: 0 };
        Reply::data(&head.encode(width, &blocks, &pages), allocation.into())
    }

    /// Turns the write cache on or off for a MODE SELECT with `len` bytes of parameters. When it is
    /// turned off, the data in it has to be made durable.
    pub(crate) fn mode_select(
        &self,
        width: Width,
        len: u16,
        take: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<Step, Sense> {
        let mut bytes = vec![0; len.into()];
        if !take(&mut bytes) {
            return Err(Sense::new(Key::IllegalRequest, Code::PARAMETER_LIST_LENGTH));
        }
        let write_cache = self.selected_cache(width, &bytes)?;
        let goes_off = !write_cache && self.has_write_cache();
        // From now on writes are durable; the flush covers the earlier ones.
        self.set_write_cache(write_cache);
        Ok(match goes_off {
            true => Step::Work(Work::flush(len.into())),
            false => Step::Ended(Reply::Good(len.into())),
        })
    }

    /// Decodes the parameters of a MODE SELECT. Returns whether the write cache is to be on.
    fn selected_cache(&self, width: Width, bytes: &[u8]) -> Result<bool, Sense> {
        let wrong = |code| Sense::new(Key::IllegalRequest, code);
        let wrong_length = wrong(Code::PARAMETER_LIST_LENGTH);
        let head = Head::decode(bytes, width).ok_or(wrong_length)?;
        let rest = bytes.get(head.pages_at..).ok_or(wrong_length)?;
        let mut read = 0;
        let mut write_cache = self.has_write_cache();
        for (page, subpage, asked) in mode::pages(rest) {
            read += asked.len();
            let (now, mask) = (self.mode_page(page, false), self.mode_page(page, true));
            let (Some(now), Some(mask), 0) = (now, mask, subpage) else {
                return Err(wrong(Code::INVALID_FIELD_IN_LIST));
            };
            let differs = |at: usize| (asked[at] ^ now[at]) & !mask[at] != 0;
            if asked.len() != now.len() || (2..now.len()).any(differs) {
                return Err(wrong(Code::INVALID_FIELD_IN_LIST));
            }
            if page == mode::page::CACHING {
                write_cache = asked[2] & mode::WRITE_CACHE != 0;
            }
        }
        if read == rest.len() { Ok(write_cache) } else { Err(wrong_length) }
    }

    pub(crate) fn report_operations(&self, command: &Command) -> Reply {
        let Command::ReportOperations { timeouts, options, opcode, action, allocation } = *command
        else {
            return Reply::illegal(Code::INVALID_OPCODE);
        };
        let known = || OPERATIONS.iter().filter(|(code, ..)| !self.facts().without.contains(code));
        let bytes = match options {
            0 => {
                let all: Vec<_> = known()
                    .map(|(code, action, usage)| ((*code, *action), usage.len() as u16))
                    .collect();
                operations::encode_all(&all, timeouts)
            }
            1..=3 => {
                let same_code = || known().filter(|(code, ..)| *code == opcode);
                let has_actions = same_code().any(|(_, action, _)| action.is_some());
                match (options, has_actions) {
                    (1, true) | (2, false) if same_code().next().is_some() => {
                        return Reply::Check(Sense::invalid_field(2));
                    }
                    _ => {}
                }
                let found = same_code().find(|(_, its, _)| its.is_none_or(|its| its == action));
                operations::encode_one(found.map(|(_, _, usage)| *usage), timeouts)
            }
            _ => return Reply::Check(Sense::invalid_field(2)),
        };
        Reply::data(&bytes, allocation as usize)
    }

    pub(crate) fn log_sense(page: u8, subpage: u8, parameter: u16, allocation: usize) -> Reply {
        const SUPPORTED: u8 = 0x00;
        const TEMPERATURE: u8 = 0x0D;
        if subpage != 0 {
            return Reply::Check(Sense::invalid_field(3));
        }
        let bytes: &[u8] = match (page, parameter) {
            (SUPPORTED, _) => &[SUPPORTED, 0, 0, 2, SUPPORTED, TEMPERATURE],
            // The temperature is 30 degrees, and 60 at most.
            (TEMPERATURE, 0) => &[TEMPERATURE, 0, 0, 12, 0, 0, 3, 2, 0, 30, 0, 1, 3, 2, 0, 60],
            (TEMPERATURE, 1) => &[TEMPERATURE, 0, 0, 6, 0, 1, 3, 2, 0, 60],
            (TEMPERATURE, _) => return Reply::Check(Sense::invalid_field(5)),
            _ => return Reply::Check(Sense::invalid_field(2)),
        };
        Reply::data(bytes, allocation)
    }
}
