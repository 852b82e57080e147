//! The connection of one front end, whose messages say where the guest's memory and rings are.
//!
//! Invariant: a running ring is on a worker with the session's current memory, addresses and
//! features. A change of one of these first stops the ring ([`Session::stop`]), and then starts it
//! again ([`Session::settle`]).

use qpair_memory::locks::Mutex;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Mapping, Result};
use qpair_pci::IrqEvent;
use qpair_socket::{Incoming, Message, Received, send};
use qpair_vhost_user::codec::{
    Config, FDS_MAX, Header, InflightDescription, MemoryRegion, PAYLOAD_BYTES_MAX, RegionMessage,
    Request, RingAddresses, RingFile, RingState, feature, number, parse_number, protocol,
};
use rustix::event::{PollFd, PollFlags};
use tracing::{debug, warn};

use crate::device::Device;
use crate::memory::{GuestMemory, REGIONS_MAX, RegionPlace};
use crate::queue::{GuestRing, Inflight, RingOptions, inflight_bytes};
use crate::workers::{Placed, Workers};

/// The maximum number of entries of a ring.
const RING_SIZE_MAX: u16 = 1024;
/// The features of rings.
const RING_FEATURES: u64 =
    feature::VERSION_1 | feature::INDIRECT_DESC | feature::EVENT_IDX | feature::PROTOCOL_FEATURES;
const PROTOCOL_FEATURES: u64 = protocol::MQ
    | protocol::REPLY_ACK
    | protocol::BACKEND_REQ
    | protocol::CONFIG
    | protocol::INFLIGHT_SHMFD
    | protocol::RESET_DEVICE
    | protocol::CONFIGURE_MEM_SLOTS;

/// The descriptor that signals a guest. It may be exchanged while a queue uses it.
pub(crate) type Call = Arc<Mutex<Option<IrqEvent>>>;

/// The part of a session that the target reaches while the session runs.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The guest's current memory.
    pub(crate) memory: Mutex<Arc<GuestMemory>>,
    /// The socket over which the front end is told that the configuration has changed.
    pub(crate) back: Mutex<Option<UnixStream>>,
}

#[derive(Debug, Default)]
struct Ring {
    size: u16,
    base: u16,
    addresses: Option<[u64; 3]>,
    /// Whether the front end has started the ring, with a kick descriptor or to be polled.
    started: bool,
    kick: Option<OwnedFd>,
    call: Call,
    error: Option<Arc<IrqEvent>>,
    enabled: bool,
    running: Option<Placed>,
}

pub(crate) struct Session {
    /// The name under which the device is served.
    name: Arc<str>,
    stream: UnixStream,
    incoming: Incoming<Header>,
    device: Arc<dyn Device>,
    workers: Arc<Workers>,
    shared: Arc<Shared>,
    features: u64,
    protocol: u64,
    memory: Arc<GuestMemory>,
    rings: Vec<Ring>,
    inflight: Option<(Arc<Mapping>, InflightDescription)>,
}

/// The answer to a message.
enum Answer {
    /// Success, which is sent only if the front end asks for an acknowledgement.
    Done,
    Payload(Vec<u8>),
    File(Vec<u8>, OwnedFd),
}

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

impl Session {
    pub(crate) fn new(
        name: Arc<str>,
        stream: UnixStream,
        device: Arc<dyn Device>,
        workers: Arc<Workers>,
        shared: Arc<Shared>,
    ) -> Self {
        device.reset();
        let rings = (0..device.queues()).map(|_| Ring::default()).collect();
        Self {
            name,
            stream,
            incoming: Incoming::new(PAYLOAD_BYTES_MAX, FDS_MAX),
            device,
            workers,
            shared,
            features: 0,
            protocol: 0,
            memory: Arc::default(),
            rings,
            inflight: None,
        }
    }

    /// Serves until the front end leaves or breaks the protocol.
    ///
    /// # Errors
    /// The reason for which the front end was disconnected.
    pub(crate) fn run(mut self) -> Result<()> {
        let ended = self.serve();
        for ring in 0..self.rings.len() {
            self.stop(ring);
        }
        ended
    }

    fn serve(&mut self) -> Result<()> {
        let lost = |cause: io::Error| Error::os(cause, "reading from the front end's socket");
        loop {
            match self.incoming.poll(&self.stream).map_err(lost)? {
                Received::Message(message) => self.take(message)?,
                Received::Closed(false) => return Ok(()),
                Received::Closed(true) => {
                    return Err(wrong("the front end left in the middle of a message"));
                }
                Received::NotYet => {
                    let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
                    // Whether the wait fails or not, the next turn checks the socket.
                    let _ = rustix::event::poll(&mut fds, None);
                }
            }
        }
    }

    fn take(&mut self, message: Message<Header>) -> Result<()> {
        let header = message.header;
        if header.is_reply() {
            return Ok(());
        }
        let Some(request) = Request::of(header.request) else {
            return Err(wrong(format!("request {} is unknown", header.request)));
        };
        debug!(name: "message", disk = &*self.name, ?request, "the front end says something");
        let answered = self.carry_out(request, message);
        let has_ack = self.protocol & protocol::REPLY_ACK != 0 && header.needs_reply();
        match answered {
            Ok(Answer::Payload(payload)) => self.send(header, &payload, None),
            Ok(Answer::File(payload, file)) => self.send(header, &payload, Some(file)),
            Ok(Answer::Done) if has_ack => self.send(header, &number(0), None),
            Ok(Answer::Done) => Ok(()),
            // The front end gets the failure, and decides what to do.
            Err(error) if has_ack => {
                warn!(name: "refused", disk = &*self.name, ?request, %error, "a message is refused");
                self.send(header, &number(1), None)
            }
            Err(error) => Err(error),
        }
    }

    fn send(&self, header: Header, payload: &[u8], file: Option<OwnedFd>) -> Result<()> {
        let lost = |cause: io::Error| Error::os(cause, "writing to the front end's socket");
        let bytes = header.reply(payload.len()).message(payload);
        let file = file.as_ref().map(AsFd::as_fd);
        let mut sent = 0;
        while sent < bytes.len() {
            let fds = if sent == 0 { file.as_slice() } else { &[] };
            match send(&self.stream, &bytes[sent..], fds) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(&self.stream, PollFlags::OUT)];
                    let _ = rustix::event::poll(&mut fds, None);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(())
    }

    /// Returns the offered features.
    fn offered(&self) -> u64 {
        self.device.features() | RING_FEATURES
    }

    fn carry_out(&mut self, request: Request, message: Message<Header>) -> Result<Answer> {
        let Message { payload, mut fds, .. } = message;
        let payload = payload.as_slice();
        let malformed = || wrong(format!("the payload of {request:?} is malformed"));
        let value = || parse_number(payload).ok_or_else(malformed);
        match request {
            Request::GetFeatures => Ok(Answer::Payload(number(self.offered()))),
            Request::SetFeatures => {
                let features = value()?;
                if features & !self.offered() != 0 {
                    return Err(wrong(format!(
                        "the front end set features that were not offered: {features:#x}"
                    )));
                }
                self.change(|session| session.features = features)
            }
            Request::GetProtocolFeatures => Ok(Answer::Payload(number(PROTOCOL_FEATURES))),
            Request::SetProtocolFeatures => {
                // Some front ends set bits that were not offered, and do not use those features.
                self.protocol = value()? & PROTOCOL_FEATURES;
                Ok(Answer::Done)
            }
            Request::SetOwner | Request::ResetOwner => Ok(Answer::Done),
            Request::GetQueueNum => Ok(Answer::Payload(number(self.device.queues().into()))),
            Request::GetMaxMemSlots => Ok(Answer::Payload(number(REGIONS_MAX as u64))),
            Request::SetMemTable => {
                let table = MemoryRegion::parse_table(payload).ok_or_else(malformed)?;
                if table.len() != fds.len() {
                    return Err(wrong(
                        "the table of memory does not have a descriptor for each region",
                    ));
                }
                let mut memory = GuestMemory::default();
                for (region, file) in table.into_iter().zip(&fds) {
                    memory = add(&memory, region, file)?;
                }
                self.set_memory(memory)
            }
            Request::AddMemReg => {
                let RegionMessage(region) = RegionMessage::parse(payload).ok_or_else(malformed)?;
                let file =
                    fds.first().ok_or_else(|| wrong("the message has no descriptor of memory"))?;
                let memory = add(&self.memory, region, file)?;
                self.set_memory(memory)
            }
            Request::RemMemReg => {
                let RegionMessage(region) = RegionMessage::parse(payload).ok_or_else(malformed)?;
                let without = self.memory.without(region.guest, region.user, region.len_bytes);
                let memory = without
                    .ok_or_else(|| wrong("the front end removed memory that it had not added"))?;
                self.set_memory(memory)
            }
            Request::SetVringNum => self.state(payload, |ring, number| {
                let size = u16::try_from(number).ok().filter(|size| *size <= RING_SIZE_MAX);
                let size = size.filter(|size| size.is_power_of_two());
                ring.size =
                    size.ok_or_else(|| wrong(format!("a ring cannot have {number} entries")))?;
                Ok(())
            }),
            Request::SetVringBase => self.state(payload, |ring, number| {
                ring.base = number as u16;
                Ok(())
            }),
            Request::SetVringEnable => self.state(payload, |ring, number| {
                ring.enabled = number != 0;
                Ok(())
            }),
            Request::SetVringAddr => {
                let found = RingAddresses::parse(payload).ok_or_else(malformed)?;
                let ring = self.ring(found.ring)?;
                let addresses = [found.descriptors, found.available, found.used];
                self.change_ring(ring, |ring| ring.addresses = Some(addresses))
            }
            Request::GetVringBase => {
                let state = RingState::parse(payload).ok_or_else(malformed)?;
                let ring = self.ring(state.ring)?;
                self.stop(ring);
                let ring = &mut self.rings[ring];
                (ring.started, ring.kick) = (false, None);
                let state = RingState { number: ring.base.into(), ..state };
                Ok(Answer::Payload(state.payload()))
            }
            Request::SetVringKick => {
                let (ring, file) = self.ring_file(payload, fds.pop())?;
                let kick = file.map(eventfd).transpose()?;
                self.change_ring(ring, |ring| (ring.started, ring.kick) = (true, kick))
            }
            Request::SetVringCall => {
                let (ring, file) = self.ring_file(payload, fds.pop())?;
                let call = file.map(IrqEvent::new).transpose()?;
                let ring = &self.rings[ring];
                let mut current = ring.call.lock();
                *current = call;
                // The guest may have missed signals to the old descriptor.
                if let (Some(call), true) = (&*current, ring.running.is_some()) {
                    call.signal();
                }
                Ok(Answer::Done)
            }
            Request::SetVringErr => {
                let (ring, file) = self.ring_file(payload, fds.pop())?;
                let error = file.map(IrqEvent::new).transpose()?.map(Arc::new);
                self.change_ring(ring, |ring| ring.error = error)
            }
            Request::SetBackendReqFd => {
                let file =
                    fds.pop().ok_or_else(|| wrong("the message has no descriptor of a socket"))?;
                let stream = UnixStream::from(file);
                *self.shared.back.lock() = Some(stream);
                Ok(Answer::Done)
            }
            Request::GetConfig => {
                let asked = Config::parse(payload).ok_or_else(malformed)?;
                let config = self.device.config();
                let mut bytes = vec![0; asked.bytes.len()];
                let from = config.get(asked.offset as usize..).unwrap_or_default();
                let len = from.len().min(bytes.len());
                bytes[..len].copy_from_slice(&from[..len]);
                Ok(Answer::Payload(Config { bytes: &bytes, ..asked }.payload()))
            }
            Request::SetConfig => {
                let config = Config::parse(payload).ok_or_else(malformed)?;
                if !self.device.set_config(config.offset, config.bytes) {
                    return Err(wrong(
                        "the front end wrote a part of the configuration that is read-only",
                    ));
                }
                Ok(Answer::Done)
            }
            Request::GetInflightFd => {
                let asked = InflightDescription::parse(payload).ok_or_else(malformed)?;
                let (queues, size) = (asked.queues, asked.queue_size);
                if queues == 0 || queues > self.device.queues() || size > RING_SIZE_MAX {
                    return Err(wrong(format!(
                        "an in-flight buffer of {queues} queues with {size} entries is not possible"
                    )));
                }
                let len_bytes = usize::from(queues) * inflight_bytes(size);
                let (mapping, file) = Mapping::new_file(len_bytes)
                    .map_err(|cause| Error::os(cause, "allocating an in-flight buffer"))?;
                let (len_bytes, file_offset_bytes) = (len_bytes as u64, 0);
                let given = InflightDescription { len_bytes, file_offset_bytes, ..asked };
                drop(mapping);
                Ok(Answer::File(given.payload(), file))
            }
            Request::SetInflightFd => {
                let found = InflightDescription::parse(payload).ok_or_else(malformed)?;
                let file =
                    fds.pop().ok_or_else(|| wrong("the in-flight buffer has no descriptor"))?;
                let least = usize::from(found.queues) * inflight_bytes(found.queue_size);
                let len = usize::try_from(found.len_bytes).ok().filter(|len| *len >= least);
                let len = len.ok_or_else(|| wrong("the in-flight buffer is too short"))?;
                let offset = found.file_offset_bytes;
                let mapping = Mapping::of_memory_file(file.as_fd(), offset, len, true)
                    .map_err(|cause| Error::os(cause, "mapping the in-flight buffer"))?;
                self.change(|session| session.inflight = Some((mapping, found)))
            }
            Request::ResetDevice => {
                for ring in 0..self.rings.len() {
                    self.stop(ring);
                    let ring = &mut self.rings[ring];
                    (ring.started, ring.kick, ring.enabled, ring.base) = (false, None, false, 0);
                }
                self.device.reset();
                Ok(Answer::Done)
            }
        }
    }

    fn ring(&self, number: u32) -> Result<usize> {
        let ring = usize::try_from(number).ok().filter(|ring| *ring < self.rings.len());
        ring.ok_or_else(|| {
            wrong(format!("ring {number} does not exist: there are {}", self.rings.len()))
        })
    }

    fn ring_file(&self, payload: &[u8], file: Option<OwnedFd>) -> Result<(usize, Option<OwnedFd>)> {
        let found = RingFile::parse(payload)
            .ok_or_else(|| wrong("the message does not say which ring the descriptor is for"))?;
        if found.has_file != file.is_some() {
            return Err(wrong(
                "the message announces a descriptor that did not come, or has one that it does not announce",
            ));
        }
        Ok((self.ring(found.ring)?, file))
    }

    fn state(
        &mut self,
        payload: &[u8],
        change: impl FnOnce(&mut Ring, u32) -> Result<()>,
    ) -> Result<Answer> {
        let state = RingState::parse(payload)
            .ok_or_else(|| wrong("the message does not say which ring the state is for"))?;
        let number = self.ring(state.ring)?;
        self.stop(number);
        change(&mut self.rings[number], state.number)?;
        self.settle(number)
    }

    fn change_ring(&mut self, number: usize, change: impl FnOnce(&mut Ring)) -> Result<Answer> {
        self.stop(number);
        change(&mut self.rings[number]);
        self.settle(number)
    }

    /// Stops all rings, makes a change that concerns all of them, and lets them run again.
    fn change(&mut self, change: impl FnOnce(&mut Self)) -> Result<Answer> {
        for ring in 0..self.rings.len() {
            self.stop(ring);
        }
        change(self);
        for ring in 0..self.rings.len() {
            self.settle(ring)?;
        }
        Ok(Answer::Done)
    }

    fn set_memory(&mut self, memory: GuestMemory) -> Result<Answer> {
        let memory = Arc::new(memory);
        *self.shared.memory.lock() = memory.clone();
        self.change(|session| session.memory = memory)
    }

    /// Takes a ring back from its worker.
    fn stop(&mut self, number: usize) {
        let ring = &mut self.rings[number];
        if let Some(placed) = ring.running.take()
            && let Some(stopped) = self.workers.remove(placed)
        {
            (ring.base, ring.kick) = (stopped.taken, stopped.kick);
            if stopped.is_broken {
                // The guest must set the ring up again.
                ring.started = false;
            }
        }
    }

    /// Starts a ring on a worker if it is ready and does not run.
    fn settle(&mut self, number: usize) -> Result<Answer> {
        let is_gated = self.features & feature::PROTOCOL_FEATURES != 0;
        let ring = &mut self.rings[number];
        let is_ready = ring.started && (ring.enabled || !is_gated) && ring.running.is_none();
        let (Some(addresses), true, true) = (ring.addresses, is_ready, ring.size > 0) else {
            return Ok(Answer::Done);
        };
        // Opening the ring checks that its areas are in the guest's memory.
        let inflight = match &self.inflight {
            Some((mapping, found)) if number < usize::from(found.queues) => {
                if found.queue_size < ring.size {
                    return Err(wrong("the in-flight buffer has fewer entries than the ring"));
                }
                Inflight::new(mapping.clone(), number as u16, found.queue_size)
            }
            _ => None,
        };
        self.device.settle(self.features);
        let options = RingOptions {
            disk: self.name.clone(),
            number: number as u16,
            size: ring.size,
            addresses,
            taken: ring.base,
            event_index: self.features & feature::EVENT_IDX != 0,
            indirect: self.features & feature::INDIRECT_DESC != 0,
            memory: self.memory.clone(),
            kick: ring.kick.take(),
            call: ring.call.clone(),
            error: ring.error.clone(),
            inflight,
        };
        let (device, number) = (self.device.clone(), number as u16);
        let start = Box::new(move || device.open(number, GuestRing::open(options)?));
        ring.running = Some(self.workers.add(start)?);
        Ok(Answer::Done)
    }
}

fn add(memory: &GuestMemory, region: MemoryRegion, file: &OwnedFd) -> Result<GuestMemory> {
    let MemoryRegion { guest, len_bytes, user, file_offset_bytes } = region;
    let place = RegionPlace { guest, len_bytes, user, file_offset_bytes };
    memory.with(place, file.as_fd()).map_err(|cause| {
        let context = format!("mapping guest memory of {len_bytes} bytes at {guest:#x}");
        Error::os(cause, context)
            .hint("share the guest's memory: -object memory-backend-memfd,share=on")
    })
}

/// Checks that a descriptor is an eventfd: workers wait for nothing else.
fn eventfd(fd: OwnedFd) -> Result<OwnedFd> {
    IrqEvent::new(fd).map(IrqEvent::into_fd)
}
