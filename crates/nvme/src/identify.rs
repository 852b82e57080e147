//! The Identify data of a controller and its namespaces, reduced to values that the driver can use.
//!
//! Invariant: no value from a drive is trusted. All numbers that leave this module are within the
//! driver's own bounds.

use qpair_block::{Error, ErrorKind, Result};
use qpair_nvme_wire::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, PAGE_BYTES};

const BLOCKS_MAX: u64 = 65536;
/// The maximum number of bytes of one command: a page of PRP entries has room for them at any
/// alignment.
pub(crate) const PIECE_BYTES_MAX: u32 = ((PAGE_BYTES / 8) * PAGE_BYTES) as u32;
/// ONCS bits: optional commands.
const DATASET_MANAGEMENT: u16 = 1 << 2;
const WRITE_ZEROES: u16 = 1 << 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    pub nsid: u32,
    /// The size in bytes; 0 if the drive reported an impossible one.
    pub size_bytes: u64,
    /// The bytes of data of a logical block; 0 if the drive reported an impossible number.
    pub logical_block_bytes: u32,
    /// The bytes of metadata with each block.
    pub metadata_bytes: u32,
    pub unusable: Option<String>,
    pub identify: IdentifyNamespace,
    pub(crate) block_shift: u32,
    pub(crate) atomic_write_bytes: u32,
}

impl NamespaceInfo {
    /// Makes the description from Identify data; `None` if the namespace is not active.
    pub(crate) fn read(
        nsid: u32,
        data: &[u8; IDENTIFY_BYTES],
        controller: &Limits,
    ) -> Option<Self> {
        let identify = IdentifyNamespace::parse(data);
        if identify.size_blocks == 0 && identify.capacity_blocks == 0 {
            return None;
        }
        let format = identify.format_in_use();
        let shift = format.map_or(0, |format| u32::from(format.data_shift));
        let is_sane = (9..=16).contains(&shift);
        let size = identify.size_blocks.checked_mul(1 << shift.min(63)).filter(|_| is_sane);
        let metadata_bytes = format.map_or(0, |format| format.metadata_bytes.into());
        let unusable = match (format, size) {
            (None, _) => Some(format!("names format {}, which it does not have", identify.format)),
            _ if !is_sane => {
                Some(format!("has blocks of 2^{shift} bytes; 512 bytes to 64 KiB can be used"))
            }
            (_, None) => Some(format!(
                "has {} blocks of 2^{shift} bytes, more than can be addressed",
                identify.size_blocks
            )),
            _ if metadata_bytes != 0 => {
                Some(format!("has {metadata_bytes} bytes of metadata with each block"))
            }
            _ if identify.protection != 0 => {
                Some(format!("has end-to-end protection of type {}", identify.protection))
            }
            (_, Some(0)) => Some("has no blocks".to_owned()),
            _ if controller.piece_bytes_max < 1 << shift => Some(format!(
                "has blocks of {} bytes on a controller that transfers at most {} at a time",
                1u32 << shift,
                controller.piece_bytes_max
            )),
            _ => None,
        };
        let atomic = (u64::from(identify.atomic_blocks(controller.atomic_power_fail))
            << shift.min(16))
        .min(BLOCKS_MAX << 16);
        Some(Self {
            nsid,
            size_bytes: size.unwrap_or(0),
            logical_block_bytes: if is_sane { 1 << shift } else { 0 },
            metadata_bytes,
            unusable,
            identify,
            block_shift: shift,
            // A write aligned to a power of two lies inside one atomic unit. The size is limited to
            // that of a command.
            atomic_write_bytes: (1 << atomic.max(1).ilog2()).min(controller.piece_bytes_max),
        })
    }

    pub(crate) fn check(&self, controller: &str) -> Result<()> {
        match &self.unusable {
            None => Ok(()),
            Some(why) => {
                let context = format!("namespace {} of {controller} {why}", self.nsid);
                Err(Error::new(ErrorKind::Unsupported, context)
                    .hint("format it with a format of 512 bytes to 64 KiB without metadata and protection (nvme format --lbaf=N erases it)"))
            }
        }
    }

    pub(crate) fn piece_bytes_max(&self, controller: &Limits) -> u32 {
        let blocks =
            BLOCKS_MAX.min(u64::from(controller.piece_bytes_max >> self.block_shift)).max(1);
        (blocks << self.block_shift).min(PIECE_BYTES_MAX.into()) as u32
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) piece_bytes_max: u32,
    pub(crate) volatile_write_cache: bool,
    pub(crate) write_zeroes: bool,
    pub(crate) deallocate: bool,
    pub(crate) atomic_power_fail: u16,
    pub(crate) event_requests: u8,
    pub(crate) aborts: u8,
}

impl Limits {
    /// Returns the limits of a controller whose smallest page is 4096 bytes.
    pub(crate) fn of(identify: &IdentifyController) -> Self {
        let piece_bytes_max = match u32::from(identify.mdts) {
            0 => PIECE_BYTES_MAX,
            // 4096 is 2^12. Values above the driver's own limit have no effect.
            shift => PIECE_BYTES_MAX
                .min(1u32.checked_shl(12 + shift).filter(|&it| it > 0).unwrap_or(u32::MAX)),
        };
        Self {
            piece_bytes_max,
            volatile_write_cache: identify.volatile_write_cache & 1 != 0,
            write_zeroes: identify.nvm_commands & WRITE_ZEROES != 0,
            deallocate: identify.nvm_commands & DATASET_MANAGEMENT != 0,
            atomic_power_fail: identify.atomic_write_power_fail,
            event_requests: identify.async_event_limit.saturating_add(1),
            aborts: identify.abort_limit.saturating_add(1),
        }
    }
}
