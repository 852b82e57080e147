//! A back end in this process. It follows the protocol, except where a test makes it deviate.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use qpair_memory::Mapping;
use qpair_socket::{Incoming, Listener, Message, MessageHeader, Received, send};
use qpair_vhost_user::codec::{
    Config as ConfigMessage, Header, MemoryRegion, Request, RingAddresses, RingFile, RingState,
    feature, number, parse_number, protocol,
};
use qpair_virtio::blk::Config;
use qpair_virtio::ring::{Area, Areas, Descriptor, DeviceRing, Layout, NEXT};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnKick {
    Serve,
    HangUp,
    /// Claims to have used more entries than were offered.
    TooFar,
    /// Returns a request with this head.
    WrongHead(u32),
    /// Returns the first request twice.
    Twice,
}

/// The behaviour of the back end for one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) features: u64,
    pub(crate) config: Config,
    pub(crate) on_kick: OnKick,
    /// Whether to report a larger disk as soon as there is a ring.
    pub(crate) grows: bool,
    /// Whether to map memory as SPDK does: it rounds each region outward to huge pages, and touches
    /// a byte of each page. The back end ends if a page is not there.
    pub(crate) maps_huge_pages: bool,
}

impl Life {
    pub(crate) fn new(on_kick: OnKick) -> Self {
        let config = Config { sectors: 2048, block_bytes: 512, queues: 1, ..Config::default() };
        Self { features: 0, config, on_kick, grows: false, maps_huge_pages: false }
    }
}

#[derive(Default)]
pub(crate) struct Told {
    pub(crate) features: u64,
    /// The answer to the back end's own request.
    pub(crate) answer: Option<u64>,
    pub(crate) kicks: u64,
    pub(crate) regions: usize,
    /// The number of huge pages that it touched.
    pub(crate) touched: usize,
}

const HUGE_PAGE: usize = 2 << 20;

/// Returns the number of huge pages that SPDK would touch of a region that it has mapped. `None` if
/// it would read past the mapping, and so crash.
///
/// The kernel chooses the address: a multiple of the file's page. So only files of huge pages begin
/// and end at the addresses that SPDK rounds to.
fn touch(region: &MemoryRegion, file: &OwnedFd, mapping: &Mapping) -> Option<usize> {
    let page_bytes = rustix::fs::fstatfs(file).unwrap().f_bsize as usize;
    let offset = region.file_offset_bytes as usize;
    let len = region.len_bytes as usize;
    let fits = |at: usize| at.is_multiple_of(HUGE_PAGE);
    if !fits(page_bytes) || !fits(offset) || !fits(len) || !fits(region.user as usize) {
        return None;
    }
    (0..len).step_by(HUGE_PAGE).for_each(|at| _ = mapping.bytes().load_u8(at));
    Some(len / HUGE_PAGE)
}

/// Runs a back end through these lives, one after the other. After the last one there is no back
/// end.
pub(crate) fn begin(path: &Path, lives: Vec<Life>) -> JoinHandle<Vec<Told>> {
    let listener = Listener::bind(path).unwrap();
    std::thread::spawn(move || {
        let life = |life: Life| {
            let stream = loop {
                if let Some(stream) = listener.accept() {
                    break stream;
                }
                nap();
            };
            Fake::new(life, stream).live()
        };
        lives.into_iter().map(life).collect()
    })
}

fn nap() {
    std::thread::sleep(Duration::from_millis(1));
}

struct Fake {
    life: Life,
    stream: UnixStream,
    told: Told,
    memory: Vec<(MemoryRegion, Arc<Mapping>)>,
    layout: Option<Layout>,
    addresses: Option<RingAddresses>,
    ring: Option<DeviceRing>,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    back: Option<(UnixStream, Incoming<Header>)>,
    is_dead: bool,
}

impl Fake {
    fn new(life: Life, stream: UnixStream) -> Self {
        Self {
            life,
            stream,
            told: Told::default(),
            memory: Vec::new(),
            layout: None,
            addresses: None,
            ring: None,
            kick: None,
            call: None,
            back: None,
            is_dead: false,
        }
    }

    fn live(mut self) -> Told {
        let mut incoming: Incoming<Header> = Incoming::new(4096, 8);
        loop {
            match incoming.poll(&self.stream) {
                Ok(Received::Message(message)) => {
                    self.hear(message);
                    if self.is_dead {
                        return self.told;
                    }
                }
                Ok(Received::Closed(_)) | Err(_) => return self.told,
                Ok(Received::NotYet) => nap(),
            }
            if let Some((back, incoming)) = &mut self.back
                && let Ok(Received::Message(message)) = incoming.poll(back)
            {
                self.told.answer = parse_number(&message.payload);
            }
            let mut count = [0; 8];
            let kicked =
                self.kick.as_ref().is_some_and(|kick| rustix::io::read(kick, &mut count).is_ok());
            self.told.kicks += u64::from_ne_bytes(count);
            if kicked && !self.kicked() {
                return self.told;
            }
        }
    }

    fn hear(&mut self, message: Message<Header>) {
        let Message { header, payload, mut fds } = message;
        let state = |payload: &[u8]| RingState::parse(payload).unwrap();
        let answer = match Request::of(header.request).unwrap() {
            Request::GetFeatures => {
                let own = feature::VERSION_1 | feature::PROTOCOL_FEATURES;
                Some(number(self.life.features | own))
            }
            Request::SetFeatures => {
                self.told.features = parse_number(&payload).unwrap();
                None
            }
            Request::GetProtocolFeatures => {
                Some(number(protocol::CONFIG | protocol::REPLY_ACK | protocol::BACKEND_REQ))
            }
            Request::GetConfig => {
                let asked = ConfigMessage::parse(&payload).unwrap();
                Some(ConfigMessage { bytes: &self.life.config.encode(), ..asked }.payload())
            }
            Request::SetMemTable => {
                let map = |(region, file): (MemoryRegion, &OwnedFd)| {
                    let len = region.len_bytes as usize;
                    (region, Mapping::of_file(file.as_fd(), 0, len, true).unwrap())
                };
                let regions = MemoryRegion::parse_table(&payload).unwrap();
                self.memory = regions.into_iter().zip(&fds).map(map).collect();
                self.told.regions = self.memory.len();
                if self.life.maps_huge_pages {
                    let pages = self.memory.iter().zip(&fds);
                    let pages: Option<usize> =
                        pages.map(|((region, mapping), file)| touch(region, file, mapping)).sum();
                    self.is_dead = pages.is_none();
                    self.told.touched = pages.unwrap_or(0);
                    if self.is_dead {
                        return;
                    }
                }
                None
            }
            Request::SetVringNum => {
                self.layout = Layout::new(state(&payload).number as u16);
                None
            }
            Request::SetVringAddr => {
                self.addresses = RingAddresses::parse(&payload);
                self.ring = None;
                None
            }
            Request::SetVringKick => {
                assert!(RingFile::parse(&payload).unwrap().has_file);
                self.kick = fds.pop();
                None
            }
            Request::SetVringCall => {
                self.call = fds.pop();
                None
            }
            Request::GetVringBase => Some(RingState { number: 0, ..state(&payload) }.payload()),
            Request::SetBackendReqFd => {
                let back = UnixStream::from(fds.pop().unwrap());
                self.back = Some((back, Incoming::new(4096, 8)));
                None
            }
            Request::SetVringEnable if self.life.grows => {
                self.life.config.sectors *= 2;
                let message = Header::request(Header::CONFIG_CHANGE, 0, true).message(&[]);
                send(&self.back.as_ref().unwrap().0, &message, &[]).unwrap();
                None
            }
            _ => None,
        };
        let answer = answer.or_else(|| header.needs_reply().then(|| number(0)));
        if let Some(answer) = answer {
            // A front end that has gone receives nothing.
            let _ = send(&self.stream, &header.reply(answer.len()).message(&answer), &[]);
        }
    }

    fn area(&self, address: u64) -> Area<'_> {
        let (region, mapping) = self
            .memory
            .iter()
            .find(|(region, _)| (region.user..region.user + region.len_bytes).contains(&address))
            .unwrap();
        Area::new(mapping.bytes(), (address - region.user) as usize)
    }

    /// Handles a kick. Returns false if the back end has to end.
    fn kicked(&mut self) -> bool {
        let on_kick = self.life.on_kick;
        let (Some(addresses), Some(layout)) = (self.addresses, self.layout) else { return true };
        let ring = self.ring.take();
        let areas = Areas {
            descriptors: self.area(addresses.descriptors),
            available: self.area(addresses.available),
            used: self.area(addresses.used),
        };
        let event_index = self.told.features & feature::EVENT_IDX != 0;
        let new = || DeviceRing::resume(layout, areas, 0, event_index);
        let mut ring = ring.unwrap_or_else(new);
        let lie = |heads: &[u32], index: u16| {
            for (at, head) in heads.iter().enumerate() {
                areas.used.bytes.store_u32(areas.used.at + 4 + 8 * at, *head);
            }
            areas.used.bytes.store_u16_release(areas.used.at + 2, index);
        };
        match on_kick {
            OnKick::HangUp => return false,
            OnKick::TooFar => lie(&[], 1000),
            OnKick::WrongHead(head) => lie(&[head], 1),
            OnKick::Twice => {
                let head = ring.take(areas).unwrap().unwrap();
                self.end(areas, head);
                lie(&[head.into(), head.into()], 2);
            }
            OnKick::Serve => {
                while let Some(head) = ring.take(areas).unwrap() {
                    self.end(areas, head);
                    ring.give(areas, head, 1);
                }
                ring.publish(areas);
                ring.listen(areas);
            }
        }
        let call = self.call.as_ref().map(|call| rustix::io::write(call, &1u64.to_ne_bytes()));
        assert!(call.is_none_or(|written| written.is_ok()));
        self.ring = Some(ring);
        true
    }

    fn end(&self, areas: Areas<'_>, head: u16) {
        let mut last = Descriptor::load(areas.descriptors, head);
        while last.flags & NEXT != 0 {
            last = Descriptor::load(areas.descriptors, last.next);
        }
        let status = self.area(last.address);
        status.bytes.store_u8(status.at, 0);
    }
}

/// Accepts one connection, answers with these bytes, and closes it; with `None`, stays silent.
pub(crate) fn no_back_end(path: &Path, says: Option<&'static [u8]>) -> JoinHandle<()> {
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        use io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut question = [0; Header::BYTES];
        stream.read_exact(&mut question).unwrap();
        match says {
            Some(bytes) => stream.write_all(bytes).unwrap(),
            // Wait until the other side gives up.
            None => drop(stream.read(&mut question)),
        }
    })
}
