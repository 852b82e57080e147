//! A device model and its driver in one process.
//!
//! The model has no thread of its own: the driver's threads step it ([`PciFunction::stepper`]), so
//! that one core runs both sides.

use qpair_memory::locks::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::{Arena, DmaMemory, Mapping};

use crate::device::PciDevice;
use crate::function::{PciFunction, Step, Stepped};
use crate::irq_event::IrqEvent;

/// The first address for the device. Not 0, which a faulty command is likely to name.
const IOVA_START: u64 = 1 << 32;
/// The unused addresses between two open areas, so that an access past an end hits no memory.
const IOVA_GAP: u64 = 2 << 20;

/// A [`PciDevice`] of this process as a [`PciFunction`].
pub struct InProcess<D> {
    name: String,
    device: Arc<D>,
    opened: Mutex<Opened>,
}

struct Opened {
    next_iova: u64,
    /// By the arena's number: address for the device, and length in bytes.
    arenas: HashMap<u32, (u64, u64)>,
    /// By the address of the mapping: address for the device, and length in bytes.
    regions: HashMap<usize, (u64, u64)>,
}

impl Opened {
    /// Reserves `len` bytes of addresses after those that are in use.
    fn take(&mut self, len: u64) -> u64 {
        let iova = self.next_iova;
        self.next_iova = (iova + len).next_multiple_of(IOVA_GAP) + IOVA_GAP;
        iova
    }
}

impl<D: PciDevice + 'static> InProcess<D> {
    /// Makes a function with this name from `device`.
    pub fn new(name: impl Into<String>, device: Arc<D>) -> Self {
        let opened =
            Opened { next_iova: IOVA_START, arenas: HashMap::new(), regions: HashMap::new() };
        Self { name: name.into(), device, opened: Mutex::new(opened) }
    }

    /// Returns the device itself, for operations that no driver can do (faults, power).
    #[must_use]
    pub fn device(&self) -> &Arc<D> {
        &self.device
    }

    fn outside(&self, what: &str, offset: u64) -> Error {
        Error::new(ErrorKind::Invalid, format!("{} has no {what} at {offset:#x}", self.name))
    }

    fn check(&self, done: bool, what: &str, offset: u64) -> Result<()> {
        if done { Ok(()) } else { Err(self.outside(what, offset)) }
    }
}

impl<D> fmt::Debug for InProcess<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InProcess {}", self.name)
    }
}

impl<D: PciDevice + 'static> PciFunction for InProcess<D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn transport(&self) -> &'static str {
        "in-process"
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> Result<()> {
        self.check(self.device.read_config(offset, into), "configuration space", offset.into())
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> Result<()> {
        self.check(self.device.write_config(offset, bytes), "configuration space", offset.into())
    }

    fn bar_bytes(&self, bar: u8) -> u64 {
        self.device.bar_bytes(bar)
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check(self.device.read_bar(bar, offset, into), "register", offset)
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(self.device.write_bar(bar, offset, bytes), "register", offset)
    }

    fn map_bar(&self, bar: u8, offset: u64, len: usize) -> Result<Option<Arc<Mapping>>> {
        let area = self.device.shared_area(bar).filter(|_| !self.device.prefers_calls());
        let Some(area) = area else { return Ok(None) };
        let end = offset.saturating_add(len as u64);
        if offset < area.offset_bytes || end > area.offset_bytes + area.len {
            return Ok(None);
        }
        let file = self.device.shared_file(bar)?;
        let in_file = area.file_offset_bytes + (offset - area.offset_bytes);
        Mapping::of_file(file.as_fd(), in_file, len, true)
            .map(Some)
            .map_err(|cause| Error::os(cause, format!("{}: mapping its registers", self.name)))
    }

    fn map_dma(&self, arena: &Arc<Arena>) -> Result<u64> {
        let mut opened = self.opened.lock();
        if opened.arenas.contains_key(&arena.id()) {
            let context = format!("{arena:?} is open to {} already", self.name);
            return Err(Error::new(ErrorKind::Exists, context));
        }
        let len = arena.mapped_bytes() as u64;
        let iova = opened.take(len);
        // SAFETY: the device is a model of hardware: it writes where commands say. In their
        // commands, the drivers above this crate name only buffers that they hold until the answer,
        // and their own queues (qpair-memory, point 6).
        let memory = unsafe { DmaMemory::of_arena(arena.clone()) };
        self.device.map_dma(iova, memory)?;
        opened.arenas.insert(arena.id(), (iova, len));
        Ok(iova)
    }

    fn unmap_dma(&self, arena: &Arena) -> Result<()> {
        let mut opened = self.opened.lock();
        let Some((iova, len)) = opened.arenas.remove(&arena.id()) else {
            let context = format!("{arena:?} is not open to {}", self.name);
            return Err(Error::new(ErrorKind::NotFound, context));
        };
        self.device.unmap_dma(iova, len)
    }

    fn map_region(&self, region: &Arc<Mapping>) -> Result<Option<u64>> {
        let mut opened = self.opened.lock();
        let (key, len) = (region.region().0, region.bytes().len() as u64);
        if opened.regions.contains_key(&key) {
            let context = format!("{region:?} is open to {} already", self.name);
            return Err(Error::new(ErrorKind::Exists, context));
        }
        let iova = opened.take(len);
        self.device.map_dma(iova, DmaMemory::of_mapping(region.clone()))?;
        opened.regions.insert(key, (iova, len));
        Ok(Some(iova))
    }

    fn unmap_region(&self, region: &Mapping) -> Result<()> {
        let mut opened = self.opened.lock();
        let Some((iova, len)) = opened.regions.remove(&region.region().0) else {
            let context = format!("{region:?} is not open to {}", self.name);
            return Err(Error::new(ErrorKind::NotFound, context));
        };
        self.device.unmap_dma(iova, len)
    }

    fn needs_shared_memory(&self) -> bool {
        false
    }

    fn irq_count(&self) -> u32 {
        self.device.irq_count()
    }

    fn set_irq(&self, vector: u32, event: Option<BorrowedFd<'_>>) -> Result<()> {
        let event =
            event
                .map(|event| {
                    let event = event.try_clone_to_owned();
                    IrqEvent::new(event.map_err(|cause| {
                        Error::os(cause, "duplicating an event for an interrupt")
                    })?)
                })
                .transpose()?;
        self.check(self.device.set_irq(vector, event), "interrupt vector", vector.into())
    }

    fn reset(&self) -> Result<()> {
        self.device.reset();
        Ok(())
    }

    fn stepper(&self) -> Option<Arc<dyn Step>> {
        Some(Arc::new(Stepper(self.device.clone())))
    }
}

struct Stepper<D>(Arc<D>);

impl<D: PciDevice> Step for Stepper<D> {
    #[inline]
    fn step(&self, queue: u16) -> Stepped {
        self.0.step(queue)
    }
}
