//! A PCI function as its server sees it: the device side.

use std::os::fd::OwnedFd;

use qpair_block::Result;
use qpair_memory::DmaMemory;

use crate::function::Stepped;
use crate::irq_event::IrqEvent;

/// A part of a BAR that drivers map, and which the device watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedArea {
    /// First byte in the BAR; a multiple of 4096.
    pub offset_bytes: u64,
    /// Bytes; a multiple of 4096.
    pub len: u64,
    /// Where the area's first byte is in the file behind it ([`PciDevice::shared_file`]).
    pub file_offset_bytes: u64,
}

/// What becomes of a wish to sleep ([`PciDevice::listen`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listened {
    /// There is something to do.
    Busy,
    /// A call will tell of what comes next.
    Told,
    /// A driver may say something that no call tells of: a look finds it.
    Untold,
}

/// A model of a PCI function: what [`crate::InProcess`] and the vfio-user server serve.
///
/// Its methods may be called from any thread. What is asked for may come from a driver that is wrong or hostile: nothing panics, and
/// what lies outside of the device is an error. Offsets are checked by the device.
pub trait PciDevice: Send + Sync {
    /// The name of its kind, for messages: `nvme`.
    fn kind(&self) -> &'static str;

    /// Size of its configuration space, bytes (256 or 4096).
    fn config_bytes(&self) -> u32;

    /// Reads the configuration space. False: outside.
    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool;

    /// Writes the configuration space; what cannot be written is ignored. False: outside.
    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool;

    /// Bytes of a BAR, 0 to 5; 0: there is none.
    fn bar_bytes(&self, bar: u8) -> u64;

    /// Reads registers. False: outside of the BAR, or of a width or alignment that the device does not take.
    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool;

    /// Writes registers. False: as for reads.
    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool;

    /// The part of a BAR that drivers may map, if there is one.
    fn shared_area(&self, bar: u8) -> Option<SharedArea>;

    /// Whether that part is better not mapped by a driver that can do without: the device offers drivers to be told by memory of their own
    /// (shadow doorbells), and is woken by the calls that are left.
    fn prefers_calls(&self) -> bool {
        false
    }

    /// Whether a write there says only that there is something to do (a doorbell), so that it can be taken whatever is under way.
    fn is_doorbell(&self, _bar: u8, _offset: u64) -> bool {
        false
    }

    /// The thread that steps the device wants to sleep: drivers are asked to tell of what comes next.
    fn listen(&self) -> Listened {
        Listened::Untold
    }

    /// The file in memory behind that part, for one driver. It is that driver's for one session: [`PciDevice::end_session`] puts another
    /// one in its place.
    ///
    /// # Errors
    /// `Invalid` if there is no such part; otherwise what the kernel says (`Limit` for too many open files).
    fn shared_file(&self, bar: u8) -> Result<OwnedFd>;

    /// A driver opens memory of `memory.bytes().len()` bytes at `iova` to the device.
    ///
    /// # Errors
    /// `Exists` where it overlaps what is open already; `Limit` where there is too much.
    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()>;

    /// A driver closes what lies in a range. On return the device has forgotten that memory. What is only partly inside stays, and is an
    /// error (`Invalid`); nothing there is not (`NotFound`).
    ///
    /// # Errors
    /// As said.
    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()>;

    /// A driver closes all of its memory (it is gone).
    fn unmap_all(&self);

    /// MSI-X vectors.
    fn irq_count(&self) -> u32;

    /// Sets or takes the event of one vector. False: no such vector.
    fn set_irq(&self, vector: u32, event: Option<IrqEvent>) -> bool;

    /// Resets the function. On return it does not access memory until it is set up again.
    fn reset(&self);

    /// A driver of another process has gone, or was sent away. On return nothing of its session is left: its memory and its events are
    /// closed, the function is reset, and memory that it may still have mapped ([`PciDevice::shared_file`]) is watched no more.
    fn end_session(&self);

    /// Does what there is to do for one queue.
    fn step(&self, queue: u16) -> Stepped;

    /// Does what there is to do for all queues: for a thread that serves the whole device.
    fn step_all(&self) -> Stepped;
}
