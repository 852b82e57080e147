//! Options of a soft virtio SCSI host.

use qpair_block::{Error, ErrorKind, Result};

use crate::hba::DiskOptions;

/// The number of targets that an address can name.
const DISKS_MAX: usize = 256;
const QUEUES_MAX: u16 = 64;

/// Options of a soft virtio SCSI host.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftVirtioScsiOptions {
    /// The disks of the host. Disk `n` is unit 0 of target `n`.
    pub disks: Vec<DiskOptions>,
    /// The number of request queues, 1 to 64.
    pub queues: u16,
    /// The number of entries of a queue, a power of two.
    pub queue_entries: u16,
    /// Whether the host accepts indirect descriptors.
    pub has_indirect: bool,
    /// Whether disks have a volatile write cache.
    pub volatile_write_cache: bool,
    /// The text from which serial numbers and names are derived. If empty, a random text is used.
    pub serial: String,
}

impl Default for SoftVirtioScsiOptions {
    fn default() -> Self {
        Self {
            disks: vec![DiskOptions::default()],
            queues: 8,
            queue_entries: 128,
            has_indirect: true,
            volatile_write_cache: false,
            serial: String::new(),
        }
    }
}

impl SoftVirtioScsiOptions {
    pub(super) fn check(&self) -> Result<()> {
        let is_sound = (1..=DISKS_MAX).contains(&self.disks.len())
            && (1..=QUEUES_MAX).contains(&self.queues)
            && qpair_virtio::ring::Layout::new(self.queue_entries).is_some();
        if is_sound {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Invalid,
            "the options of a soft virtio-scsi host are out of range",
        )
        .hint(format!(
            "it has 1 to {DISKS_MAX} disks, 1 to {QUEUES_MAX} queues, and entries of a power of two"
        )))
    }
}
