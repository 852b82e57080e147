//! The properties of a device, which it reports before it is used.

use qpair_block::{Error, ErrorKind, Result};
use qpair_virtio::ring::Layout;
use qpair_virtio::scsi::{
    self, CONTROL_QUEUE, Config, EVENT_BYTES, EVENT_QUEUE, FEATURE_CHANGE, FEATURE_HOTPLUG,
    REQUEST_QUEUE,
};
use qpair_virtio::{FEATURE_ACCESS_PLATFORM, FEATURE_INDIRECT, FEATURE_VERSION_1};

use crate::options::VirtioScsiOptions;
use crate::transport::Transport;

/// The maximum number of entries of the queues.
const REQUEST_ENTRIES_MAX: u16 = 1024;
const CONTROL_ENTRIES_MAX: u16 = 64;
const EVENT_ENTRIES_MAX: u16 = 16;
/// The descriptors of a command: header, response, data.
pub(crate) const DESCRIPTORS: u16 = 3;
/// The maximum number of bytes of one command's data. Behind an IOMMU a device may cut a descriptor
/// at each page, and QEMU accepts at most 1024 pieces.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The bytes of a sector, the unit of a command's limit.
const SECTOR_BYTES: u32 = 512;

const WANTED: u64 = FEATURE_INDIRECT | FEATURE_HOTPLUG | FEATURE_CHANGE;
const NEEDED: u64 = FEATURE_VERSION_1 | FEATURE_ACCESS_PLATFORM;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    features: u64,
    pub(crate) control: Layout,
    pub(crate) events: Layout,
    pub(crate) requests: Layout,
    pub(crate) queues: u16,
    /// The number of targets that there can be, from 0 on.
    pub(crate) targets: u16,
    pub(crate) commands_per_unit: u32,
    pub(crate) transfer_bytes_max: u32,
}

impl Facts {
    /// Negotiates with a device that was reset, up to the point at which its queues are set up.
    pub(crate) fn ask(
        transport: &Transport,
        name: &str,
        options: &VirtioScsiOptions,
    ) -> Result<Self> {
        let features = transport.negotiate(WANTED, NEEDED, |missing| missing_of(name, missing))?;
        let config = transport.config()?;
        let unsupported = |what: String| {
            Error::new(ErrorKind::Unsupported, format!("{name}: {what} is not supported"))
        };
        if config.sense_bytes as usize != scsi::SENSE_BYTES
            || config.cdb_bytes as usize != scsi::CDB_BYTES
            || config.event_bytes as usize > EVENT_BYTES
        {
            let Config { sense_bytes, cdb_bytes, event_bytes, .. } = config;
            return Err(unsupported(format!(
                "a host with sense data of {sense_bytes} bytes, CDBs of {cdb_bytes} and events of {event_bytes}"
            )));
        }
        let there = transport.queues()?.saturating_sub(REQUEST_QUEUE);
        let said = u16::try_from(config.queues).unwrap_or(u16::MAX);
        let queues = there.min(said).min(options.queues);
        if queues == 0 {
            return Err(unsupported("a host without a request queue".to_owned()));
        }
        let control = transport.layout(CONTROL_QUEUE, CONTROL_ENTRIES_MAX)?;
        let mut requests = transport.layout(REQUEST_QUEUE, REQUEST_ENTRIES_MAX)?;
        for queue in 1..queues {
            let other = transport.layout(REQUEST_QUEUE + queue, REQUEST_ENTRIES_MAX)?;
            requests = if other.size() < requests.size() { other } else { requests };
        }
        if requests.size() <= DESCRIPTORS || control.size() < 2 {
            return Err(unsupported(format!("a queue of {} entries", requests.size())));
        }
        let transfer = config.sectors_max.saturating_mul(SECTOR_BYTES);
        Ok(Self {
            features,
            control,
            events: transport.layout(EVENT_QUEUE, EVENT_ENTRIES_MAX)?,
            requests,
            queues,
            targets: config.target_max.saturating_add(1).clamp(1, scsi::TARGETS_MAX),
            commands_per_unit: config.commands_per_unit,
            transfer_bytes_max: if transfer == 0 {
                TRANSFER_BYTES_MAX
            } else {
                transfer.min(TRANSFER_BYTES_MAX)
            },
        })
    }

    pub(crate) fn has_indirect(&self) -> bool {
        self.features & FEATURE_INDIRECT != 0
    }

    /// Returns the number of commands that one queue holds.
    pub(crate) fn depth_max(&self) -> u16 {
        let slots = match self.has_indirect() {
            true => self.requests.size(),
            false => self.requests.size() / DESCRIPTORS,
        };
        let said = u16::try_from(self.commands_per_unit).unwrap_or(u16::MAX);
        if said == 0 { slots } else { slots.min(said) }
    }
}

fn missing_of(name: &str, missing: u64) -> Error {
    let unsupported = |what: &str| Error::new(ErrorKind::Unsupported, format!("{name}: {what}"));
    if missing & FEATURE_VERSION_1 != 0 {
        return unsupported("it does not speak virtio 1")
            .hint("give it to the machine with disable-legacy=on (QEMU)");
    }
    unsupported("it would take addresses past the IOMMU (no VIRTIO_F_ACCESS_PLATFORM)")
        .hint("give it to the machine with iommu_platform=on (QEMU)")
}
