//! [`PciFunction`] over VFIO.

use qpair_memory::locks::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::{Arena, Mapping};

use super::device::Device;
use super::dma::Dma;
use super::ioctl::Memory;
use super::{group, iommufd};
use crate::function::PciFunction;
use crate::sysfs::{Function, Root};

pub(super) struct VfioFunction {
    name: String,
    transport: &'static str,
    device: Device,
    dma: Arc<Dma>,
    /// The open arenas, by number.
    opened: Mutex<HashMap<u32, Opened>>,
    /// Memory of other processes by its address, with its address for the device.
    regions: Mutex<HashMap<usize, (u64, Arc<Mapping>)>>,
    /// The last field to be dropped: others may open the function only after its descriptor is
    /// closed.
    _claim: Option<group::Claim>,
}

struct Opened {
    iova: u64,
    arena: Arc<Arena>,
}

impl VfioFunction {
    pub(super) fn open(root: &Root, function: &Function) -> Result<Self> {
        let name = function.address.to_string();
        let (transport, fd, dma, claim) = match iommufd::usable(root, function.address) {
            Some(path) => {
                let (fd, dma) = iommufd::open(root, function, &path)?;
                ("vfio-iommufd", fd, dma, None)
            }
            None => {
                let (fd, dma, claim) = group::open(root, function)?;
                ("vfio", fd, dma, Some(claim))
            }
        };
        let device = Device::new(name.clone(), fd)?;
        Ok(Self {
            name,
            transport,
            device,
            dma,
            opened: Mutex::default(),
            regions: Mutex::default(),
            _claim: claim,
        })
    }
}

impl fmt::Debug for VfioFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VfioFunction {} by {}", self.name, self.transport)
    }
}

impl Drop for VfioFunction {
    /// Stops the device before its memory is closed, because a driver may have left it running.
    fn drop(&mut self) {
        // A function that is gone cannot be stopped, and accesses no memory any more.
        let _ = self.device.stop_mastering();
        let opened = self.opened.get_mut();
        for (_, Opened { iova, arena }) in opened.drain() {
            // Memory that cannot be closed now is closed with the container; until then the kernel
            // keeps the pages.
            let _ = self.dma.close(iova, arena.mapped_bytes() as u64);
        }
        let regions = self.regions.get_mut();
        for (_, (iova, region)) in regions.drain() {
            let _ = self.dma.close(iova, region.region().1 as u64);
        }
    }
}

impl PciFunction for VfioFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn transport(&self) -> &'static str {
        self.transport
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> Result<()> {
        self.device.read_config(offset, into)
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> Result<()> {
        self.device.write_config(offset, bytes)
    }

    fn bar_bytes(&self, bar: u8) -> u64 {
        self.device.bar_bytes(bar)
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()> {
        self.device.read_bar(bar, offset, into)
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_bar(bar, offset, bytes)
    }

    fn map_bar(&self, bar: u8, offset: u64, len: usize) -> Result<Option<Arc<Mapping>>> {
        self.device.map_bar(bar, offset, len)
    }

    fn map_dma(&self, arena: &Arc<Arena>) -> Result<u64> {
        let mut opened = self.opened.lock();
        if opened.contains_key(&arena.id()) {
            let context = format!("{arena:?} is open to {} already", self.name);
            return Err(Error::new(ErrorKind::Exists, context));
        }
        let iova = self.dma.open(Memory::Arena(arena))?;
        opened.insert(arena.id(), Opened { iova, arena: arena.clone() });
        Ok(iova)
    }

    fn unmap_dma(&self, arena: &Arena) -> Result<()> {
        let mut opened = self.opened.lock();
        let Some(Opened { iova, .. }) = opened.get(&arena.id()) else {
            let context = format!("{arena:?} is not open to {}", self.name);
            return Err(Error::new(ErrorKind::NotFound, context));
        };
        self.dma.close(*iova, arena.mapped_bytes() as u64)?;
        opened.remove(&arena.id());
        Ok(())
    }

    fn map_region(&self, region: &Arc<Mapping>) -> Result<Option<u64>> {
        let mut regions = self.regions.lock();
        let (start, _) = region.region();
        if regions.contains_key(&start) {
            let context = format!("{region:?} is open to {} already", self.name);
            return Err(Error::new(ErrorKind::Exists, context));
        }
        let iova = self.dma.open(Memory::Region(region))?;
        regions.insert(start, (iova, region.clone()));
        // The mapping begins at a page boundary, which may be before the range.
        Ok(Some(iova + (region.start() - start) as u64))
    }

    fn unmap_region(&self, region: &Mapping) -> Result<()> {
        let mut regions = self.regions.lock();
        let (start, len) = region.region();
        let Some((iova, _)) = regions.get(&start) else {
            let context = format!("{region:?} is not open to {}", self.name);
            return Err(Error::new(ErrorKind::NotFound, context));
        };
        self.dma.close(*iova, len as u64)?;
        regions.remove(&start);
        Ok(())
    }

    fn needs_shared_memory(&self) -> bool {
        false
    }

    fn irq_count(&self) -> u32 {
        self.device.irq_count()
    }

    fn set_irq(&self, vector: u32, event: Option<BorrowedFd<'_>>) -> Result<()> {
        self.device.set_irq(vector, event)
    }

    fn reset(&self) -> Result<()> {
        self.device.reset()
    }
}
