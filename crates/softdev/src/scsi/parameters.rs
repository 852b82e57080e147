//! Commands that tell what a unit is, and the few that change it.

use qpair_scsi_wire::capacity::Capacity;
use qpair_scsi_wire::command::opcode;
use qpair_scsi_wire::inquiry::{Inquiry, TYPE_DISK, TYPE_NONE};
use qpair_scsi_wire::luns::{self, Lun};
use qpair_scsi_wire::mode::{self, Head};
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::vpd::{self, BlockLimits, Characteristics, Provisioning};
use qpair_scsi_wire::{Command, Width, operations};

use super::blocks::{TRANSFER_BYTES_MAX, UNMAP_BYTES_MAX, UNMAP_RANGES_MAX, WRITE_SAME_BYTES_MAX};
use super::unit::{Answer, Data, Unit};

const VENDOR: &str = "QPAIR";
const PRODUCT: &str = "SOFT SAS DISK";
const REVISION: &str = "0001";

/// The commands, each with which bits of its descriptor block count.
const OPERATIONS: &[(u8, Option<u16>, &[u8])] = &[
    (opcode::TEST_UNIT_READY, None, &[0x00, 0, 0, 0, 0, 0]),
    (opcode::REQUEST_SENSE, None, &[0x03, 1, 0, 0, 0xFF, 0]),
    (opcode::READ_6, None, &[0x08, 0x1F, 0xFF, 0xFF, 0xFF, 0]),
    (opcode::WRITE_6, None, &[0x0A, 0x1F, 0xFF, 0xFF, 0xFF, 0]),
    (opcode::INQUIRY, None, &[0x12, 1, 0xFF, 0xFF, 0xFF, 0]),
    (opcode::MODE_SELECT_6, None, &[0x15, 0x11, 0, 0, 0xFF, 0]),
    (opcode::MODE_SENSE_6, None, &[0x1A, 8, 0xFF, 0xFF, 0xFF, 0]),
    (opcode::START_STOP_UNIT, None, &[0x1B, 1, 0, 0, 0xF1, 0]),
    (opcode::READ_CAPACITY_10, None, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    (opcode::READ_10, None, &[0x28, 0xE8, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]),
    (opcode::WRITE_10, None, &[0x2A, 0xE8, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]),
    (opcode::VERIFY_10, None, &[0x2F, 0xF6, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]),
    (opcode::SYNCHRONIZE_CACHE_10, None, &[0x35, 2, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]),
    (opcode::WRITE_SAME_10, None, &[0x41, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]),
    (opcode::UNMAP, None, &[0x42, 1, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0]),
    (opcode::LOG_SENSE, None, &[0x4D, 1, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]),
    (opcode::MODE_SELECT_10, None, &[0x55, 0x11, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0]),
    (opcode::MODE_SENSE_10, None, &[0x5A, 8, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0]),
    (opcode::READ_16, None, &SIXTEEN[0]),
    (opcode::WRITE_16, None, &SIXTEEN[1]),
    (opcode::VERIFY_16, None, &SIXTEEN[2]),
    (opcode::SYNCHRONIZE_CACHE_16, None, &SIXTEEN[3]),
    (opcode::WRITE_SAME_16, None, &SIXTEEN[4]),
    (
        opcode::SERVICE_ACTION_IN_16,
        Some(opcode::ACTION_READ_CAPACITY_16 as u16),
        &[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
    ),
    (opcode::REPORT_LUNS, None, &[0xA0, 0, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    (
        opcode::MAINTENANCE_IN,
        Some(opcode::ACTION_REPORT_OPERATIONS as u16),
        &[0xA3, 0x0C, 0x87, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
    ),
    (opcode::READ_12, None, &TWELVE[0]),
    (opcode::WRITE_12, None, &TWELVE[1]),
    (opcode::VERIFY_12, None, &TWELVE[2]),
];
const SIXTEEN: [[u8; 16]; 5] = [
    sixteen(opcode::READ_16, 0xE8),
    sixteen(opcode::WRITE_16, 0xE8),
    sixteen(opcode::VERIFY_16, 0xF6),
    sixteen(opcode::SYNCHRONIZE_CACHE_16, 2),
    sixteen(opcode::WRITE_SAME_16, 0xF9),
];
const TWELVE: [[u8; 12]; 3] = [
    twelve(opcode::READ_12, 0xE8),
    twelve(opcode::WRITE_12, 0xE8),
    twelve(opcode::VERIFY_12, 0xF6),
];

const fn sixteen(opcode: u8, flags: u8) -> [u8; 16] {
    let mut usage = [0xFF; 16];
    (usage[0], usage[1], usage[14], usage[15]) = (opcode, flags, 0, 0);
    usage
}

const fn twelve(opcode: u8, flags: u8) -> [u8; 12] {
    let mut usage = [0xFF; 12];
    (usage[0], usage[1], usage[10], usage[11]) = (opcode, flags, 0, 0);
    usage
}

impl Unit {
    pub(crate) fn inquiry(
        &self,
        is_here: bool,
        page: Option<u8>,
        allocation: usize,
        data: &mut Data<'_>,
    ) -> Answer {
        let Some(page) = page else {
            let (qualifier, device_type) = if is_here { (0, TYPE_DISK) } else { (3, TYPE_NONE) };
            let inquiry = Inquiry {
                qualifier,
                device_type,
                version: 6,
                queues: is_here,
                vendor: VENDOR.into(),
                product: PRODUCT.into(),
                revision: REVISION.into(),
                ..Inquiry::default()
            };
            return data.give(&inquiry.encode(), allocation);
        };
        if !is_here {
            return Answer::illegal(Code::NO_SUCH_UNIT);
        }
        match self.vital_page(page) {
            Some(bytes) => data.give(&bytes, allocation),
            None => Answer::check(Sense::invalid_field(2)),
        }
    }

    fn vital_page(&self, page: u8) -> Option<Vec<u8>> {
        use vpd::page;
        let shift = self.volume.block_shift;
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
            page::UNIT_SERIAL_NUMBER => vpd::encode(page, self.options.serial.as_bytes()),
            page::DEVICE_IDENTIFICATION => {
                let (naa, port) = (self.options.naa, self.options.port);
                let body = vpd::encode_identification(naa, port);
                vpd::encode(page, &body)
            }
            page::BLOCK_LIMITS => BlockLimits {
                granularity_blocks: 1,
                transfer_blocks_max: (TRANSFER_BYTES_MAX >> shift) as u32,
                transfer_blocks_best: ((1 << 20) >> shift) as u32,
                unmap_blocks_max: (UNMAP_BYTES_MAX >> shift) as u32,
                unmap_ranges_max: UNMAP_RANGES_MAX,
                unmap_granularity_blocks: 1,
                write_same_blocks_max: WRITE_SAME_BYTES_MAX >> shift,
                write_same_needs_blocks: true,
            }
            .encode(),
            page::BLOCK_DEVICE_CHARACTERISTICS => {
                Characteristics { rotation: self.options.rotation, zoned: 0 }.encode()
            }
            page::LOGICAL_BLOCK_PROVISIONING => {
                Provisioning { unmap: true, write_same: true, reads_zeroes: true, kind: 2 }.encode()
            }
            _ => return None,
        })
    }

    pub(crate) fn capacity(&self) -> Capacity {
        let block_bytes = self.options.block_bytes;
        // Blocks of 512 bytes are eighths of a physical one, as on drives that say 512e.
        let physical_exponent = if block_bytes == 512 { 3 } else { 0 };
        Capacity {
            last_block: self.volume.blocks - 1,
            block_bytes,
            physical_exponent,
            provisioned: true,
            reads_zeroes: true,
            ..Capacity::default()
        }
    }

    pub(crate) fn report_luns(select: u8, allocation: usize, data: &mut Data<'_>) -> Answer {
        let units = match select {
            0 | 2 => vec![Lun::default()],
            // Well-known units: there are none.
            1 => Vec::new(),
            _ => return Answer::check(Sense::invalid_field(2)),
        };
        data.give(&luns::encode(&units), allocation)
    }

    /// A page as it is, or which of its bits can be changed.
    fn mode_page(&self, page: u8, is_changeable: bool) -> Option<Vec<u8>> {
        let mut bytes = match page {
            mode::page::CACHING => {
                let is_on = match is_changeable {
                    true => self.volume.has_cache(),
                    false => self.has_write_cache(),
                };
                return Some(mode::encode_caching(is_on).to_vec());
            }
            // Errors are reported, and mended by the drive: AWRE, ARRE.
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

    pub(crate) fn mode_sense(&self, command: &Command, data: &mut Data<'_>) -> Answer {
        let Command::ModeSense { width, no_blocks, control, page, subpage, allocation } = *command
        else {
            return Answer::illegal(Code::INVALID_OPCODE);
        };
        if control == 3 {
            return Answer::illegal(Code::SAVING_NOT_SUPPORTED);
        }
        if !matches!(subpage, 0 | 0xFF) {
            return Answer::check(Sense::invalid_field(3));
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
                None => return Answer::check(Sense::invalid_field(2)),
            }
        }
        let mut blocks = Vec::new();
        if !no_blocks {
            let count = u32::try_from(self.volume.blocks).unwrap_or(u32::MAX);
            blocks.extend(count.to_be_bytes());
            blocks.extend(self.options.block_bytes.to_be_bytes());
        }
        let head = Head { write_protected: false, force_unit_access: true, pages_at: 0 };
        data.give(&head.encode(width, &blocks, &pages), allocation.into())
    }

    pub(crate) fn mode_select(
        &self,
        width: Width,
        page_format: bool,
        save: bool,
        len: usize,
        data: &mut Data<'_>,
    ) -> Answer {
        if !page_format || save {
            return Answer::check(Sense::invalid_field(1));
        }
        if len == 0 {
            return Answer::good(0);
        }
        let wrong_length = Answer::illegal(Code::PARAMETER_LIST_LENGTH);
        let Some(bytes) = data.take(len) else { return wrong_length };
        let Some(head) = Head::decode(&bytes, width) else { return wrong_length };
        let Some(rest) = bytes.get(head.pages_at..) else { return wrong_length };
        let mut read = 0;
        let mut write_cache = self.has_write_cache();
        for (page, subpage, asked) in mode::pages(rest) {
            read += asked.len();
            let (now, mask) = (self.mode_page(page, false), self.mode_page(page, true));
            let (Some(now), Some(mask), 0) = (now, mask, subpage) else {
                return Answer::illegal(Code::INVALID_FIELD_IN_LIST);
            };
            let differs = |at: usize| (asked[at] ^ now[at]) & !mask[at] != 0;
            if asked.len() != now.len() || (2..now.len()).any(differs) {
                return Answer::illegal(Code::INVALID_FIELD_IN_LIST);
            }
            if page == mode::page::CACHING {
                write_cache = asked[2] & mode::WRITE_CACHE != 0;
            }
        }
        if read != rest.len() {
            return wrong_length;
        }
        if !write_cache && self.has_write_cache() && self.volume.flush().is_err() {
            return Answer::check(Sense::new(Key::MediumError, Code::WRITE_ERROR));
        }
        self.set_write_cache(write_cache);
        Answer::good(len)
    }

    pub(crate) fn report_operations(command: &Command, data: &mut Data<'_>) -> Answer {
        let Command::ReportOperations { timeouts, options, opcode, action, allocation } = *command
        else {
            return Answer::illegal(Code::INVALID_OPCODE);
        };
        let bytes = match options {
            0 => {
                let all: Vec<_> = OPERATIONS
                    .iter()
                    .map(|(code, action, usage)| ((*code, *action), usage.len() as u16))
                    .collect();
                operations::encode_all(&all, timeouts)
            }
            1..=3 => {
                let same_code = || OPERATIONS.iter().filter(|(code, ..)| *code == opcode);
                let has_actions = same_code().any(|(_, action, _)| action.is_some());
                match (options, has_actions) {
                    (1, true) | (2, false) if same_code().next().is_some() => {
                        return Answer::check(Sense::invalid_field(2));
                    }
                    _ => {}
                }
                let found = same_code().find(|(_, its, _)| its.is_none_or(|its| its == action));
                operations::encode_one(found.map(|(_, _, usage)| *usage), timeouts)
            }
            _ => return Answer::check(Sense::invalid_field(2)),
        };
        data.give(&bytes, allocation as usize)
    }

    pub(crate) fn log_sense(
        page: u8,
        subpage: u8,
        parameter: u16,
        allocation: usize,
        data: &mut Data<'_>,
    ) -> Answer {
        const SUPPORTED: u8 = 0x00;
        const TEMPERATURE: u8 = 0x0D;
        if subpage != 0 {
            return Answer::check(Sense::invalid_field(3));
        }
        let bytes: &[u8] = match (page, parameter) {
            (SUPPORTED, _) => &[SUPPORTED, 0, 0, 2, SUPPORTED, TEMPERATURE],
            // 30 degrees, and 60 at most.
            (TEMPERATURE, 0) => &[TEMPERATURE, 0, 0, 12, 0, 0, 3, 2, 0, 30, 0, 1, 3, 2, 0, 60],
            (TEMPERATURE, 1) => &[TEMPERATURE, 0, 0, 6, 0, 1, 3, 2, 0, 60],
            (TEMPERATURE, _) => return Answer::check(Sense::invalid_field(5)),
            _ => return Answer::check(Sense::invalid_field(2)),
        };
        data.give(bytes, allocation)
    }
}
