//! The RAM device: a disk in memory that is lost with the process.
//!
//! Memory is divided into chunks of huge pages, where the kernel has them: most reads of a device
//! that is larger than the caches would otherwise miss the TLB. A channel has its own list of
//! chunks and asks for a new one when the device has grown past it, so the list needs no lock per
//! request. Nor does a copy: as on a drive, a read beside a write of the same bytes returns a mix
//! of both.
//!
//! A request is executed when the next one is submitted, or at the kick: meanwhile the processor
//! fetches the first lines of its bytes, which it cannot predict.

use qpair_memory::Mapping;
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

/// The number of bytes that are mapped at a time, zeroed and not touched before use: few enough
/// mappings for a device of a terabyte.
const CHUNK_BYTES: usize = 64 << 20;

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

struct Memory {
    chunks: RwLock<Vec<Arc<Mapping>>>,
    /// Stored after the chunks below it are in the list.
    size_bytes: AtomicU64,
}

impl Memory {
    fn extend_to(&self, name: &str, size_bytes: u64) -> Result<()> {
        let mut chunks = self.chunks.write();
        while (chunks.len() as u64) * (CHUNK_BYTES as u64) < size_bytes {
            let chunk = Mapping::new_anonymous(CHUNK_BYTES).map_err(|cause| {
                Error::os(cause, format!("{name}: mapping {}", format_bytes(size_bytes)))
            })?;
            chunks.push(chunk);
        }
        // Release: a reader of this size finds the chunks.
        self.size_bytes.fetch_max(size_bytes, Ordering::Release);
        Ok(())
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
            mode: "copies, when the next request is submitted or at the kick".into(),
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
        memory.extend_to(&info.name, size_bytes)?;
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
        self.memory.extend_to(&self.info.name, size_bytes)
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        Ok(Box::new(RamChannel {
            info: self.info.clone(),
            memory: self.memory.clone(),
            chunks: Vec::new(),
            next: None,
            ready: ReadyQueue::new(options),
        }))
    }
}

struct RamChannel {
    info: DeviceInfo,
    memory: Arc<Memory>,
    /// This channel's copy of the list of chunks, which is shorter than the device's after the
    /// device has grown.
    chunks: Vec<Arc<Mapping>>,
    /// The request whose first lines are being fetched.
    next: Option<Request>,
    ready: ReadyQueue,
}

impl RamChannel {
    #[inline]
    fn chunk(&self, at: u64) -> Option<(&Mapping, usize)> {
        let chunk = self.chunks.get((at / CHUNK_BYTES as u64) as usize)?;
        Some((chunk, (at % CHUNK_BYTES as u64) as usize))
    }

    /// Executes the request whose turn it is.
    #[inline]
    fn execute_next(&mut self) {
        if let Some(mut request) = self.next.take() {
            let result = self.execute(&mut request);
            self.ready.push(request, result);
        }
    }

    #[inline]
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
            let (chunk, start) = self.chunk(at).ok_or(IoError::INVALID)?;
            let len = (CHUNK_BYTES - start).min((end_bytes - at) as usize);
            match (request.op, &mut request.buffer) {
                (Op::Read, Some(buffer)) => buffer.copy_in(in_buffer, chunk.bytes(), start, len),
                (Op::Write, Some(buffer)) => buffer.copy_out(in_buffer, chunk.bytes(), start, len),
                _ => chunk.zero(start, len).map_err(|_| IoError::IO)?,
            }
            at += len as u64;
            in_buffer += len;
        }
        Ok(())
    }
}

impl IoChannel for RamChannel {
    #[inline]
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.in_flight() as usize >= self.ready.depth() {
            return Err(request);
        }
        if let Some((chunk, start)) = self.chunk(request.offset_bytes) {
            chunk.bytes().prefetch_start(start);
        }
        self.execute_next();
        self.next = Some(request);
        Ok(())
    }

    #[inline]
    fn kick(&mut self) {
        self.execute_next();
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.execute_next();
        self.ready.poll(completions)
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.execute_next();
        self.ready.wait(completions, options)
    }

    fn in_flight(&self) -> u32 {
        self.ready.in_flight() + u32::from(self.next.is_some())
    }

    fn statistics(&self) -> ChannelStatistics {
        self.ready.statistics()
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }
}
