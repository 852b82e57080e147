//! NVMe drives under this program's driver that wait as the load suggests: `wait=auto`.
//!
//! The rule is that of `auto` for the kernel's interfaces: a channel begins with interrupts, and
//! owns a second queue pair that is polled while that gives more requests, or as many for less
//! processor time (docs/design/auto.md).

use std::fmt;
use std::sync::Arc;

use qpair_block::{BlockDevice, ByteLocks, ChannelOptions, DeviceInfo, Extent, IoChannel, Result};
use qpair_kernel::{Adaptation, Family, Way, Ways};
use qpair_nvme::{NvmeDevice, WaitMode};

/// The devices of the NVMe driver.
static NVME: Family = Family {
    name: "nvme",
    name_of: |way| match way {
        Way::Polling => "nvme:wait=poll",
        _ => "nvme:wait=sleep",
    },
    // The thread that waits polls the queue itself.
    polling_needs_core: true,
};

/// A namespace whose channels change between interrupts and polling.
pub struct Adaptive {
    device: Arc<NvmeDevice>,
    ways: Arc<Ways>,
}

impl fmt::Debug for Adaptive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adaptive {:?}", self.device)
    }
}

impl Adaptive {
    /// Returns the device itself if it was opened to wait in one manner, or has no other.
    pub(crate) fn over(device: Arc<NvmeDevice>) -> Arc<dyn BlockDevice> {
        let controller = device.controller();
        if controller.wait() != WaitMode::Auto || !controller.has_interrupts() {
            return device;
        }
        Arc::new(Self::new(device))
    }

    fn new(device: Arc<NvmeDevice>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let plural = if cores == 1 { "" } else { "s" };
        let why = format!(
            "the driver in user space has the drive over {}; {} is first on a machine with {cores} core{plural}, and under load it tries {}",
            device.controller().info().transport,
            (NVME.name_of)(Way::Interrupts),
            (NVME.name_of)(Way::Polling),
        );
        let below = device.clone();
        let open = move |way: Way, options: &ChannelOptions| {
            let waits = match way {
                Way::Polling => WaitMode::Poll,
                _ => WaitMode::Sleep,
            };
            below.open_channel_that(waits, options)
        };
        let ways = Arc::new(Ways::polled_or_not(&NVME, why, open));
        ways.adaptation().list(&device.info().name);
        Self { device, ways }
    }

    /// Returns the present ways of the channels, for reports.
    #[must_use]
    pub fn adaptation(&self) -> Arc<Adaptation> {
        self.ways.adaptation()
    }
}

impl BlockDevice for Adaptive {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.device.grow(size_bytes)
    }

    fn extent(&self, offset_bytes: u64, len_bytes: u64) -> Extent {
        self.device.extent(offset_bytes, len_bytes)
    }

    fn byte_locks(&self) -> Option<Arc<dyn ByteLocks>> {
        self.device.byte_locks()
    }

    fn reset(&self) -> Result<()> {
        self.device.reset()
    }

    fn resets(&self) -> u64 {
        self.device.resets()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.ways.open_channel(options)
    }
}
