//! The properties of a unit, read once when it is opened.

use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_scsi_wire::capacity::Capacity;
use qpair_scsi_wire::command::opcode;
use qpair_scsi_wire::inquiry::{Inquiry, TYPE_DISK, TYPE_ZONED};
use qpair_scsi_wire::mode::{self, Head};
use qpair_scsi_wire::timestamp::{TIMESTAMP_BYTES, Timestamp};
use qpair_scsi_wire::vpd::{self, BlockLimits, Characteristics, Provisioning, UnitName, page};
use qpair_scsi_wire::{Command, Width, operations};

use crate::host::{Host, Unit};
use crate::middle::{Runner, UnitState};
use crate::options::ScsiOptions;

/// The number of bytes to request of any page.
const PAGE_BYTES: usize = 4096;
/// The maximum number of TEST UNIT READY commands, because a unit may first have conditions to
/// report.
const READY_TRIES: u32 = 4;

#[derive(Clone, Debug)]
pub struct DiskFacts {
    pub vendor: String,
    pub product: String,
    pub revision: String,
    /// The serial number; empty if the disk has none.
    pub serial: String,
    /// The name by which the disk is known on every path to it.
    pub name: UnitName,
    pub blocks: u64,
    pub logical_block_bytes: u32,
    pub physical_block_bytes: u32,
    /// The rotation rate in revolutions per minute; 1: solid state; 0: unknown.
    pub rotation: u16,
    /// Whether a volatile write cache is in use.
    pub write_cache: bool,
    /// Whether the disk writes through the cache if asked to (FUA).
    pub force_unit_access: bool,
    /// Whether the disk has a timestamp that can be set, which tells a loss of power from a reset.
    /// Determined only for a writable disk with a volatile write cache.
    pub timestamp: bool,
    pub read_only: bool,
    /// The maximum number of blocks of a transfer; `None`: the disk reports none.
    pub transfer_blocks_max: Option<u32>,
    /// The maximum number of blocks of an UNMAP; `None`: the command is not supported.
    pub unmap_blocks_max: Option<u32>,
    /// The maximum number of blocks of a WRITE SAME (16); `None`: the command is not supported.
    pub write_same_blocks_max: Option<u32>,
}

impl DiskFacts {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.logical_block_bytes.into())
    }

    /// Reads the properties of a unit. `what` names it for errors.
    pub(crate) fn ask(
        host: &Arc<dyn Host>,
        unit: Unit,
        what: &str,
        state: Arc<UnitState>,
        options: ScsiOptions,
    ) -> Result<Self> {
        let mut runner = Runner::open(host, unit, state, options)?;
        let inquiry = inquiry(&mut runner, what)?;
        check_type(&inquiry, what)?;
        let pages = vital_page(&mut runner, page::SUPPORTED)
            .and_then(|data| vpd::decode_supported(&data).map(<[u8]>::to_vec))
            .unwrap_or_default();
        let mut page_of =
            |number: u8| pages.contains(&number).then(|| vital_page(&mut runner, number)).flatten();
        let serial = page_of(page::UNIT_SERIAL_NUMBER)
            .and_then(|data| vpd::decode_serial(&data))
            .unwrap_or_default();
        let named = page_of(page::DEVICE_IDENTIFICATION).and_then(|data| vpd::unit_name(&data));
        let limits = page_of(page::BLOCK_LIMITS)
            .and_then(|data| BlockLimits::decode(&data))
            .unwrap_or_default();
        let characteristics = page_of(page::BLOCK_DEVICE_CHARACTERISTICS)
            .and_then(|data| Characteristics::decode(&data))
            .unwrap_or_default();
        let provisioning = page_of(page::LOGICAL_BLOCK_PROVISIONING)
            .and_then(|data| Provisioning::decode(&data))
            .unwrap_or_default();
        let by_serial = || {
            let (vendor, product) = (&inquiry.vendor, &inquiry.product);
            (!serial.is_empty()).then(|| UnitName::Serial(format!("{vendor} {product} {serial}")))
        };
        let name = named.or_else(by_serial).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("{what}: the unit has no name")).hint(
                "without an NAA or EUI name or a serial number, two paths to it would be two disks",
            )
        })?;
        if characteristics.zoned == 1 {
            return Err(unsupported(what, "a zoned disk that the host is to know of"));
        }
        ready(&mut runner, what)?;
        let capacity = capacity(&mut runner, what)?;
        check_blocks(&capacity, what)?;
        let mode = mode_of(&mut runner);
        let write_same = knows(&mut runner, 1, opcode::WRITE_SAME_16, 0).unwrap_or(false);
        let has_cache = mode.write_cache && !mode.head.write_protected;
        let timestamp = has_cache && keeps_timestamp(&mut runner);
        let at_most = |blocks: u64| match blocks {
            0 => Some(u32::MAX),
            blocks => Some(u32::try_from(blocks).unwrap_or(u32::MAX)),
        };
        Ok(Self {
            vendor: inquiry.vendor,
            product: inquiry.product,
            revision: inquiry.revision,
            serial,
            name,
            blocks: capacity.last_block.saturating_add(1),
            logical_block_bytes: capacity.block_bytes,
            physical_block_bytes: capacity.block_bytes << capacity.physical_exponent,
            rotation: characteristics.rotation,
            write_cache: mode.write_cache,
            force_unit_access: mode.head.force_unit_access,
            timestamp,
            read_only: mode.head.write_protected,
            transfer_blocks_max: (limits.transfer_blocks_max > 0)
                .then_some(limits.transfer_blocks_max),
            unmap_blocks_max: (provisioning.unmap && limits.unmap_blocks_max > 0)
                .then_some(limits.unmap_blocks_max),
            write_same_blocks_max: if write_same {
                at_most(limits.write_same_blocks_max)
            } else {
                None
            },
        })
    }
}

fn unsupported(what: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what}: {why} is not supported"))
}

fn inquiry(runner: &mut Runner, what: &str) -> Result<Inquiry> {
    let command = Command::Inquiry { page: None, allocation: 96 };
    let data = runner.ask(command, 96).map_err(|why| why.about(format_args!("{what}: INQUIRY")))?;
    Inquiry::decode(&data).ok_or_else(|| {
        Error::new(ErrorKind::Io, format!("{what}: INQUIRY answers with {} bytes", data.len()))
    })
}

fn check_type(inquiry: &Inquiry, what: &str) -> Result<()> {
    match (inquiry.qualifier, inquiry.device_type) {
        (0, TYPE_DISK) => {}
        (0, TYPE_ZONED) => return Err(unsupported(what, "a zoned disk (type 14h)")),
        (0, other) => {
            let why = format!("a unit of type {other:02x}h, which is not a disk,");
            return Err(unsupported(what, &why));
        }
        _ => {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{what}: the unit does not exist"),
            ));
        }
    }
    Ok(())
}

fn vital_page(runner: &mut Runner, page: u8) -> Option<Vec<u8>> {
    let command = Command::Inquiry { page: Some(page), allocation: PAGE_BYTES as u16 };
    // A unit need not support the page; missing values have their defaults.
    runner.ask(command, PAGE_BYTES).ok()
}

fn ready(runner: &mut Runner, what: &str) -> Result<()> {
    let mut tries = 1;
    loop {
        match runner.ask(Command::TestUnitReady, 0) {
            Ok(_) => return Ok(()),
            Err(_) if tries < READY_TRIES => tries += 1,
            Err(why) => return Err(why.about(format_args!("{what}: TEST UNIT READY"))),
        }
    }
}

fn capacity(runner: &mut Runner, what: &str) -> Result<Capacity> {
    let long = runner
        .ask(Command::ReadCapacity16 { allocation: 32 }, 32)
        .ok()
        .and_then(|data| Capacity::decode16(&data));
    if let Some(capacity) = long {
        return Ok(capacity);
    }
    let data = runner
        .ask(Command::ReadCapacity10, 8)
        .map_err(|why| why.about(format_args!("{what}: READ CAPACITY")))?;
    Capacity::decode10(&data).filter(|it| it.last_block < u64::from(u32::MAX)).ok_or_else(|| {
        Error::new(ErrorKind::Io, format!("{what}: READ CAPACITY gives no capacity"))
    })
}

fn check_blocks(capacity: &Capacity, what: &str) -> Result<()> {
    let bytes = capacity.block_bytes;
    if capacity.protection > 0 {
        let why = format!("protection information (T10 PI, type {})", capacity.protection);
        return Err(unsupported(what, &why)
            .hint("sg_format of sg3_utils makes a disk without it; it erases the disk"));
    }
    if !bytes.is_power_of_two() || !(512..=65536).contains(&bytes) {
        let why = format!("a logical block of {bytes} bytes");
        return Err(unsupported(what, &why)
            .hint("sg_format of sg3_utils makes blocks of 512 or 4096 bytes; it erases the disk"));
    }
    Ok(())
}

#[derive(Default)]
struct Mode {
    head: Head,
    write_cache: bool,
}

fn mode_of(runner: &mut Runner) -> Mode {
    for width in [Width::Ten, Width::Six] {
        let command = Command::ModeSense {
            width,
            no_blocks: true,
            control: 0,
            page: mode::page::CACHING,
            subpage: 0,
            allocation: 252,
        };
        let Ok(data) = runner.ask(command, 252) else { continue };
        let Some(head) = Head::decode(&data, width) else { continue };
        let pages = data.get(head.pages_at..).unwrap_or(&[]);
        return Mode { head, write_cache: mode::decode_caching(pages).unwrap_or(false) };
    }
    // A unit that does not report its cache may have one. Without a cache, flushes cost little.
    Mode { head: Head::default(), write_cache: true }
}

/// Returns whether the unit supports a command; `None` if it does not say. `options` are those of
/// the question.
fn knows(runner: &mut Runner, options: u8, opcode: u8, action: u8) -> Option<bool> {
    let action = action.into();
    let command =
        Command::ReportOperations { timeouts: false, options, opcode, action, allocation: 64 };
    runner.ask(command, 64).ok().and_then(|data| operations::decode_one(&data))
}

fn keeps_timestamp(runner: &mut Runner) -> bool {
    let report = Command::ReportTimestamp { allocation: TIMESTAMP_BYTES as u32 };
    let answer = runner.ask(report, TIMESTAMP_BYTES).ok();
    answer.and_then(|data| Timestamp::decode(&data)).is_some()
        && knows(runner, 3, opcode::MAINTENANCE_OUT, opcode::ACTION_TIMESTAMP) != Some(false)
}
