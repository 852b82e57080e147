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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use qpair_block::{Arena, Request, WaitOptions};
    use qpair_conformance::Options;

    use super::*;
    use crate::Drivers;

    fn open(name: &str) -> Arc<dyn BlockDevice> {
        Drivers::new().open("softnvme", name).unwrap()
    }

    #[test]
    fn a_device_that_waits_in_one_manner_is_not_wrapped() {
        for (name, mode) in
            [("wait=poll,size=1MiB", "polled"), ("wait=sleep,size=1MiB", "interrupts")]
        {
            let device = open(name);
            assert!(device.info().mode.contains(mode), "{}", device.info().mode);
            assert!(format!("{device:?}").starts_with("NvmeDevice"), "{device:?}");
        }
        assert!(format!("{:?}", open("wait=auto,size=1MiB")).starts_with("Adaptive"));
    }

    const DEPTH: u32 = 16;

    /// Reads for a time, with as many requests in flight and a pause after each wait.
    fn read(
        channel: &mut dyn IoChannel,
        arena: &Arc<Arena>,
        seconds: f64,
        depth: u32,
        pause: Duration,
    ) -> u64 {
        let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
        let (begun, mut sent, mut taken, mut done) = (Instant::now(), 0, 0, Vec::new());
        loop {
            let is_over = begun.elapsed().as_secs_f64() >= seconds;
            while !is_over && channel.in_flight() < depth {
                let at = sent % 256 * 4096;
                channel.submit(Request::read(at, 4096, arena.lease().unwrap(), sent)).unwrap();
                sent += 1;
            }
            if is_over && channel.in_flight() == 0 {
                break;
            }
            channel.wait(&mut done, one);
            for completion in done.drain(..) {
                completion.result.unwrap();
                taken += 1;
            }
            std::thread::sleep(pause);
        }
        assert_eq!(sent, taken);
        sent
    }

    #[test]
    fn under_load_it_tries_to_poll_and_when_quiet_it_sleeps() {
        let drive = Drivers::new().nvme_device("softnvme", "wait=auto,size=1MiB").unwrap();
        let device = Adaptive::new(drive);
        let state = || device.adaptation().state();
        assert!(state().why.contains("nvme:wait=sleep is first"), "{}", state());
        let arena = Arena::new(4096, DEPTH, device.info().arena_options()).unwrap();
        let options = ChannelOptions { depth: DEPTH, arenas: vec![arena.clone()], wake: None };
        let mut channel = device.open_channel(&options).unwrap();
        // A drive that answers at once is load enough on every machine.
        let reads = read(&mut *channel, &arena, 2.0, DEPTH, Duration::ZERO);
        let busy = state();
        println!("{reads} reads: {busy}");
        // Other programs may leave no core to poll on. The rule's own tests are in qpair-kernel.
        if busy.changes == 0 {
            eprintln!("skipped: other programs use the cores of this machine");
        }
        assert!(busy.changes <= 40, "{busy}");
        assert!(busy.why.contains("nvme:wait="), "{busy}");
        let all = qpair_kernel::adaptations();
        let is_told =
            all.iter().any(|(name, its)| *name == device.info().name && its.why == busy.why);
        assert!(is_told, "the list of what auto changes has the device");
        // A few hundred requests a second.
        read(&mut *channel, &arena, 1.0, 1, Duration::from_millis(2));
        assert_eq!(state().last, "nvme:wait=sleep", "{}", state());
        drop(channel);
        assert!(state().channels.is_empty(), "{}", state());
    }

    #[test]
    fn it_conforms() {
        let report = qpair_conformance::run(|| open("wait=auto,size=4MiB"), Options::default());
        println!("{report}");
        report.assert_passed();
    }
}
