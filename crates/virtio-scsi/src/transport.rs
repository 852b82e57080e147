//! A virtio device over PCI, version 1: its registers, and the notification of its queues.
//!
//! Invariant: a status that reads as all ones is never taken for one; it is the error `Gone`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::Mapping;
use qpair_pci::PciFunction;
use qpair_virtio::pci::{
    Capability, KIND_COMMON, KIND_DEVICE, KIND_NOTIFY, NO_VECTOR, capabilities, common,
};
use qpair_virtio::ring::Layout;
use qpair_virtio::scsi::Config;
use qpair_virtio::{STATUS_ACKNOWLEDGE, STATUS_DRIVER, STATUS_FEATURES_OK};

/// The status of a device that was pulled out.
const GONE: u8 = 0xFF;
/// The maximum number of reads of a configuration that keeps changing.
const CONFIG_TRIES: u32 = 16;
const NAP: Duration = Duration::from_micros(100);

/// Makes the error for a device that no longer answers.
pub(crate) fn gone(name: &str) -> Error {
    Error::new(ErrorKind::Gone, format!("{name}: the device is gone"))
        .hint("it was removed, or the process that served it ended")
}

pub(crate) struct Transport {
    function: Arc<dyn PciFunction>,
    common: Capability,
    notify: Capability,
    device: Capability,
}

impl Transport {
    pub(crate) fn find(function: Arc<dyn PciFunction>) -> Result<Self> {
        let mut config = [0; 256];
        function.read_config(0, &mut config)?;
        let find = |kind, len_min: u64, what: &str| {
            let mut all = capabilities(&config);
            all.find(|it| {
                let end = u64::from(it.offset) + u64::from(it.len);
                it.kind == kind && u64::from(it.len) >= len_min && end <= function.bar_bytes(it.bar)
            })
            .ok_or_else(|| {
                let context = format!("{} has no BAR with its {what}", function.name());
                Error::new(ErrorKind::Unsupported, context)
                    .hint("this driver speaks only virtio 1 over PCI")
            })
        };
        let common = find(KIND_COMMON, common::BYTES, "common configuration")?;
        let notify = find(KIND_NOTIFY, 2, "notifications")?;
        let device = find(KIND_DEVICE, Config::BYTES as u64, "configuration of a SCSI host")?;
        Ok(Self { function, common, notify, device })
    }

    fn name(&self) -> &str {
        self.function.name()
    }

    fn read<const N: usize>(&self, offset: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        let at = u64::from(self.common.offset) + offset;
        self.function.read_bar(self.common.bar, at, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let at = u64::from(self.common.offset) + offset;
        self.function.write_bar(self.common.bar, at, bytes)
    }

    fn read_u16(&self, offset: u64) -> Result<u16> {
        Ok(u16::from_le_bytes(self.read(offset)?))
    }

    pub(crate) fn status(&self) -> Result<u8> {
        match self.read(common::STATUS)? {
            [GONE] => Err(gone(self.name())),
            [status] => Ok(status),
        }
    }

    pub(crate) fn set_status(&self, status: u8) -> Result<()> {
        self.write(common::STATUS, &[status])
    }

    /// Resets the device. On success it accesses no memory.
    pub(crate) fn reset(&self, timeout: Duration) -> Result<()> {
        self.set_status(0)?;
        let start = Instant::now();
        while self.status()? != 0 {
            if start.elapsed() >= timeout {
                let context = format!(
                    "{}: a reset did not end within {} ms",
                    self.name(),
                    timeout.as_millis()
                );
                return Err(Error::new(ErrorKind::Io, context));
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Negotiates the features of a device that was reset: those of `wanted` that it offers, and
    /// all of `needed`. If one of these is missing, `why_not` makes the error.
    pub(crate) fn negotiate(
        &self,
        wanted: u64,
        needed: u64,
        why_not: impl Fn(u64) -> Error,
    ) -> Result<u64> {
        let seen = STATUS_ACKNOWLEDGE | STATUS_DRIVER;
        self.set_status(STATUS_ACKNOWLEDGE)?;
        self.set_status(seen)?;
        let mut offered = 0;
        for word in 0..2u32 {
            self.write(common::DEVICE_FEATURE_SELECT, &word.to_le_bytes())?;
            let bits = u32::from_le_bytes(self.read(common::DEVICE_FEATURE)?);
            offered |= u64::from(bits) << (32 * word);
        }
        if offered & needed != needed {
            return Err(why_not(needed & !offered));
        }
        let taken = offered & (wanted | needed);
        for word in 0..2u32 {
            let bits = (taken >> (32 * word)) as u32;
            self.write(common::DRIVER_FEATURE_SELECT, &word.to_le_bytes())?;
            self.write(common::DRIVER_FEATURE, &bits.to_le_bytes())?;
        }
        self.set_status(seen | STATUS_FEATURES_OK)?;
        if self.status()? & STATUS_FEATURES_OK == 0 {
            let context = format!("{} does not accept the features {taken:#x}", self.name());
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        Ok(taken)
    }

    /// Reads the device-specific configuration, consistently.
    pub(crate) fn config(&self) -> Result<Config> {
        for _ in 0..CONFIG_TRIES {
            let before: [u8; 1] = self.read(common::GENERATION)?;
            let mut bytes = [0; Config::BYTES];
            for (word, at) in bytes.chunks_exact_mut(4).zip((0..).step_by(4)) {
                let at = u64::from(self.device.offset) + at;
                self.function.read_bar(self.device.bar, at, word)?;
            }
            if self.read(common::GENERATION)? == before {
                return Ok(Config::decode(&bytes));
            }
        }
        let context = format!("{}: its configuration keeps changing", self.name());
        Err(Error::new(ErrorKind::Io, context))
    }

    pub(crate) fn queues(&self) -> Result<u16> {
        self.read_u16(common::QUEUES)
    }

    fn select(&self, queue: u16) -> Result<()> {
        self.write(common::QUEUE_SELECT, &queue.to_le_bytes())
    }

    /// Returns the layout of a queue with as many entries as it can have, up to `most`: a power of
    /// two.
    pub(crate) fn layout(&self, queue: u16, most: u16) -> Result<Layout> {
        self.select(queue)?;
        let most = self.read_u16(common::QUEUE_SIZE)?.min(most);
        let size = most.checked_ilog2().map(|log| 1 << log);
        size.and_then(Layout::new).ok_or_else(|| {
            let context = format!("{} has no queue {queue}", self.name());
            Error::new(ErrorKind::Unsupported, context)
        })
    }

    /// Gives a queue its rings, without an interrupt. Returns its bell.
    pub(crate) fn enable(&self, queue: u16, layout: Layout, rings_iova: u64) -> Result<Bell> {
        self.select(queue)?;
        self.write(common::QUEUE_SIZE, &layout.size().to_le_bytes())?;
        self.write(common::QUEUE_VECTOR, &NO_VECTOR.to_le_bytes())?;
        for (register, at) in [
            (common::QUEUE_DESCRIPTORS, 0),
            (common::QUEUE_AVAILABLE, layout.available_at()),
            (common::QUEUE_USED, layout.used_at()),
        ] {
            let address = rings_iova + at as u64;
            self.write(register, &(address as u32).to_le_bytes())?;
            self.write(register + 4, &((address >> 32) as u32).to_le_bytes())?;
        }
        let place = self.read_u16(common::QUEUE_NOTIFY)?;
        let in_part = u64::from(place) * u64::from(self.notify.multiplier);
        if in_part + 2 > u64::from(self.notify.len) {
            let context = format!("{}: queue {queue} is notified outside of its BAR", self.name());
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let (bar, at) = (self.notify.bar, u64::from(self.notify.offset) + in_part);
        let start = at / 8 * 8;
        let mapping = self.function.map_bar(bar, start, 8)?;
        self.write(common::QUEUE_ENABLE, &1u16.to_le_bytes())?;
        Ok(Bell { function: self.function.clone(), mapping, bar, at, queue })
    }
}

/// The place at which one queue is notified.
pub(crate) struct Bell {
    function: Arc<dyn PciFunction>,
    /// The mapping of the 8 bytes around that place.
    mapping: Option<Arc<Mapping>>,
    bar: u8,
    at: u64,
    queue: u16,
}

impl Bell {
    #[inline]
    pub(crate) fn ring(&self) {
        match &self.mapping {
            Some(mapping) => mapping.bytes().store_u16((self.at % 8) as usize, self.queue),
            None => {
                // A device that does not accept the notification is gone, which its status will
                // show.
                let _ = self.function.write_bar(self.bar, self.at, &self.queue.to_le_bytes());
            }
        }
    }
}
