//! The RAM device: a disk in memory that is lost with the process.
//!
//! Memory is divided into chunks, each with its own lock, so that workers contend only for the same
//! chunk. A channel has its own list of chunks and asks for a new one when the device has grown
//! past it, so the list needs no lock per request.

use qpair_memory::locks::RwLock;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::channel::ready::ReadyQueue;
use crate::seam::device::{
    BlockDevice, ChannelOptions, ChannelStatistics, DeviceInfo, IoChannel, WaitOptions,
};
use crate::seam::error::{Error, ErrorKind, IoError, Result};
use crate::seam::request::{Completion, Op, Request};
use crate::seam::size::format_bytes;

/// The number of bytes under one lock. It is large enough that the allocator maps each chunk,
/// zeroed and not touched before use.
const CHUNK_BYTES: usize = 256 << 10;

/// The options of a [`RamDevice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RamOptions {
    /// The initial size in bytes; a multiple of the logical block.
    pub size_bytes: u64,
    /// The smallest unit of addressing in bytes: a power of two from 512 to 64 KiB.
    pub logical_block_bytes: u32,
    /// Whether [`BlockDevice::grow`] works.
    pub growable: bool,
    /// Whether the device rejects writes. It then reads as zeroes.
    pub read_only: bool,
}

impl Default for RamOptions {
    fn default() -> Self {
        Self { size_bytes: 64 << 20, logical_block_bytes: 512, growable: true, read_only: false }
    }
}

type Chunk = Arc<RwLock<Box<[u8]>>>;

struct Memory {
    chunks: RwLock<Vec<Chunk>>,
    /// Stored after the chunks below it are in the list.
    size_bytes: AtomicU64,
}

impl Memory {
    fn extend_to(&self, size_bytes: u64) {
        let mut chunks = self.chunks.write();
        while (chunks.len() as u64) * (CHUNK_BYTES as u64) < size_bytes {
            chunks.push(Arc::new(RwLock::new(vec![0; CHUNK_BYTES].into_boxed_slice())));
        }
        // Release: a reader of this size finds the chunks.
        self.size_bytes.fetch_max(size_bytes, Ordering::Release);
    }
}

/// A device in memory. Its content starts as zeroes, and every channel sees the same bytes.
pub struct RamDevice {
    info: DeviceInfo,
    memory: Arc<Memory>,
}

impl RamDevice {
    /// Creates the device. Memory is used only where it is touched.
    ///
    /// # Errors
    /// `Invalid` if sizes are not multiples of their units; `NoSpace` if the device is larger than
    /// the machine's memory.
    pub fn new(options: RamOptions) -> Result<Self> {
        let RamOptions { size_bytes, logical_block_bytes, growable, read_only } = options;
        let name = format!("ram:size={}", format_bytes(size_bytes));
        if !logical_block_bytes.is_power_of_two() || !(512..=65536).contains(&logical_block_bytes) {
            let context =
                format!("{name} cannot have logical blocks of {logical_block_bytes} bytes");
            return Err(Error::new(ErrorKind::Invalid, context)
                .hint("logical blocks are powers of two from 512 bytes to 64 KiB"));
        }
        if size_bytes == 0 || !size_bytes.is_multiple_of(u64::from(logical_block_bytes)) {
            return Err(Error::new(ErrorKind::Invalid, name).hint(format!(
                "its size is a positive multiple of its logical block, {logical_block_bytes} bytes"
            )));
        }
        check_memory(&name, size_bytes)?;
        let info = DeviceInfo {
            name,
            interface: "ram".into(),
            mode: "copies on submission".into(),
            logical_block_bytes,
            memory_alignment_bytes: 1,
            transfer_bytes_max: 1 << 30,
            atomic_write_bytes_min: 0,
            atomic_write_bytes: 0,
            volatile_write_cache: false,
            read_only,
            discards: true,
            writes_zeroes: true,
            growable,
            depth_max: 1 << 16,
            shared_memory: false,
        };
        let memory = Memory { chunks: RwLock::default(), size_bytes: AtomicU64::new(0) };
        memory.extend_to(size_bytes);
        Ok(Self { info, memory: Arc::new(memory) })
    }
}

/// Refuses a size that the machine cannot have: the allocator would abort the process, or the
/// kernel would kill it later.
fn check_memory(name: &str, size_bytes: u64) -> Result<()> {
    let system = rustix::system::sysinfo();
    let machine_bytes = system.totalram.saturating_mul(system.mem_unit.into());
    if size_bytes > machine_bytes {
        let machine = format_bytes(machine_bytes >> 20 << 20);
        return Err(Error::new(
            ErrorKind::NoSpace,
            format!("{name} needs more memory than there is: {size_bytes} bytes"),
        )
        .hint(format!("this machine has {machine} of memory")));
    }
    Ok(())
}

impl fmt::Debug for RamDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RamDevice of {} bytes", self.size_bytes())
    }
}

impl BlockDevice for RamDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes.load(Ordering::Acquire)
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.size_bytes() {
            return Ok(());
        }
        if !self.info.growable {
            let context = format!("{} cannot grow to {}", self.info.name, format_bytes(size_bytes));
            return Err(Error::new(ErrorKind::NoSpace, context).hint("its size is fixed"));
        }
        let block = u64::from(self.info.logical_block_bytes);
        let size_bytes = size_bytes.checked_next_multiple_of(block).ok_or_else(|| {
            Error::new(ErrorKind::NoSpace, "a device's size cannot exceed 2^64 bytes")
        })?;
        check_memory(&self.info.name, size_bytes)?;
        self.memory.extend_to(size_bytes);
        Ok(())
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        Ok(Box::new(RamChannel {
            info: self.info.clone(),
            memory: self.memory.clone(),
            chunks: Vec::new(),
            ready: ReadyQueue::new(options),
        }))
    }
}

struct RamChannel {
    info: DeviceInfo,
    memory: Arc<Memory>,
    /// This channel's copy of the list of chunks, which is shorter than the device's after the
    /// device has grown.
    chunks: Vec<Chunk>,
    ready: ReadyQueue,
}

impl RamChannel {
    fn execute(&mut self, request: &mut Request) -> std::result::Result<(), IoError> {
        self.info.check(request, self.memory.size_bytes.load(Ordering::Acquire))?;
        if request.op == Op::Flush {
            return Ok(());
        }
        let end_bytes = request.offset_bytes + u64::from(request.len_bytes);
        if end_bytes > (self.chunks.len() as u64) * (CHUNK_BYTES as u64) {
            self.chunks.clone_from(&self.memory.chunks.read());
        }
        let mut at = request.offset_bytes;
        let mut in_buffer = request.buffer_offset_bytes as usize;
        while at < end_bytes {
            let start = (at % CHUNK_BYTES as u64) as usize;
            let len = (CHUNK_BYTES - start).min((end_bytes - at) as usize);
            let chunk =
                self.chunks.get((at / CHUNK_BYTES as u64) as usize).ok_or(IoError::INVALID)?;
            match (request.op, &mut request.buffer) {
                (Op::Read, Some(buffer)) => {
                    let bytes = chunk.read();
                    buffer.copy_from(in_buffer, &bytes[start..start + len]);
                }
                (Op::Write, Some(buffer)) => {
                    let mut bytes = chunk.write();
                    buffer.copy_to(in_buffer, &mut bytes[start..start + len]);
                }
                _ => {
                    let mut bytes = chunk.write();
                    bytes[start..start + len].fill(0);
                }
            }
            at += len as u64;
            in_buffer += len;
        }
        Ok(())
    }
}

impl IoChannel for RamChannel {
    fn submit(&mut self, mut request: Request) -> std::result::Result<(), Request> {
        if self.ready.is_full() {
            return Err(request);
        }
        let result = self.execute(&mut request);
        self.ready.push(request, result);
        Ok(())
    }

    fn kick(&mut self) {}

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.ready.poll(completions)
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.ready.wait(completions, options)
    }

    fn in_flight(&self) -> u32 {
        self.ready.in_flight()
    }

    fn statistics(&self) -> ChannelStatistics {
        self.ready.statistics()
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }
}
