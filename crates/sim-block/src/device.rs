//! The control plane of a simulated device.

use std::fmt;
use std::sync::Arc;

use qpair_block::time::SimClock;
use qpair_block::{
    BlockDevice, ByteLocks, ChannelOptions, DeviceInfo, Error, ErrorKind, IoChannel, Result,
    format_bytes,
};
use qpair_memory::locks::Mutex;

use crate::byte_locks::SimLocks;
use crate::channel::SimChannel;
use crate::disk::Disk;
use crate::faults::{SimFaults, SimLatency};
use crate::medium::SECTOR_BYTES;
use crate::power::SimPower;
use crate::trace::TraceHash;

/// The options of a [`SimDevice`].
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// The name in reports.
    pub name: String,
    /// The seed of the latencies and faults, and of what survives a power cut.
    pub seed: u64,
    /// The virtual clock, shared by everything that works together.
    pub clock: SimClock,
    /// The power supply; devices that share one lose power together.
    pub power: SimPower,
    /// The size of a new device in bytes; a multiple of the logical block.
    pub size_bytes: u64,
    /// The size up to which the device can grow, in bytes.
    pub size_bytes_max: u64,
    /// The smallest unit of addressing in bytes: 512 or more. Power cuts tear writes at 512 bytes
    /// in any case.
    pub logical_block_bytes: u32,
    /// The alignment of memory in bytes; it may be larger than the logical block.
    pub memory_alignment_bytes: u32,
    /// Whether completed writes need a flush to be durable.
    pub volatile_write_cache: bool,
    /// Whether polling a channel advances the virtual time when nothing else would complete its
    /// requests. For callers that are not stepped.
    pub free_running: bool,
}

impl SimOptions {
    /// Returns options for a device of 1 MiB that grows to 1 GiB, with a volatile cache and a power
    /// supply of its own.
    #[must_use]
    pub fn new(seed: u64, clock: &SimClock) -> Self {
        Self {
            name: "sim".to_owned(),
            seed,
            clock: clock.clone(),
            power: SimPower::new(clock),
            size_bytes: 1 << 20,
            size_bytes_max: 1 << 30,
            logical_block_bytes: 512,
            memory_alignment_bytes: 1,
            volatile_write_cache: true,
            free_running: false,
        }
    }
}

/// A disk in memory whose latencies, faults and losses follow from a seed. Clones are the same
/// opening of the same device.
///
/// A write is visible once it has completed. It is durable once a flush has completed that was
/// submitted after its submitter had its completion, or when it has completed with FUA. When the
/// power is cut, each write that is not durable, also those in flight, is lost, kept or torn
/// between any of its sectors.
#[derive(Clone)]
pub struct SimDevice {
    info: Arc<DeviceInfo>,
    size_bytes_max: u64,
    free_running: bool,
    clock: SimClock,
    disk: Arc<Mutex<Disk>>,
    locks: Arc<SimLocks>,
}

impl SimDevice {
    /// Creates a device of zeroes.
    ///
    /// # Errors
    /// `Invalid` if sizes are off their grid.
    pub fn new(options: SimOptions) -> Result<Self> {
        let content = vec![0; options.size_bytes as usize];
        Self::over(options, content)
    }

    /// Creates a device that holds `content`, for example what survived on another one. Its size is
    /// that of the content.
    ///
    /// # Errors
    /// `Invalid` if sizes are off their grid.
    pub fn over(options: SimOptions, content: Vec<u8>) -> Result<Self> {
        let SimOptions { name, seed, clock, power, size_bytes_max, logical_block_bytes, .. } =
            options;
        let block = logical_block_bytes as usize;
        if !block.is_power_of_two()
            || !options.memory_alignment_bytes.is_power_of_two()
            || block < SECTOR_BYTES
            || content.is_empty()
            || !content.len().is_multiple_of(block)
        {
            let context =
                format!("{name} cannot have {} bytes in blocks of {block}", content.len());
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let info = DeviceInfo {
            name,
            interface: "sim".into(),
            mode: format!("seed {seed}"),
            logical_block_bytes,
            memory_alignment_bytes: options.memory_alignment_bytes,
            transfer_bytes_max: 1 << 20,
            atomic_write_bytes_min: SECTOR_BYTES as u32,
            // A larger block consists of several sectors, which a power cut can separate.
            atomic_write_bytes: if block == SECTOR_BYTES { SECTOR_BYTES as u32 } else { 0 },
            volatile_write_cache: options.volatile_write_cache,
            read_only: false,
            discards: true,
            writes_zeroes: true,
            growable: size_bytes_max > content.len() as u64,
            depth_max: 1 << 12,
            shared_memory: false,
        };
        Ok(Self {
            disk: Arc::new(Mutex::new(Disk::new(
                info.clone(),
                clock.clone(),
                power,
                seed,
                content,
            ))),
            info: Arc::new(info),
            size_bytes_max,
            free_running: options.free_running,
            clock,
            locks: Arc::default(),
        })
    }

    /// Returns another opening of the same device, as another process has it: with locks of its
    /// own.
    #[must_use]
    pub fn opened_again(&self) -> Self {
        Self { locks: Arc::new(self.locks.of_another()), ..self.clone() }
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: SimFaults) {
        self.disk.lock().faults = faults;
    }

    /// Sets the latencies from now on.
    pub fn set_latency(&self, latency: SimLatency) {
        self.disk.lock().latency = latency;
    }

    /// Returns the bytes that reads see; after a power cut, those that survived.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.disk.lock().content()
    }

    /// Returns a hash over all requests that have ended: their times, their kinds, and their bytes.
    #[must_use]
    pub fn trace(&self) -> TraceHash {
        self.disk.lock().trace()
    }

    /// Returns a hash of [`SimDevice::content`].
    #[must_use]
    pub fn content_hash(&self) -> TraceHash {
        self.disk.lock().content_hash()
    }

    /// Returns the number of requests that ended with an error so far.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.disk.lock().errors()
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDevice {} of {} bytes", self.info.name, self.size_bytes())
    }
}

impl BlockDevice for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.disk.lock().size_bytes()
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        let mut disk = self.disk.lock();
        if size_bytes <= disk.size_bytes() {
            return Ok(());
        }
        if disk.is_dead() {
            return Err(Error::new(ErrorKind::Io, format!("{} has no power", self.info.name)));
        }
        let size_bytes = size_bytes.next_multiple_of(self.info.logical_block_bytes.into());
        if size_bytes > self.size_bytes_max {
            let context = format!("{} cannot grow to {}", self.info.name, format_bytes(size_bytes));
            return Err(Error::new(ErrorKind::NoSpace, context).hint("the simulated disk is full"));
        }
        disk.resize(size_bytes);
        Ok(())
    }

    fn byte_locks(&self) -> Option<Arc<dyn ByteLocks>> {
        Some(self.locks.clone())
    }

    fn shrinks(&self) -> bool {
        self.info.growable
    }

    /// The new size survives a loss of power at once.
    fn shrink(&self, size_bytes: u64) -> Result<()> {
        let mut disk = self.disk.lock();
        let size_bytes = size_bytes.next_multiple_of(self.info.logical_block_bytes.into());
        if self.info.growable && size_bytes < disk.size_bytes() && !disk.is_dead() {
            disk.resize(size_bytes);
        }
        Ok(())
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        Ok(Box::new(SimChannel::new(
            self.disk.clone(),
            self.clock.clone(),
            self.free_running,
            options,
        )))
    }
}
