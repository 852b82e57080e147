//! A PCI function as its server sees it: the device side.

use std::os::fd::OwnedFd;

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::DmaMemory;

use crate::function::Stepped;
use crate::irq_event::IrqEvent;
use crate::model::CONFIG_BYTES;

/// A part of a BAR that drivers map and the device watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedArea {
    /// The offset of the first byte in the BAR, a multiple of 4096.
    pub offset_bytes: u64,
    /// The length in bytes, a multiple of 4096.
    pub len: u64,
    /// The offset of the area's first byte in the file behind it ([`PciDevice::shared_file`]).
    pub file_offset_bytes: u64,
}

/// The device's answer when its thread wants to sleep ([`PciDevice::listen`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listened {
    /// There is work, so the thread must not sleep.
    Busy,
    /// A call will announce the next work.
    Signalled,
    /// A driver may leave work without a call, so the thread must poll for it.
    Unsignalled,
}

/// A model of a PCI function, served by [`crate::InProcess`] and by the vfio-user server.
///
/// The methods may be called from any thread. Their arguments may come from a faulty or hostile
/// driver: no method panics, and an access outside the device is an error. The device checks all
/// offsets.
pub trait PciDevice: Send + Sync {
    /// Returns the name of the kind of device, for messages: `nvme`.
    fn kind(&self) -> &'static str;

    /// Returns the size of the configuration space in bytes: 256 or 4096.
    fn config_bytes(&self) -> u32 {
        CONFIG_BYTES as u32
    }

    /// Reads the configuration space. Returns false if the range lies outside it.
    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool;

    /// Writes the configuration space and ignores bytes that are read-only. Returns false if the
    /// range lies outside it.
    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool;

    /// Returns the size of a BAR (0 to 5) in bytes, or 0 if the device does not have it.
    fn bar_bytes(&self, bar: u8) -> u64;

    /// Reads registers. Returns false if the range lies outside the BAR, or if the device does not
    /// accept this width or alignment.
    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool;

    /// Writes registers. Returns false in the same cases as [`PciDevice::read_bar`].
    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool;

    /// Returns the part of a BAR that drivers may map, if there is one.
    fn shared_area(&self, _bar: u8) -> Option<SharedArea> {
        None
    }

    /// Whether a driver that can do without the shared area had better not map it.
    ///
    /// Such a device lets drivers announce work in memory of their own (shadow doorbells), and the
    /// calls that remain wake it.
    fn prefers_calls(&self) -> bool {
        false
    }

    /// Whether a write at this offset only says that there is work (a doorbell). Such a write can
    /// be accepted at any time.
    fn is_doorbell(&self, _bar: u8, _offset: u64) -> bool {
        false
    }

    /// Asks drivers to announce their next work by a call, because the thread that steps the device
    /// wants to sleep.
    fn listen(&self) -> Listened {
        Listened::Unsignalled
    }

    /// Returns the file in memory behind the shared area, for one driver.
    ///
    /// The file belongs to one session of that driver: [`PciDevice::end_session`] replaces it by
    /// another.
    ///
    /// # Errors
    /// `Invalid` if the BAR has no shared area; otherwise the kernel's error (`Limit` for too many
    /// open files).
    fn shared_file(&self, bar: u8) -> Result<OwnedFd> {
        let context = format!("{}: BAR {bar} has no shared area", self.kind());
        Err(Error::new(ErrorKind::Invalid, context))
    }

    /// Opens a driver's memory of `memory.bytes().len()` bytes to the device, at `iova`.
    ///
    /// # Errors
    /// `Exists` if it overlaps memory that is open already; `Limit` if there is too much.
    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()>;

    /// Closes a driver's memory in a range. On return the device has forgotten that memory.
    ///
    /// # Errors
    /// `Invalid` if some memory lies only partly inside the range: that memory stays open.
    /// `NotFound` if the range has no memory.
    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()>;

    /// Closes all memory of a driver that has gone.
    fn unmap_all(&self);

    /// Returns the number of MSI-X vectors.
    fn irq_count(&self) -> u32 {
        0
    }

    /// Sets or removes the event of one vector. Returns false if there is no such vector.
    fn set_irq(&self, _vector: u32, _event: Option<IrqEvent>) -> bool {
        false
    }

    /// Resets the function. On return it does not access memory until it is set up again.
    fn reset(&self);

    /// Ends the session of a driver in another process that has gone or was disconnected.
    ///
    /// On return nothing of the session is left: its memory and events are closed, the function is
    /// reset, and memory that the driver may still have mapped ([`PciDevice::shared_file`]) is no
    /// longer watched.
    fn end_session(&self) {
        self.unmap_all();
        self.reset();
    }

    /// Does the work that one queue has now.
    fn step(&self, queue: u16) -> Stepped;

    /// Does the work that all queues have now, for a thread that serves the whole device.
    fn step_all(&self) -> Stepped;
}
