//! One client's session.
//!
//! Long, because a session is one state machine, with a function for each message.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_pci::{IrqEvent, PciDevice};
use rustix::io::Errno;
use tracing::debug;

use super::ServerOptions;
use super::answer::{Answer, Reply, errno_of};
use super::counters::Counters;
use super::maps::Maps;
use crate::codec::{
    Area, Capabilities, Command, DeviceInfo, DmaMap, DmaUnmap, HEADER_BYTES, IrqAction, IrqData,
    IrqInfo, MAJOR, MINOR, RegionAccess, RegionInfo, SetIrqs, Version, irq_index, region_index,
};
use crate::{Incoming, Message};
use qpair_socket::{MESSAGE_FDS_MAX, Received, send};

/// The maximum number of bytes of a region in one message.
const TRANSFER_BYTES_MAX: usize = 64 << 10;
/// The maximum number of bytes after a header.
pub(super) const PAYLOAD_BYTES_MAX: usize = TRANSFER_BYTES_MAX + RegionAccess::BYTES;
/// The bytes of the two numbers of a version; the client's capabilities follow them.
const NUMBERS_BYTES: usize = 4;
/// The maximum number of messages in one poll, so that other clients do not wait too long.
const MESSAGES_A_POLL: usize = 16;

#[derive(Debug)]
pub enum Turn {
    Idle,
    Progress,
    Ended(Ended),
}

#[derive(Debug)]
pub enum Ended {
    Closed,
    /// The client closed its socket in the middle of a message.
    Cut,
    /// The client sent invalid bytes, or the socket failed.
    Wrong(io::Error),
    /// The client spoke another version of the protocol, or another protocol.
    Version,
    /// The client cut short the files behind its memory.
    CutShort,
    Idle,
    Disconnected,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("it closed the connection"),
            Self::Cut => f.write_str("it closed the connection in the middle of a message"),
            Self::Wrong(error) => write!(f, "{error}"),
            Self::Version => f.write_str("it does not speak this version of vfio-user"),
            Self::CutShort => f.write_str("it cut its memory short"),
            Self::Idle => f.write_str("it did nothing for longer than a driver may"),
            Self::Disconnected => f.write_str("it was disconnected"),
        }
    }
}

/// A connected client. Dropping it leaves nothing of its session at the device
/// ([`PciDevice::end_session`]).
pub struct Session {
    stream: UnixStream,
    device: Arc<dyn PciDevice>,
    options: ServerOptions,
    incoming: Incoming,
    /// A reply in progress. The next command is taken when the reply has been sent.
    outgoing: Option<Outgoing>,
    /// A message that arrived while only doorbells were handled, and waits.
    held: Option<Held>,
    is_agreed: bool,
    /// Whether the client stated its capabilities. SPDK's initiator does not, and it supports no
    /// shadow doorbells over this transport.
    is_spoken: bool,
    maps: Maps,
    counters: Counters,
    /// The number of interrupts that could not be delivered.
    undelivered: Arc<AtomicU64>,
}

enum Held {
    Message(Message),
    Ended(Ended),
}

struct Outgoing {
    bytes: Vec<u8>,
    sent_bytes: usize,
    fd: Option<OwnedFd>,
    /// The reason for which the session ends once the reply has been sent.
    then: Option<Ended>,
}

impl Session {
    /// Serves `device` to the client at the other end of `stream`, which must be nonblocking.
    #[must_use]
    pub fn new(stream: UnixStream, device: Arc<dyn PciDevice>, options: ServerOptions) -> Self {
        let incoming = Incoming::new(PAYLOAD_BYTES_MAX, MESSAGE_FDS_MAX);
        Self::begin(stream, incoming, device, options)
    }

    /// Serves a client that has sent its first message, which must be passed to [`Self::take`].
    pub(super) fn begin(
        stream: UnixStream,
        incoming: Incoming,
        device: Arc<dyn PciDevice>,
        options: ServerOptions,
    ) -> Self {
        Self {
            stream,
            device,
            options,
            incoming,
            outgoing: None,
            held: None,
            is_agreed: false,
            is_spoken: false,
            maps: Maps::new(),
            counters: Counters::default(),
            undelivered: Arc::default(),
        }
    }

    /// Whether both sides have agreed on the protocol.
    #[must_use]
    pub fn is_agreed(&self) -> bool {
        self.is_agreed
    }

    #[must_use]
    pub fn counters(&self) -> Counters {
        let (dma_maps, dma_bytes) = (self.maps.count() as u64, self.maps.bytes());
        let undelivered_irqs = self.undelivered.load(Ordering::Relaxed);
        Counters { dma_maps, dma_bytes, undelivered_irqs, ..self.counters }
    }

    pub(super) fn is_sending(&self) -> bool {
        self.outgoing.is_some()
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Does all work that is possible now. After `Ended` the session must be dropped.
    pub fn poll(&mut self) -> Turn {
        if self.maps.is_cut_short() {
            return Turn::Ended(Ended::CutShort);
        }
        let mut turn = Turn::Idle;
        for _ in 0..MESSAGES_A_POLL {
            match self.send() {
                Ok(true) => {}
                Ok(false) => return turn,
                Err(ended) => return Turn::Ended(ended),
            }
            match self.receive() {
                None => return turn,
                Some(Held::Ended(ended)) => return Turn::Ended(ended),
                Some(Held::Message(message)) => self.take(message),
            }
            turn = Turn::Progress;
        }
        match self.send() {
            Ok(_) => turn,
            Err(ended) => Turn::Ended(ended),
        }
    }

    /// Handles doorbells, which do not disturb commands in flight, and holds the first other
    /// message. Returns whether there was a doorbell.
    pub(super) fn poll_doorbells(&mut self) -> bool {
        let mut progress = false;
        for _ in 0..MESSAGES_A_POLL {
            match self.send() {
                Ok(true) => {}
                Ok(false) => break,
                Err(ended) => {
                    self.held = Some(Held::Ended(ended));
                    break;
                }
            }
            match self.receive() {
                Some(Held::Message(message)) if self.is_doorbell(&message) => self.take(message),
                held => {
                    self.held = held;
                    break;
                }
            }
            progress = true;
        }
        progress
    }

    fn receive(&mut self) -> Option<Held> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        Some(match self.incoming.poll(&self.stream) {
            Ok(Received::NotYet) => return None,
            Ok(Received::Closed(false)) => Held::Ended(Ended::Closed),
            Ok(Received::Closed(true)) => Held::Ended(Ended::Cut),
            Err(error) => Held::Ended(Ended::Wrong(error)),
            Ok(Received::Message(message)) => Held::Message(message),
        })
    }

    fn is_doorbell(&self, message: &Message) -> bool {
        let is_write = Command::of(message.header.command) == Some(Command::RegionWrite);
        let access = RegionAccess::parse(&message.payload).filter(|_| self.is_agreed && is_write);
        access.is_some_and(|(access, _)| {
            let bar = u8::try_from(access.region).ok().filter(|bar| *bar <= 5);
            bar.is_some_and(|bar| self.device.is_doorbell(bar, access.offset_bytes))
        })
    }

    /// Whether a message waits that is not a doorbell.
    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Sends the reply in progress. Returns whether all of it was sent.
    fn send(&mut self) -> Result<bool, Ended> {
        while let Some(outgoing) = &mut self.outgoing {
            if outgoing.sent_bytes == outgoing.bytes.len() {
                match self.outgoing.take().and_then(|outgoing| outgoing.then) {
                    Some(ended) => return Err(ended),
                    None => return Ok(true),
                }
            }
            let rest = &outgoing.bytes[outgoing.sent_bytes..];
            let fd = outgoing.fd.as_ref().map(AsFd::as_fd);
            match send(&self.stream, rest, fd.as_slice()) {
                Ok(bytes) => {
                    outgoing.sent_bytes += bytes;
                    outgoing.fd = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                    ) =>
                {
                    return Err(Ended::Closed);
                }
                Err(error) => return Err(Ended::Wrong(error)),
            }
        }
        Ok(true)
    }

    /// Handles a message; its answer is sent by the next poll.
    pub(super) fn take(&mut self, message: Message) {
        self.counters.messages += 1;
        let header = message.header;
        if header.is_reply() {
            // The client was not asked anything.
            let wrong =
                io::Error::new(io::ErrorKind::InvalidData, "a reply came without a command");
            self.outgoing = Some(Outgoing {
                bytes: Vec::new(),
                sent_bytes: 0,
                fd: None,
                then: Some(Ended::Wrong(wrong)),
            });
            return;
        }
        let was_agreed = self.is_agreed;
        let answer = self.answer(message);
        if let Err(errno) = &answer {
            let (command, device) = (header.command, self.device.kind());
            debug!(name: "refused", device, command, %errno, "a client's message is refused");
            self.counters.errors += 1;
        }
        let then = (!was_agreed && answer.is_err()).then_some(Ended::Version);
        if header.wants_no_reply() && then.is_none() {
            return;
        }
        let (bytes, fd) = match answer {
            Ok(Reply { payload, fd }) => (header.reply(payload.len()).message(&payload), fd),
            Err(errno) => (header.error(errno.raw_os_error() as u32).message(&[]), None),
        };
        self.outgoing = Some(Outgoing { bytes, sent_bytes: 0, fd, then });
    }

    fn answer(&mut self, message: Message) -> Answer {
        let Message { header, payload, fds } = message;
        let command = Command::of(header.command);
        if !self.is_agreed {
            return match command {
                Some(Command::Version) => self.version(&payload),
                _ => Err(Errno::INVAL),
            };
        }
        match command.ok_or(Errno::NOSYS)? {
            Command::Version => Err(Errno::INVAL),
            Command::DmaMap => self.map(&payload, &fds),
            Command::DmaUnmap => self.unmap(&payload),
            Command::GetDeviceInfo => {
                DeviceInfo::parse(&payload).ok_or(Errno::INVAL)?;
                let (regions, irqs) = (region_index::COUNT, irq_index::COUNT);
                Reply::of(DeviceInfo { can_reset: true, is_pci: true, regions, irqs }.payload())
            }
            Command::GetRegionInfo => self.region_info(&payload),
            Command::GetIrqInfo => {
                let index = IrqInfo::parse(&payload).ok_or(Errno::INVAL)?.index;
                let count = self.irq_count(index).ok_or(Errno::INVAL)?;
                Reply::of(IrqInfo { index, count }.payload())
            }
            Command::SetIrqs => self.set_irqs(&payload, fds),
            Command::RegionRead => self.read(&payload),
            Command::RegionWrite => self.write(&payload),
            Command::Reset => {
                self.counters.resets += 1;
                self.device.reset();
                Reply::empty()
            }
            Command::GetRegionIoFds
            | Command::DmaRead
            | Command::DmaWrite
            | Command::RegionWriteMulti
            | Command::DeviceFeature
            | Command::MigrationRead
            | Command::MigrationWrite => Err(Errno::OPNOTSUPP),
        }
    }

    fn version(&mut self, payload: &[u8]) -> Answer {
        let client = Version::parse(payload).ok_or(Errno::INVAL)?;
        if client.major != MAJOR {
            return Err(Errno::PROTONOSUPPORT);
        }
        let capabilities = Capabilities {
            max_msg_fds: MESSAGE_FDS_MAX as u32,
            max_data_xfer_size: TRANSFER_BYTES_MAX as u64,
            max_dma_maps: self.options.dma_maps_max as u64,
            pgsizes: 4096,
        };
        (self.is_agreed, self.is_spoken) = (true, payload.len() > NUMBERS_BYTES);
        Reply::of(Version { major: MAJOR, minor: client.minor.min(MINOR), capabilities }.payload())
    }

    fn map(&mut self, payload: &[u8], fds: &[OwnedFd]) -> Answer {
        let map = DmaMap::parse(payload).ok_or(Errno::INVAL)?;
        if fds.len() > 1 {
            return Err(Errno::INVAL);
        }
        self.maps.map(&*self.device, &map, fds.first(), self.options.dma_maps_max)?;
        Reply::empty()
    }

    fn unmap(&mut self, payload: &[u8]) -> Answer {
        let unmap = DmaUnmap::parse(payload).ok_or(Errno::INVAL)?;
        if unmap.wants_dirty_pages {
            return Err(Errno::OPNOTSUPP);
        }
        self.maps.unmap(&*self.device, &unmap)?;
        Reply::of(unmap.payload())
    }

    fn region_info(&self, payload: &[u8]) -> Answer {
        let (argsz, index) = RegionInfo::parse_request(payload).ok_or(Errno::INVAL)?;
        if argsz < RegionInfo::BYTES {
            return Err(Errno::INVAL);
        }
        let mut info =
            RegionInfo { index, len: self.region_bytes(index)?, ..RegionInfo::default() };
        let area = u8::try_from(index).ok().and_then(|bar| self.device.shared_area(bar));
        let maps = self.options.mapped && !(self.device.prefers_calls() && self.is_spoken);
        let area = area.filter(|_| maps && index < region_index::CONFIG);
        if let Some(area) = area {
            // Clients add the area's offset to the region's.
            info.file_offset_bytes = area.file_offset_bytes.wrapping_sub(area.offset_bytes);
            info.areas = vec![Area { offset_bytes: area.offset_bytes, len: area.len }];
        }
        let (payload, whole) = info.payload(argsz);
        let fd = match area.filter(|_| whole) {
            Some(_) => {
                let file = self.device.shared_file(index as u8);
                Some(file.map_err(|error| errno_of(&error))?)
            }
            None => None,
        };
        Ok(Reply { payload, fd })
    }

    fn region_bytes(&self, index: u32) -> Result<u64, Errno> {
        match index {
            0..=5 => Ok(self.device.bar_bytes(index as u8)),
            region_index::CONFIG => Ok(self.device.config_bytes().into()),
            _ if index < region_index::COUNT => Ok(0),
            _ => Err(Errno::INVAL),
        }
    }

    fn irq_count(&self, index: u32) -> Option<u32> {
        match index {
            irq_index::MSIX => Some(self.device.irq_count()),
            irq_index::INTX => {
                const INTERRUPT_PIN: u32 = 0x3D;
                let mut pin = [0];
                let known = self.device.read_config(INTERRUPT_PIN, &mut pin);
                Some(u32::from(known && pin[0] != 0))
            }
            _ => (index < irq_index::COUNT).then_some(0),
        }
    }

    fn set_irqs(&mut self, payload: &[u8], fds: Vec<OwnedFd>) -> Answer {
        let set = SetIrqs::parse(payload).ok_or(Errno::INVAL)?;
        let count = self.irq_count(set.index).ok_or(Errno::INVAL)?;
        let end = set.start.checked_add(set.count).ok_or(Errno::INVAL)?;
        if end > count || set.count > 0 && set.start >= count {
            return Err(Errno::INVAL);
        }
        match set.index {
            irq_index::MSIX => {}
            // Devices here signal only by MSI-X. Clients set up INTx for every function; it stays
            // silent.
            irq_index::INTX => return Reply::empty(),
            _ if set.count == 0 => return Reply::empty(),
            _ => return Err(Errno::INVAL),
        }
        match (set.action, set.data) {
            (IrqAction::Trigger, IrqData::None | IrqData::Events) if set.count == 0 => {
                self.close_irqs();
                Reply::empty()
            }
            (IrqAction::Trigger, IrqData::Events) => {
                if !fds.is_empty() && fds.len() != set.count as usize {
                    return Err(Errno::INVAL);
                }
                // Create all events before setting the first.
                let events: qpair_block::Result<Vec<IrqEvent>> = fds
                    .into_iter()
                    .map(|fd| Ok(IrqEvent::new(fd)?.counting(self.undelivered.clone())))
                    .collect();
                let mut events = events.map_err(|error| errno_of(&error))?.into_iter();
                for vector in set.start..end {
                    if !self.device.set_irq(vector, events.next()) {
                        return Err(Errno::INVAL);
                    }
                }
                Reply::empty()
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn read(&mut self, payload: &[u8]) -> Answer {
        let (access, _) = RegionAccess::parse(payload).ok_or(Errno::INVAL)?;
        self.counters.region_reads += 1;
        let len = access.len as usize;
        if len > TRANSFER_BYTES_MAX {
            return Err(Errno::INVAL);
        }
        let mut data = vec![0; len];
        let done = self.is_inside(access)
            && match (access.region, u32::try_from(access.offset_bytes)) {
                (region_index::CONFIG, Ok(offset)) => self.device.read_config(offset, &mut data),
                (bar @ 0..=5, _) => self.device.read_bar(bar as u8, access.offset_bytes, &mut data),
                _ => false,
            };
        if done { Reply::of(access.payload(&data)) } else { Err(Errno::INVAL) }
    }

    fn write(&mut self, payload: &[u8]) -> Answer {
        let (access, data) = RegionAccess::parse(payload).ok_or(Errno::INVAL)?;
        self.counters.region_writes += 1;
        let data = data.get(..access.len as usize).ok_or(Errno::INVAL)?;
        let done = self.is_inside(access)
            && match (access.region, u32::try_from(access.offset_bytes)) {
                (region_index::CONFIG, Ok(offset)) => self.device.write_config(offset, data),
                (bar @ 0..=5, _) => {
                    self.count_trapped(bar as u8, access.offset_bytes);
                    self.device.write_bar(bar as u8, access.offset_bytes, data)
                }
                _ => false,
            };
        if done { Reply::of(access.payload(&[])) } else { Err(Errno::INVAL) }
    }

    fn count_trapped(&mut self, bar: u8, offset: u64) {
        let area = self.device.shared_area(bar);
        let inside = area.is_some_and(|area| {
            offset.checked_sub(area.offset_bytes).is_some_and(|into| into < area.len)
        });
        self.counters.trapped_writes += u64::from(inside);
    }

    fn is_inside(&self, access: RegionAccess) -> bool {
        let end = access.offset_bytes.checked_add(access.len.into());
        let len = self.region_bytes(access.region).unwrap_or(0);
        access.len > 0 && end.is_some_and(|end| end <= len)
    }

    fn close_irqs(&self) {
        for vector in 0..self.device.irq_count() {
            self.device.set_irq(vector, None);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A client that never agreed has opened nothing. The device forgets the memory before its
        // mappings are dropped.
        if self.is_agreed {
            self.device.end_session();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session of {}, {} ranges open", self.device.kind(), self.maps.count())
    }
}

const _: () = assert!(PAYLOAD_BYTES_MAX >= 4096 - HEADER_BYTES);
