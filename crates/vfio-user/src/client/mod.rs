//! The driver's side: a device in another process as a PCI function.
//!
//! Invariants:
//! - Every call ends, by an answer or by the time-out.
//! - The answer to a command is the next reply, since only one call is in progress at a time.
//! - After a time-out, or bytes that make no sense, the connection is closed. Every later call then
//!   fails with the error that the device is gone.

mod connect;
mod connection;
mod errors;

use qpair_memory::locks::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::{Arena, Mapping, mappings_cut};
use qpair_pci::{PciFunction, TimeoutPolicy, command, find_capability, msix};

use crate::Message;
use crate::codec::{
    Command, DeviceInfo, DmaMap, DmaUnmap, IrqAction, IrqData, IrqInfo, RegionAccess, RegionInfo,
    SetIrqs, irq_index, region_index,
};
use connection::Connection;

/// The first address for the device. Not 0, which a faulty command is likely to name.
const IOVA_START: u64 = 1 << 32;
/// The unused addresses between two open areas, so that an access past an end hits no memory.
const IOVA_GAP: u64 = 2 << 20;
/// The alignment of open areas, also in their files: SPDK accepts no other, and does not say so.
const GRID_BYTES: u64 = 2 << 20;
/// The maximum number of bytes of a region's description.
const REGION_INFO_BYTES: u32 = 4096 - 32;
const BARS: u32 = 6;

#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The time limit for an answer. A device that shares its processor with others may need a
    /// while. Default: 10 s.
    pub timeout: Duration,
    /// The timeout policy, which may end a wait before the time limit. Default: none.
    pub timeout_policy: TimeoutPolicy,
    /// Whether only memory of reserved huge pages is shared with the device. Default: false.
    pub huge_pages: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            timeout_policy: TimeoutPolicy::default(),
            huge_pages: false,
        }
    }
}

pub struct Client {
    name: String,
    can_reset: bool,
    irq_count: u32,
    huge_pages: bool,
    config_bytes: u64,
    bars: Vec<Bar>,
    /// The state of the function's command register before this client changed it, and the offset
    /// of its MSI-X control word.
    found: Found,
    state: Mutex<State>,
}

/// The parts of the configuration space to restore at the end.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    command: Option<u16>,
    msix_control_at: Option<u32>,
}

struct Bar {
    info: RegionInfo,
    /// The file behind the areas of the BAR.
    file: Option<OwnedFd>,
}

struct State {
    connection: Connection,
    next_iova: u64,
    /// The open arenas by number: address for the device, length in bytes, and the arena.
    arenas: HashMap<u32, (u64, u64, Arc<Arena>)>,
    /// The open regions by the address of the mapping: address for the device, length in bytes, and
    /// the mapping.
    regions: HashMap<usize, (u64, u64, Arc<Mapping>)>,
    registers: Vec<Weak<Mapping>>,
    /// The number of mappings in this process that had been cut short at the last check.
    cut: u64,
}

impl State {
    /// Sends a command and waits for its answer, unless memory that is shared with the device was
    /// cut short: such a device is not trusted any more.
    fn call(
        &mut self,
        command: Command,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Message> {
        let cut = mappings_cut();
        if std::mem::replace(&mut self.cut, cut) != cut {
            let registers = self.registers.iter().filter_map(Weak::upgrade);
            let arenas = self.arenas.values();
            if registers.into_iter().any(|it| it.is_cut())
                || arenas.into_iter().any(|it| it.2.is_cut())
            {
                return Err(self.connection.cut_short());
            }
        }
        self.connection.call(command, payload, fds)
    }
}

impl Client {
    /// Connects to a server at `path`: a socket, or a folder with a socket called `cntrl`.
    ///
    /// # Errors
    /// `NotFound` and `Denied` for the path; `Gone` if no process listens there; `Busy` if the
    /// server has a client already; `Unsupported` for another protocol, another version of
    /// vfio-user, or a device that is not a PCI function.
    pub fn connect(path: &Path, options: &ClientOptions) -> Result<Self> {
        let path = connect::socket_path(path);
        let name = format!("vfio-user:{}", path.display());
        let stream = connect::open(&path, &name)?;
        let mut connection = Connection::new(stream, name.clone(), options);
        connect::agree(&mut connection)?;

        let reply = connection.call(Command::GetDeviceInfo, &DeviceInfo::request(), &[])?;
        let info = DeviceInfo::parse(&reply.payload)
            .ok_or_else(|| errors::nonsense(&name, Command::GetDeviceInfo))?;
        if !info.is_pci {
            let context = format!("{name}: the device is not a PCI function");
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let bars = (0..BARS.min(info.regions))
            .map(|bar| region(&mut connection, &name, bar))
            .collect::<Result<Vec<_>>>()?;
        let config_bytes = match info.regions > region_index::CONFIG {
            true => region(&mut connection, &name, region_index::CONFIG)?.info.len,
            false => 0,
        };
        let mut irq_count = 0;
        if info.irqs > irq_index::MSIX {
            let request = IrqInfo { index: irq_index::MSIX, count: 0 };
            let reply = connection.call(Command::GetIrqInfo, &request.payload(), &[])?;
            irq_count = IrqInfo::parse(&reply.payload)
                .ok_or_else(|| errors::nonsense(&name, Command::GetIrqInfo))?
                .count;
        }
        let mut client = Self {
            name,
            can_reset: info.can_reset,
            irq_count,
            huge_pages: options.huge_pages,
            config_bytes,
            bars,
            state: Mutex::new(State {
                connection,
                next_iova: IOVA_START,
                arenas: HashMap::new(),
                regions: HashMap::new(),
                registers: Vec::new(),
                cut: mappings_cut(),
            }),
            found: Found::default(),
        };
        client.set_up()?;
        Ok(client)
    }

    /// Turns INTx off, which cannot be signalled over the socket: a device that raises it waits for
    /// a driver to acknowledge it.
    fn set_up(&mut self) -> Result<()> {
        let mut config = [0; 256];
        if self.config_bytes < config.len() as u64 {
            return Ok(());
        }
        self.read_config(0, &mut config)?;
        let found =
            u16::from_le_bytes([config[command::AT as usize], config[command::AT as usize + 1]]);
        let at = find_capability(&config, msix::NUMBER);
        self.found =
            Found { command: Some(found), msix_control_at: at.map(|at| at as u32 + msix::CONTROL) };
        self.write_config(command::AT, &(found | command::NO_INTX).to_le_bytes())
    }

    /// Enables or disables MSI-X: some devices send no messages before it is enabled.
    fn enable_msix(&self, enabled: bool) -> Result<()> {
        let Some(at) = self.found.msix_control_at else { return Ok(()) };
        let mut bytes = [0; 2];
        self.read_config(at, &mut bytes)?;
        let rest = u16::from_le_bytes(bytes) & !(msix::ENABLE | msix::MASK_ALL);
        let word = rest | if enabled { msix::ENABLE } else { 0 };
        self.write_config(at, &word.to_le_bytes())
    }

    fn bar(&self, bar: u8) -> Option<&Bar> {
        self.bars.get(usize::from(bar))
    }

    fn check(&self, what: &str, len: u64, access: RegionAccess) -> Result<()> {
        let end = access.offset_bytes.checked_add(access.len.into());
        if end.is_some_and(|end| end <= len) {
            return Ok(());
        }
        let context = format!("{} has no {what} at {:#x}", self.name, access.offset_bytes);
        Err(Error::new(ErrorKind::Invalid, context))
    }

    fn read(&self, access: RegionAccess, into: &mut [u8]) -> Result<()> {
        let reply = self.state.lock().call(Command::RegionRead, &access.payload(&[]), &[])?;
        match RegionAccess::parse(&reply.payload) {
            Some((_, data)) if data.len() >= into.len() => {
                into.copy_from_slice(&data[..into.len()]);
                Ok(())
            }
            _ => Err(errors::nonsense(&self.name, Command::RegionRead)),
        }
    }

    fn write(&self, access: RegionAccess, bytes: &[u8]) -> Result<()> {
        self.state.lock().call(Command::RegionWrite, &access.payload(bytes), &[])?;
        Ok(())
    }
}

/// Returns the start and the length of a range of a file, extended to whole steps of the grid as
/// far as the file goes. `None` if the result is not whole pages.
fn on_grid(file: BorrowedFd<'_>, offset_bytes: u64, len: u64) -> Option<(u64, u64)> {
    const PAGE_BYTES: u64 = 4096;
    let file_bytes = u64::try_from(rustix::fs::fstat(file).ok()?.st_size).ok()?;
    let start = offset_bytes / GRID_BYTES * GRID_BYTES;
    let end = offset_bytes.checked_add(len)?.checked_next_multiple_of(GRID_BYTES)?.min(file_bytes);
    let fits = offset_bytes + len <= end && end.is_multiple_of(PAGE_BYTES);
    fits.then_some((start, end - start))
}

fn region(connection: &mut Connection, name: &str, index: u32) -> Result<Bar> {
    let request = RegionInfo::request(index, REGION_INFO_BYTES);
    let mut reply = connection.call(Command::GetRegionInfo, &request, &[])?;
    let info = RegionInfo::parse(&reply.payload)
        .ok_or_else(|| errors::nonsense(name, Command::GetRegionInfo))?;
    let file = (!reply.fds.is_empty()).then(|| reply.fds.swap_remove(0));
    Ok(Bar { info, file })
}

fn access(region: u32, offset_bytes: u64, bytes: &[u8]) -> RegionAccess {
    RegionAccess { offset_bytes, region, len: u32::try_from(bytes.len()).unwrap_or(u32::MAX) }
}

impl PciFunction for Client {
    fn name(&self) -> &str {
        &self.name
    }

    fn transport(&self) -> &'static str {
        "vfio-user"
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> Result<()> {
        let access = access(region_index::CONFIG, offset.into(), into);
        self.check("configuration space", self.config_bytes, access)?;
        self.read(access, into)
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> Result<()> {
        let access = access(region_index::CONFIG, offset.into(), bytes);
        self.check("configuration space", self.config_bytes, access)?;
        self.write(access, bytes)
    }

    fn bar_bytes(&self, bar: u8) -> u64 {
        self.bar(bar).map_or(0, |bar| bar.info.len)
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()> {
        let access = access(bar.into(), offset, into);
        self.check("register", self.bar_bytes(bar), access)?;
        self.read(access, into)
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> Result<()> {
        let access = access(bar.into(), offset, bytes);
        self.check("register", self.bar_bytes(bar), access)?;
        self.write(access, bytes)
    }

    fn post_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> Result<()> {
        let access = access(bar.into(), offset, bytes);
        self.check("register", self.bar_bytes(bar), access)?;
        self.state.lock().connection.post(Command::RegionWrite, &access.payload(bytes))
    }

    fn map_bar(&self, bar: u8, offset: u64, len: usize) -> Result<Option<Arc<Mapping>>> {
        let Some(Bar { info, file: Some(file) }) = self.bar(bar) else { return Ok(None) };
        let inside = info.areas.iter().any(|area| {
            let into = offset.checked_sub(area.offset_bytes);
            into.is_some_and(|into| into <= area.len && len as u64 <= area.len - into)
        });
        if !inside {
            return Ok(None);
        }
        let in_file = info.file_offset_bytes.wrapping_add(offset);
        let failed = |cause| Error::os(cause, format!("{}: mapping its registers", self.name));
        let size = rustix::fs::fstat(file).map_err(|errno| failed(errno.into()))?.st_size;
        // Accessing such a file would wait for its server.
        const FUSE: u64 = 0x6573_5546;
        let kind = rustix::fs::fstatfs(file).map_err(|errno| failed(errno.into()))?.f_type;
        if kind as u64 == FUSE {
            return Err(errors::nonsense(&self.name, Command::GetRegionInfo));
        }
        // `State::call` detects files that are cut short later.
        if in_file.checked_add(len as u64).is_none_or(|end| end > u64::try_from(size).unwrap_or(0))
        {
            return Err(errors::nonsense(&self.name, Command::GetRegionInfo));
        }
        let mapping = Mapping::of_file(file.as_fd(), in_file, len, true).map_err(failed)?;
        let mut state = self.state.lock();
        state.registers.retain(|it| it.strong_count() > 0);
        state.registers.push(Arc::downgrade(&mapping));
        Ok(Some(mapping))
    }

    fn map_dma(&self, arena: &Arc<Arena>) -> Result<u64> {
        let Some(file) = arena.file() else {
            let context =
                format!("{} cannot use {arena:?}: it is private memory of this process", self.name);
            return Err(Error::new(ErrorKind::Invalid, context).hint(
                "make arenas with ArenaOptions::shared, so that another process can map them",
            ));
        };
        let mut state = self.state.lock();
        if state.arenas.contains_key(&arena.id()) {
            let context = format!("{arena:?} is open to {} already", self.name);
            return Err(Error::new(ErrorKind::Exists, context));
        }
        let (iova, len) = (state.next_iova, arena.mapped_bytes() as u64);
        let map = DmaMap { readable: true, writable: true, file_offset_bytes: 0, iova, len };
        state.call(Command::DmaMap, &map.payload(), &[file])?;
        state.next_iova = iova + len + IOVA_GAP;
        state.arenas.insert(arena.id(), (iova, len, arena.clone()));
        Ok(iova)
    }

    fn unmap_dma(&self, arena: &Arena) -> Result<()> {
        let mut state = self.state.lock();
        let Some((iova, len, _kept)) = state.arenas.remove(&arena.id()) else {
            let context = format!("{arena:?} is not open to {}", self.name);
            return Err(Error::new(ErrorKind::NotFound, context));
        };
        let unmap = DmaUnmap { wants_dirty_pages: false, all: false, iova, len };
        state.call(Command::DmaUnmap, &unmap.payload(), &[])?;
        Ok(())
    }

    fn map_region(&self, region: &Arc<Mapping>) -> Result<Option<u64>> {
        // Only a file that no process can cut short. Otherwise the file's owner could end this
        // connection, and with it the work of all other users.
        let Some((file, offset_bytes)) = region.file() else { return Ok(None) };
        let Some((start, len)) = on_grid(file, offset_bytes, region.bytes().len() as u64) else {
            return Ok(None);
        };
        let mut state = self.state.lock();
        let key = region.region().0;
        if state.regions.contains_key(&key) {
            let context = format!("{region:?} is open to {} already", self.name);
            return Err(Error::new(ErrorKind::Exists, context));
        }
        let iova = state.next_iova;
        let map = DmaMap { readable: true, writable: true, file_offset_bytes: start, iova, len };
        state.call(Command::DmaMap, &map.payload(), &[file])?;
        state.next_iova = (iova + len).next_multiple_of(GRID_BYTES) + IOVA_GAP;
        state.regions.insert(key, (iova, len, region.clone()));
        Ok(Some(iova + (offset_bytes - start)))
    }

    fn unmap_region(&self, region: &Mapping) -> Result<()> {
        let mut state = self.state.lock();
        let Some((iova, len, _kept)) = state.regions.remove(&region.region().0) else {
            let context = format!("{region:?} is not open to {}", self.name);
            return Err(Error::new(ErrorKind::NotFound, context));
        };
        let unmap = DmaUnmap { wants_dirty_pages: false, all: false, iova, len };
        state.call(Command::DmaUnmap, &unmap.payload(), &[])?;
        Ok(())
    }

    fn needs_shared_memory(&self) -> bool {
        true
    }

    fn needs_huge_pages(&self) -> bool {
        self.huge_pages
    }

    fn irq_count(&self) -> u32 {
        self.irq_count
    }

    fn set_irq(&self, vector: u32, event: Option<BorrowedFd<'_>>) -> Result<()> {
        if vector >= self.irq_count {
            let context = format!("{} has no interrupt vector {vector}", self.name);
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let set = SetIrqs {
            data: IrqData::Events,
            action: IrqAction::Trigger,
            index: irq_index::MSIX,
            start: vector,
            count: 1,
        };
        self.state.lock().call(Command::SetIrqs, &set.payload(), event.as_slice())?;
        match event {
            Some(_) => self.enable_msix(true),
            None => Ok(()),
        }
    }

    fn reset(&self) -> Result<()> {
        if !self.can_reset {
            let context = format!("{}: the device cannot be reset", self.name);
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        self.state.lock().call(Command::Reset, &[], &[])?;
        Ok(())
    }
}

/// Restores the function, so that the next driver finds it as this one did.
impl Drop for Client {
    fn drop(&mut self) {
        let Some(found) = self.found.command else { return };
        // A device that has gone has nothing to restore.
        if self.enable_msix(false).is_ok() {
            let _ = self.write_config(command::AT, &found.to_le_bytes());
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
