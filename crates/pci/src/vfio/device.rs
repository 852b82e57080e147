//! A function's descriptor: registers, configuration space, interrupts, reset.

use qpair_memory::locks::Mutex;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::Mapping;
use rustix::io::{pread, pwrite};

use super::super::command;
use super::ioctl::{
    Argument, DEVICE_GET_INFO, DEVICE_GET_IRQ_INFO, DEVICE_GET_REGION_INFO, DEVICE_RESET,
    DEVICE_SET_IRQS, plain, sized,
};
use super::msix::MsixTable;
use super::region::{BARS, CONFIG_INDEX, INFO_BYTES, Region};

/// The index of MSI-X among the kinds of interrupts.
pub(super) const MSIX_INDEX: u32 = 2;
const FLAG_RESET: u32 = 1;
const FLAG_PCI: u32 = 2;
/// Flag: vectors cannot be added while some are in use.
const IRQ_NORESIZE: u32 = 1 << 3;
const IRQ_SET_EVENTFD: u32 = 1 << 2;
const IRQ_SET_TRIGGER: u32 = 1 << 5;
const IRQ_SET_BYTES: u32 = 20;
/// The number of vectors to enable at once if none can be added later.
const VECTORS_AT_ONCE: u32 = 128;

#[derive(Debug)]
pub(super) struct Device {
    name: String,
    fd: OwnedFd,
    bars: Vec<Region>,
    config: Region,
    resettable: bool,
    vectors: u32,
    can_add_vectors: bool,
    /// The number of vectors in use, from 0 on.
    enabled: Mutex<u32>,
}

impl Device {
    /// Reads everything about the function, and turns memory access and bus mastering on.
    pub(super) fn new(name: String, fd: OwnedFd) -> Result<Self> {
        let failed = |what: &str, cause| Error::os(cause, format!("{name}: {what}"));
        let mut info = Argument::new(24);
        sized(fd.as_fd(), DEVICE_GET_INFO, &mut info)
            .map_err(|cause| failed("reading its device information", cause))?;
        if info.u32(4) & FLAG_PCI == 0 {
            let context = format!("{name} is not a PCI function");
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let region =
            |index| region(fd.as_fd(), index).map_err(|cause| failed("reading its regions", cause));
        let config = region(CONFIG_INDEX)?;
        let bars = (0..BARS).map(region).collect::<Result<Vec<_>>>()?;
        let mut irq = Argument::new(16).with_u32(8, MSIX_INDEX);
        let has_msix = sized(fd.as_fd(), DEVICE_GET_IRQ_INFO, &mut irq).is_ok();
        let mut device = Self {
            resettable: info.u32(4) & FLAG_RESET != 0,
            vectors: if has_msix { irq.u32(12) } else { 0 },
            can_add_vectors: irq.u32(4) & IRQ_NORESIZE == 0,
            enabled: Mutex::new(0),
            name,
            fd,
            bars,
            config,
        };
        let mut head = [0; 256];
        device.read_config(0, &mut head)?;
        device.keep_off_msix(&head);
        device.turn_on()?;
        Ok(device)
    }

    /// Excludes the pages with the MSI-X table from mapping, even if the kernel would allow it: the
    /// kernel writes the table itself.
    fn keep_off_msix(&mut self, config: &[u8; 256]) {
        let page = rustix::param::page_size() as u64;
        if let Some(table) = MsixTable::find(config) {
            let end = (table.offset + table.len).next_multiple_of(page);
            if let Some(bar) = self.bars.get_mut(usize::from(table.bar)) {
                bar.exclude(table.offset / page * page, end);
            }
        }
    }

    fn turn_on(&self) -> Result<()> {
        self.change_command(command::MEMORY | command::BUS_MASTER | command::NO_INTX, 0)
    }

    /// Turns bus mastering off: the function starts no more accesses to memory.
    pub(super) fn stop_mastering(&self) -> Result<()> {
        self.change_command(0, command::BUS_MASTER)
    }

    fn change_command(&self, set: u16, clear: u16) -> Result<()> {
        let mut bytes = [0; 2];
        self.read_config(command::AT, &mut bytes)?;
        let word = u16::from_le_bytes(bytes) & !clear | set;
        self.write_config(command::AT, &word.to_le_bytes())
    }

    pub(super) fn read_config(&self, offset: u32, into: &mut [u8]) -> Result<()> {
        self.read(&self.config, offset.into(), into, "configuration space")
    }

    pub(super) fn write_config(&self, offset: u32, bytes: &[u8]) -> Result<()> {
        self.write(&self.config, offset.into(), bytes, "configuration space")
    }

    fn bar(&self, bar: u8) -> Result<&Region> {
        self.bars.get(usize::from(bar)).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("{} has no BAR {bar}", self.name))
        })
    }

    pub(super) fn bar_bytes(&self, bar: u8) -> u64 {
        self.bars.get(usize::from(bar)).map_or(0, |region| region.len)
    }

    pub(super) fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read(self.bar(bar)?, offset, into, "register")
    }

    pub(super) fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(self.bar(bar)?, offset, bytes, "register")
    }

    pub(super) fn map_bar(&self, bar: u8, offset: u64, len: usize) -> Result<Option<Arc<Mapping>>> {
        let region = self.bar(bar)?;
        let Some(at) = region.at(offset, len).filter(|_| region.may_map(offset, len as u64)) else {
            return Ok(None);
        };
        Mapping::of_file(self.fd.as_fd(), at, len, true)
            .map(Some)
            .map_err(|cause| Error::os(cause, format!("{}: mapping its registers", self.name)))
    }

    fn read(&self, region: &Region, offset: u64, into: &mut [u8], what: &str) -> Result<()> {
        let at = region.at(offset, into.len()).ok_or_else(|| self.outside(what, offset))?;
        let wanted = into.len();
        let done = pread(&self.fd, into, at);
        self.whole(done, wanted, what, offset)
    }

    fn write(&self, region: &Region, offset: u64, bytes: &[u8], what: &str) -> Result<()> {
        let at = region.at(offset, bytes.len()).ok_or_else(|| self.outside(what, offset))?;
        let done = pwrite(&self.fd, bytes, at);
        self.whole(done, bytes.len(), what, offset)
    }

    fn outside(&self, what: &str, offset: u64) -> Error {
        Error::new(ErrorKind::Invalid, format!("{} has no {what} at {offset:#x}", self.name))
    }

    fn whole(
        &self,
        done: rustix::io::Result<usize>,
        wanted: usize,
        what: &str,
        offset: u64,
    ) -> Result<()> {
        let context = || format!("{}: reaching its {what} at {offset:#x}", self.name);
        match done {
            Ok(done) if done == wanted => Ok(()),
            Ok(_) => Err(Error::new(ErrorKind::Gone, context())),
            Err(cause) => Err(Error::os(cause.into(), context())),
        }
    }

    pub(super) fn irq_count(&self) -> u32 {
        self.vectors
    }

    pub(super) fn set_irq(&self, vector: u32, event: Option<BorrowedFd<'_>>) -> Result<()> {
        if vector >= self.vectors {
            let context = format!("{} has no interrupt vector {vector}", self.name);
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let mut enabled = self.enabled.lock();
        if vector >= *enabled {
            if event.is_none() {
                return Ok(());
            }
            self.enable(vector, &mut enabled)?;
        }
        let fd = event.map_or(-1, |event| event.as_raw_fd());
        let left = self.set_events(vector, &[fd])?;
        if left == 0 { Ok(()) } else { Err(self.too_few_vectors(vector, left)) }
    }

    /// Makes vectors up to `vector` usable. If none can be added later, enables all that will ever
    /// be used now.
    fn enable(&self, vector: u32, enabled: &mut u32) -> Result<()> {
        if self.can_add_vectors {
            *enabled = vector + 1;
            return Ok(());
        }
        if *enabled > 0 {
            return Err(self.too_few_vectors(vector, *enabled));
        }
        let mut wanted = self.vectors.min(VECTORS_AT_ONCE.max(vector + 1));
        // The kernel returns the number that it could have given.
        for _ in 0..8 {
            let possible = self.set_events(0, &vec![-1; wanted as usize])?;
            if possible == 0 {
                *enabled = wanted;
                return Ok(());
            }
            if possible <= vector || possible >= wanted {
                return Err(self.too_few_vectors(vector, possible));
            }
            wanted = possible;
        }
        Err(self.too_few_vectors(vector, wanted))
    }

    /// Makes vectors from `start` on signal events; -1 stands for no event. Returns 0, or the
    /// number of vectors that the machine has if those are too few.
    fn set_events(&self, start: u32, events: &[i32]) -> Result<u32> {
        let mut set = irq_set(start, events);
        sized(self.fd.as_fd(), DEVICE_SET_IRQS, &mut set)
            .map_err(|cause| Error::os(cause, format!("{}: setting up interrupts", self.name)))
    }

    fn too_few_vectors(&self, vector: u32, have: u32) -> Error {
        let context = format!("{} has no interrupt vector {vector}: there are {have}", self.name);
        Error::new(ErrorKind::Limit, context)
            .hint("use fewer workers, or poll, which needs no interrupts")
    }

    pub(super) fn reset(&self) -> Result<()> {
        if !self.resettable {
            let context = format!("{} cannot be reset by itself, nor can its slot", self.name);
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        plain(self.fd.as_fd(), DEVICE_RESET, 0)
            .map_err(|cause| Error::os(cause, format!("{}: resetting it", self.name)))?;
        self.turn_on()
    }
}

/// Returns a `struct vfio_irq_set` for MSI-X, followed by events.
fn irq_set(start: u32, events: &[i32]) -> Argument {
    let count = events.len() as u32;
    let mut set = Argument::new(IRQ_SET_BYTES + 4 * count)
        .with_u32(4, IRQ_SET_EVENTFD | IRQ_SET_TRIGGER)
        .with_u32(8, MSIX_INDEX)
        .with_u32(12, start)
        .with_u32(16, count);
    for (number, event) in events.iter().enumerate() {
        set = set.with_u32(IRQ_SET_BYTES as usize + 4 * number, *event as u32);
    }
    set
}

fn region(fd: BorrowedFd<'_>, index: u32) -> std::io::Result<Region> {
    let asked = |len: u32| {
        let mut info = Argument::new(len).with_u32(8, index);
        sized(fd, DEVICE_GET_REGION_INFO, &mut info).map(|_| info)
    };
    let info = asked(INFO_BYTES)?;
    // The first answer contains the length of the full answer, with capabilities.
    let info = asked(info.u32(0).clamp(INFO_BYTES, 1 << 16))?;
    Ok(Region::parse(info.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_vectors() {
        let set = irq_set(3, &[9, -1]);
        let words: Vec<u32> = (0..7).map(|word| set.u32(4 * word)).collect();
        assert_eq!(words, [28, 0x24, MSIX_INDEX, 3, 2, 9, u32::MAX]);
    }

    #[test]
    fn what_is_no_function_is_refused() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let error = Device::new("0000:03:00.0".into(), null.into()).unwrap_err();
        assert!(
            error.to_string().contains("0000:03:00.0: reading its device information"),
            "{error}"
        );
    }
}
