//! The interface between users and providers of devices: [`BlockDevice`] and [`IoChannel`].

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use qpair_memory::{Arena, ArenaOptions, Buffer};

use crate::seam::byte_locks::ByteLocks;
use crate::seam::error::{Error, ErrorKind, IoError, Result};
use crate::seam::request::{Completion, Op, Request};
use crate::seam::wake::WakeEvent;

/// The properties and capabilities of a device, read once when the device is opened.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The specifier with which the device was opened.
    pub name: String,
    /// The interface and mode in use, in one word for tables: `io_uring`, `libaio`, `posix`, `ram`.
    pub interface: String,
    /// Details of the mode, for reports: "SINGLE_ISSUER|DEFER_TASKRUN, registered buffers".
    pub mode: String,
    /// The smallest unit of addressing in bytes. Offsets and lengths are multiples of it.
    pub logical_block_bytes: u32,
    /// The alignment of memory in bytes.
    pub memory_alignment_bytes: u32,
    /// The largest request in bytes.
    pub transfer_bytes_max: u32,
    /// The length in bytes of the smallest write that may be [`Request::atomic`]. It has no meaning
    /// if the largest is 0.
    pub atomic_write_bytes_min: u32,
    /// The length in bytes of the largest write that may be [`Request::atomic`]: a power cut leaves
    /// such a write either old or new, never mixed. 0: the device guarantees nothing.
    pub atomic_write_bytes: u32,
    /// Whether completed writes need a flush to survive power loss.
    pub volatile_write_cache: bool,
    /// Whether the device rejects writes.
    pub read_only: bool,
    /// Whether the device accepts discards. The layer below, such as a file system, may still
    /// refuse one.
    pub discards: bool,
    /// Whether the device accepts write-zeroes requests. The layer below may still refuse one.
    pub writes_zeroes: bool,
    /// Whether [`BlockDevice::grow`] can work.
    pub growable: bool,
    /// The maximum number of requests that one channel can have in flight.
    pub depth_max: u32,
    /// Whether requests are faster from memory that other processes can map. A device in another
    /// process can use no other memory without a copy.
    pub shared_memory: bool,
}

/// Returns the largest atomic write of a layer that moves requests by multiples of `grid_bytes`, on
/// devices that accept atomic writes from `min` to `max` bytes. It is a power of two, which stays
/// aligned to its size. Returns 0 if the layer can accept none.
pub(crate) fn atomic_write_bytes_on(grid_bytes: u64, min: u32, max: u32) -> u32 {
    let Some(power) = max.checked_ilog2() else { return 0 };
    let bytes = 1 << power.min(grid_bytes.trailing_zeros());
    if bytes < min { 0 } else { bytes }
}

impl DeviceInfo {
    /// Returns the options of memory that is best for requests to this device. Requests with other
    /// memory work, and may be copied.
    #[must_use]
    pub fn arena_options(&self) -> ArenaOptions {
        ArenaOptions { shared: self.shared_memory, ..ArenaOptions::default() }
    }

    /// Returns the info of a layer on top of this device. The layer's specifier, options and mode
    /// precede the device's own.
    #[must_use]
    pub fn behind(&self, kind: &str, options: &str, does: &str) -> Self {
        Self {
            name: format!("{kind}:{options}{}", self.name),
            interface: format!("{kind}+{}", self.interface),
            mode: format!("{does}; {}", self.mode),
            ..self.clone()
        }
    }

    /// Checks that a device of `size_bytes` can accept `request`. Every device calls this first, so
    /// that all devices answer in the same way.
    ///
    /// # Errors
    /// `Invalid` for a request that is not aligned, is past the end or over the transfer limit, or
    /// has a missing, misaligned or short buffer. `Invalid` also for an atomic write whose length
    /// [`DeviceInfo::takes_atomic`] refuses, whose offset is not a multiple of its length, or whose
    /// buffer is a list. `Unsupported` for an atomic write to a device without atomic writes.
    /// `ReadOnly` for any request that would change a read-only device.
    #[inline]
    pub fn check(&self, request: &Request, size_bytes: u64) -> std::result::Result<(), IoError> {
        if request.op == Op::Flush {
            return Ok(());
        }
        let block_mask = u64::from(self.logical_block_bytes) - 1;
        let len_bytes = u64::from(request.len_bytes);
        let on_grid = len_bytes > 0 && (request.offset_bytes | len_bytes) & block_mask == 0;
        let inside = len_bytes <= size_bytes && request.offset_bytes <= size_bytes - len_bytes;
        if !on_grid || !inside {
            return Err(IoError::INVALID);
        }
        if matches!(request.op, Op::Read | Op::Write) {
            let Some(buffer) = &request.buffer else { return Err(IoError::INVALID) };
            let end_bytes = u64::from(request.buffer_offset_bytes) + len_bytes;
            if end_bytes > buffer.len() as u64
                || request.len_bytes > self.transfer_bytes_max
                || !self.takes(buffer, request.buffer_offset_bytes, request.len_bytes)
            {
                return Err(IoError::INVALID);
            }
        }
        if self.read_only && request.op != Op::Read {
            return Err(IoError::READ_ONLY);
        }
        if request.atomic && request.op == Op::Write {
            self.check_atomic(request)?;
        }
        Ok(())
    }

    /// Returns an error if the device cannot accept an atomic write. Its length must be a power of
    /// two between the device's smallest and largest, its offset a multiple of its length, and its
    /// memory contiguous.
    #[cold]
    fn check_atomic(&self, request: &Request) -> std::result::Result<(), IoError> {
        if self.atomic_write_bytes == 0 {
            return Err(IoError::UNSUPPORTED);
        }
        let is_list = request.buffer.as_ref().is_some_and(Buffer::is_list);
        let is_aligned = request.offset_bytes.is_multiple_of(u64::from(request.len_bytes));
        match self.takes_atomic(request.len_bytes) && is_aligned && !is_list {
            true => Ok(()),
            false => Err(IoError::INVALID),
        }
    }

    /// Whether an atomic write may have this length.
    #[must_use]
    pub fn takes_atomic(&self, len_bytes: u32) -> bool {
        let (min, max) = (self.atomic_write_bytes_min, self.atomic_write_bytes);
        len_bytes.is_power_of_two() && min <= len_bytes && len_bytes <= max
    }

    /// Whether a part of a buffer has the alignment that the device needs: it begins at a multiple
    /// of the memory alignment, and so does each segment of a list, which consists of whole logical
    /// blocks. The caller copies any other buffer into an aligned block.
    #[must_use]
    #[inline]
    pub fn takes(&self, buffer: &Buffer, offset_bytes: u32, len_bytes: u32) -> bool {
        let mask = self.memory_alignment_bytes.max(1) - 1;
        offset_bytes & mask == 0
            && (mask == 0 || !buffer.is_list() || self.takes_list(buffer, offset_bytes, len_bytes))
    }

    fn takes_list(&self, list: &Buffer, offset_bytes: u32, len_bytes: u32) -> bool {
        let address_mask = self.memory_alignment_bytes as usize - 1;
        let block_mask = self.logical_block_bytes as usize - 1;
        let mut pieces = list.pieces(offset_bytes as usize, len_bytes as usize);
        pieces.all(|piece| {
            piece.address.addr() & address_mask == 0 && piece.len_bytes & block_mask == 0
        })
    }

    /// Checks that a channel can be opened with `options`.
    ///
    /// # Errors
    /// `Invalid` if the depth is 0, `Limit` if it exceeds [`DeviceInfo::depth_max`].
    pub fn check_channel(&self, options: &ChannelOptions) -> Result<()> {
        let (depth, depth_max) = (options.depth, self.depth_max);
        if depth == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a channel's depth must be at least 1"));
        }
        if depth > depth_max {
            let context =
                format!("a channel's depth of {depth} exceeds the limit of {}", self.name);
            return Err(Error::new(ErrorKind::Limit, context)
                .hint(format!("choose a depth of at most {depth_max}")));
        }
        Ok(())
    }
}

/// A range of a device, all of it with or without space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The length in bytes.
    pub len_bytes: u64,
    /// Whether the range has no space and reads as zeroes.
    pub is_hole: bool,
}

/// The control plane of a device. It can be used from any thread; calls may block.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Returns the properties and capabilities of the device.
    fn info(&self) -> &DeviceInfo;

    /// Returns the current size in bytes.
    fn size_bytes(&self) -> u64;

    /// Grows the device to at least `size_bytes`. The space is really reserved: writes below the
    /// new size do not run out of space later. After an error nothing has changed.
    ///
    /// # Errors
    /// `NoSpace` if there is no space, or the device has a fixed size.
    fn grow(&self, size_bytes: u64) -> Result<()>;

    /// Whether [`BlockDevice::shrink`] makes the device smaller.
    fn shrinks(&self) -> bool {
        false
    }

    /// Gives back the space after `size_bytes`, in whole blocks. A device of fixed size is not
    /// changed. No caller may have a request in that space, and its content is lost.
    ///
    /// # Errors
    /// Returns the device's error; the size is then unchanged.
    fn shrink(&self, _size_bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Returns the extent that begins at `offset_bytes`, as far as the device knows without reading
    /// it; at most `len_bytes` of it, and at least one byte. Changes that are under way may be in
    /// the answer. A device that does not know, as most do not, says that all is data.
    fn extent(&self, _offset_bytes: u64, len_bytes: u64) -> Extent {
        Extent { len_bytes, is_hole: false }
    }

    /// Returns the name of the device, or of a part of it, if its file was deleted while open. The
    /// content of a deleted file is lost when the last process that has it open closes it.
    fn removed(&self) -> Option<String> {
        None
    }

    /// Returns the locks on bytes of this opening of the device. Returns `None` if the device takes
    /// no locks, as most do that the program drives itself. A layer returns those of the device
    /// below, or of its first part.
    fn byte_locks(&self) -> Option<Arc<dyn ByteLocks>> {
        None
    }

    /// Resets the device, and waits until all requests that it had in flight have ended:
    /// successfully, perhaps after being sent again, or with an error. Acknowledged writes are
    /// kept, and channels remain usable. Other threads must poll their channels meanwhile. The
    /// requests of the calling thread end only when it polls its own channels again.
    ///
    /// # Errors
    /// `Unsupported` for a device that cannot be reset, as most cannot. `Busy` if a channel has not
    /// taken its requests back within the time limit of requests. `Gone` if the device does not
    /// come back.
    fn reset(&self) -> Result<()> {
        let name = &self.info().name;
        Err(Error::new(ErrorKind::Unsupported, format!("{name} cannot be reset"))
            .hint("SCSI disks that this program drives (scsi:HOST/UNIT) can"))
    }

    /// Returns how often the device (a controller) was reset, or the connection to it (a back end)
    /// re-established, since it was opened. A layer returns the number of the device below, and so
    /// do the parts of one device.
    fn resets(&self) -> u64 {
        0
    }

    /// Opens a channel. Call it on the thread that will use the channel: a channel belongs to one
    /// thread.
    ///
    /// # Errors
    /// `Limit` if memory cannot be registered or the depth exceeds [`DeviceInfo::depth_max`], or
    /// the error of the interface.
    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>>;
}

/// Options of a channel.
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// The number of requests that may be in flight at once; at least 1.
    pub depth: u32,
    /// The memory that requests will use. It is registered with the device if the device supports
    /// registration. Requests with a buffer of another arena also work, but more slowly.
    pub arenas: Vec<Arc<Arena>>,
    /// An event that ends [`IoChannel::wait`] early.
    pub wake: Option<Arc<WakeEvent>>,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self { depth: 128, arenas: Vec::new(), wake: None }
    }
}

/// The condition that ends a wait: enough completions, or the end of a time.
#[derive(Clone, Copy, Debug)]
pub struct WaitOptions {
    /// The number of completions to wait for; at least 1. Limited to the number of requests in
    /// flight.
    pub want: u32,
    /// The time after which one completion is enough; 0 means that one is enough at once. With a
    /// linger, a busy worker takes completions in batches, with one sleep for many. `Duration::MAX`
    /// waits for all of `want`.
    pub linger: Duration,
    /// The time after which the wait ends without completions; `None` means never.
    pub timeout: Option<Duration>,
}

/// Counters of a channel since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStatistics {
    /// Reads that completed without error.
    pub reads: u64,
    /// Writes that completed without error.
    pub writes: u64,
    /// Flushes that completed without error.
    pub flushes: u64,
    /// Requests that completed with an error.
    pub errors: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// All system calls.
    pub system_calls: u64,
    /// Requests whose data a driver copied, because the device cannot access their memory or the
    /// memory is not aligned for it.
    pub copied: u64,
    /// The number of times that the device was reset, or the connection to it re-established, while
    /// the channel was open.
    pub resets: u64,
    /// Sleeps that timed out although completions had arrived, because no interrupt had announced
    /// them.
    pub timeouts_polled: u64,
}

impl ChannelStatistics {
    /// Adds the counters of another channel.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            flushes: self.flushes + other.flushes,
            errors: self.errors + other.errors,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            ..self.over(other)
        }
    }

    /// Combines the counters of a layer with those of the channel below it. The requests are those
    /// of the layer. The system calls, copies, resets and timed-out sleeps of both are added.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            system_calls: self.system_calls + below.system_calls,
            copied: self.copied + below.copied,
            resets: self.resets + below.resets,
            timeouts_polled: self.timeouts_polled + below.timeouts_polled,
            ..self
        }
    }

    /// Counts the end of one request of `len_bytes`.
    #[inline]
    pub fn count(&mut self, op: Op, len_bytes: u32, result: std::result::Result<(), IoError>) {
        match (result, op) {
            (Err(_), _) => self.errors += 1,
            (Ok(()), Op::Read) => {
                self.reads += 1;
                self.read_bytes += u64::from(len_bytes);
            }
            (Ok(()), Op::Write) => {
                self.writes += 1;
                self.written_bytes += u64::from(len_bytes);
            }
            (Ok(()), Op::Flush) => self.flushes += 1,
            (Ok(()), Op::Discard | Op::WriteZeroes) => {}
        }
    }
}

/// The way in which the completions of a channel reach a thread that waits for them. A thread that
/// waits for several channels chooses its way of waiting by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// By a system call, which ends a sleep. Polling before a sleep rarely finds any.
    Called,
    /// In memory. Polling finds a completion sooner than a sleep does, and a completion also ends a
    /// sleep.
    Seen,
    /// In memory, and nothing ends a sleep: a thread that waits must poll until a completion is
    /// there.
    Polled,
}

impl Arrival {
    /// Returns the arrival of completions for several channels that have requests. `Called` if
    /// there are no channels.
    pub(crate) fn of_all(all: impl Iterator<Item = Self>) -> Self {
        let joined = all.reduce(|one, other| match (one, other) {
            // However the others announce completions, these must be polled.
            (Self::Polled, _) | (_, Self::Polled) => Self::Polled,
            (Self::Seen, Self::Seen) => Self::Seen,
            _ => Self::Called,
        });
        joined.unwrap_or(Self::Called)
    }

    /// Returns the arrival of a channel that holds requests back until a timer makes them due. If
    /// it holds any now (`held`), these arrive by that timer, and the `below_in_flight` others as
    /// usual.
    pub(crate) fn with_held(self, held: bool, below_in_flight: u32) -> Self {
        match self {
            Self::Polled if below_in_flight > 0 => Self::Polled,
            Self::Seen if !held => Self::Seen,
            _ => Self::Called,
        }
    }
}

/// The data plane: one worker's own queue on one device.
///
/// `submit`, `kick` and `poll` never block and never allocate memory per request; `wait` sleeps in
/// the interface's own way. Completions come in any order. Dropping a channel waits for the
/// requests in flight, so that no device writes to memory that was freed.
pub trait IoChannel {
    /// Takes one request, or returns it if the queue is full (`Err`). The caller then polls and
    /// tries again. A fault of the request (not aligned, past the end, an unsupported operation) is
    /// reported in its completion.
    ///
    /// A request may stay in the channel until [`IoChannel::kick`] or [`IoChannel::wait`].
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request>;

    /// Rings the doorbell: hands all submitted requests to the device.
    fn kick(&mut self);

    /// Appends the available completions without sleeping, and returns their number. Rings the
    /// doorbell if that costs nothing.
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize;

    /// Works like [`poll`](Self::poll), for callers that poll again and again before they sleep.
    /// Does not update the descriptor of [`completion_fd`](Self::completion_fd), which saves system
    /// calls.
    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.poll(completions)
    }

    /// Returns how the completions of the requests now in flight reach a thread that waits for
    /// them.
    fn arrival(&self) -> Arrival {
        Arrival::Called
    }

    /// Rings the doorbell, and sleeps until enough completions are there (see [`WaitOptions`]), the
    /// wake event is signalled, or the time is up. Appends the completions and returns their
    /// number. With nothing in flight the call sleeps for the event or the time-out alone.
    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize;

    /// Returns the number of requests taken and not yet returned by `poll` or `wait`.
    fn in_flight(&self) -> u32;

    /// Returns the counters since the channel was opened.
    fn statistics(&self) -> ChannelStatistics;

    /// Returns a descriptor that polls readable when there may be completions, so that a channel
    /// that consists of several can sleep on all of them. Call it before the first request. Returns
    /// `None` if completions never need waiting for.
    ///
    /// The descriptor may stay readable after the last completion was taken, until a
    /// [`poll`](Self::poll) finds nothing. A thread that is about to sleep therefore polls once
    /// more, even with nothing in flight.
    ///
    /// # Errors
    /// Returns the error of the interface if no descriptor can be created.
    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>>;
}
