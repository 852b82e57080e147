//! The state that survives a connection: the memory and queues in use, and the means to connect
//! again.
//!
//! Invariants:
//! - `word` has the life of the connection and its phase, and grows with each life. Channels
//!   compare it with the word that they have seen, and set their queues up anew in a new life.
//! - `word` and `up` change together, under the lock of `up`. A caller names the life that it has
//!   seen ([`Link::with`]), so it sets nothing up twice in one life.
//! - In a life that is up, the back end knows all arenas of the registry.
//! - All lives have the same features and blocks, and no less space: the properties that channels
//!   know stay true.
//!
//! Long, because `word` and `up` change together, and only here.

use qpair_memory::locks::Mutex;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{Arena, ArenaOptions, Buffer, Error, ErrorKind, Result};
use qpair_socket::{Incoming, Received, send};
use qpair_virtio::blk::{Config, SECTOR_SHIFT, feature as blk};
use rustix::event::{PollFd, PollFlags};
use tracing::{error, info, warn};

use super::connection::{Connection, back_channel};
use super::device::VhostUserOptions;
use super::region::Region;
use crate::codec::{
    Config as ConfigMessage, FDS_MAX, Header, MemoryRegion, PAYLOAD_BYTES_MAX, REGIONS_MAX,
    RegionMessage, Request, feature, number, protocol,
};

/// The pause between two attempts to connect again.
const RETRY: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) config: Config,
    pub(super) features: u64,
    pub(super) queues: u16,
}

pub(super) struct Up {
    pub(super) connection: Connection,
    protocol: u64,
    /// The socket for the back end's requests.
    back: Option<(UnixStream, Incoming<Header>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Up,
    /// The back end has gone; the keeper connects again.
    Lost,
    /// The back end has not come back.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

impl Word {
    pub(super) const UNSEEN: Self = Self(u64::MAX);

    /// Returns the number of the life, from 0 on.
    pub(super) fn life(self) -> u64 {
        self.0 >> 2
    }

    pub(super) fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Up,
            1 => Phase::Lost,
            _ => Phase::Gone,
        }
    }
}

#[derive(Default)]
struct Registry {
    arenas: Vec<(Arc<Arena>, u32)>,
    /// Whether each queue is in use, by number.
    queues: Vec<bool>,
    /// The memory of the queues' rings. The back end keeps knowing it until the connection ends:
    /// QEMU's back end treats a stopped ring without memory as broken.
    rings: Vec<Option<Arc<Arena>>>,
    /// The events of sleeping channels, to be signalled in a new life.
    calls: Vec<Arc<OwnedFd>>,
}

pub(super) struct Link {
    pub(super) path: PathBuf,
    pub(super) options: VhostUserOptions,
    up: Mutex<Option<Up>>,
    word: AtomicU64,
    pub(super) size_bytes: AtomicU64,
    facts: Facts,
    /// Memory of huge pages in place of all other memory, if the options ask for it.
    pub(super) region: Option<Region>,
    /// Whether the back end has answered a request, so that it is known to have mapped the memory.
    is_proven: AtomicBool,
    registry: Mutex<Registry>,
    /// The reason why the last attempt to connect again failed.
    why: Mutex<Option<String>>,
}

/// Returns the memory region of an arena. The guest address is the arena's own, since this process
/// is the guest.
fn region_of(arena: &Arena) -> MemoryRegion {
    let address = arena.region().0.expose_provenance() as u64;
    let len_bytes = arena.mapped_bytes() as u64;
    MemoryRegion { guest: address, len_bytes, user: address, file_offset_bytes: 0 }
}

impl Link {
    /// Connects, and reads the properties of the disk.
    pub(super) fn open(path: PathBuf, options: VhostUserOptions) -> Result<(Arc<Self>, Facts)> {
        let (mut up, facts) = connect(&path, &options, None)?;
        let name = format!("vhost-user:{}", path.display());
        let region = options.huge_pages.then(|| Region::new(&name, facts.queues)).transpose()?;
        let arenas: Vec<_> = region.iter().map(|region| (region.arena.clone(), 1)).collect();
        if !arenas.is_empty() {
            up.set_all(&arenas)?;
        }
        let size_bytes = AtomicU64::new(facts.config.sectors << SECTOR_SHIFT);
        let queues = usize::from(facts.queues);
        let (queues, rings) = (vec![false; queues], vec![None; queues]);
        let registry = Registry { arenas, queues, rings, ..Registry::default() };
        let link = Arc::new(Self {
            path,
            options,
            up: Mutex::new(Some(up)),
            word: AtomicU64::new(0),
            size_bytes,
            facts,
            region,
            is_proven: AtomicBool::new(false),
            registry: Mutex::new(registry),
            why: Mutex::default(),
        });
        Ok((link, facts))
    }

    #[inline]
    pub(super) fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// Calls a function with the connection, if it is up in the life that the caller has seen.
    pub(super) fn with<T>(
        &self,
        seen: Word,
        use_it: impl FnOnce(&mut Connection) -> Result<T>,
    ) -> Result<T> {
        match &mut *self.up.lock() {
            Some(up) if self.word() == seen => use_it(&mut up.connection),
            _ => Err(self.gone()),
        }
    }

    pub(super) fn gone(&self) -> Error {
        let why = self.why.lock().as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let is_told = !self.registry.lock().arenas.is_empty();
        if is_told && self.region.is_none() && !self.is_proven.load(Ordering::Relaxed) {
            let context = format!(
                "{}: the back end has gone after it was told of this program's memory{why}",
                self.name()
            );
            return Error::new(ErrorKind::Gone, context).hint(format!(
                "if it is SPDK's, which takes memory of huge pages alone: reserve some (sysctl -w vm.nr_hugepages=16), and open \
                 vhost-user:memory=huge:{}",
                self.path.display()
            ));
        }
        let context = format!("{}: the back end has gone{why}", self.name());
        Error::new(ErrorKind::Gone, context).hint("open the device again once it is back")
    }

    pub(super) fn prove(&self) {
        self.is_proven.store(true, Ordering::Relaxed);
    }

    fn name(&self) -> String {
        format!("vhost-user:{}", self.path.display())
    }

    /// Takes a queue that no channel uses.
    pub(super) fn take_queue(&self) -> Result<u16> {
        let mut registry = self.registry.lock();
        let count = registry.queues.len();
        let Some(free) = registry.queues.iter().position(|used| !used) else {
            let context = format!(
                "channel {} on vhost-user:{} cannot be opened",
                count + 1,
                self.path.display()
            );
            return Err(Error::new(ErrorKind::Limit, context).hint(format!(
                "the back end has {count} queues: use at most as many workers or jobs"
            )));
        };
        registry.queues[free] = true;
        Ok(free as u16)
    }

    /// Returns memory for the ring of a queue that was taken, of at least `bytes`.
    pub(super) fn ring_memory(&self, queue: u16, bytes: usize) -> Result<Buffer> {
        if let Some(region) = &self.region {
            return region.ring(&self.name());
        }
        let arena = self.ring_arena(queue, bytes)?;
        let block = arena.lease();
        block.ok_or_else(|| {
            Error::new(ErrorKind::Busy, format!("the memory of queue {queue} is missing"))
        })
    }

    fn ring_arena(&self, queue: u16, bytes: usize) -> Result<Arc<Arena>> {
        let known = self.registry.lock().rings[usize::from(queue)].clone();
        if let Some(arena) = known.filter(|arena| arena.block_size() >= bytes) {
            return Ok(arena);
        }
        let options = ArenaOptions { shared: true, ..ArenaOptions::ordinary_pages() };
        let arena = Arena::new(bytes.next_power_of_two().max(512), 1, options)
            .map_err(|cause| Error::os(cause, "allocating memory of a queue"))?;
        self.add_arena(&arena)?;
        self.registry.lock().rings[usize::from(queue)] = Some(arena.clone());
        Ok(arena)
    }

    pub(super) fn return_queue(&self, queue: u16) {
        self.registry.lock().queues[usize::from(queue)] = false;
    }

    pub(super) fn add_call(&self, call: &Arc<OwnedFd>) {
        self.registry.lock().calls.push(call.clone());
    }

    pub(super) fn remove_call(&self, call: &Arc<OwnedFd>) {
        self.registry.lock().calls.retain(|other| !Arc::ptr_eq(other, call));
    }

    /// Gives the back end access to an arena. Returns false if that is impossible, since the arena
    /// has no file.
    pub(super) fn add_arena(&self, arena: &Arc<Arena>) -> Result<bool> {
        if arena.file().is_none() {
            return Ok(false);
        }
        let mut up = self.up.lock();
        let mut registry = self.registry.lock();
        if let Some((_, users)) = registry.arenas.iter_mut().find(|(it, _)| it.id() == arena.id()) {
            *users += 1;
            return Ok(true);
        }
        registry.arenas.push((arena.clone(), 1));
        // A back end that is down is told of all arenas when it is up again.
        let told = up.as_mut().map_or(Ok(()), |up| up.add(arena, &registry.arenas));
        match told {
            // A back end that has gone is told of all arenas when it is back.
            Err(error) if error.kind() != ErrorKind::Gone => {
                registry.arenas.pop();
                Err(error)
            }
            _ => Ok(true),
        }
    }

    pub(super) fn remove_arena(&self, id: u32) {
        let mut up = self.up.lock();
        let mut registry = self.registry.lock();
        let Some(at) = registry.arenas.iter().position(|(arena, _)| arena.id() == id) else {
            return;
        };
        registry.arenas[at].1 -= 1;
        if registry.arenas[at].1 == 0 {
            let (arena, _) = registry.arenas.swap_remove(at);
            if let Some(up) = &mut *up {
                // A back end that has gone has no memory of ours.
                let _ = up.remove(&arena, &registry.arenas);
            }
        }
    }

    /// Ends the life that the caller has seen, because the back end violated the protocol; the
    /// keeper then connects anew.
    pub(super) fn break_up(&self, seen: Word) {
        if let Some(up) = &*self.up.lock()
            && self.word() == seen
        {
            let _ = rustix::net::shutdown(up.connection.stream(), rustix::net::Shutdown::Both);
        }
    }

    /// Enters another phase; `current` is the value under the lock of `up`.
    fn enter(&self, current: &mut Option<Up>, up: Option<Up>, phase: Phase) {
        *current = up;
        let life = Word(self.word.load(Ordering::Relaxed)).life();
        let word = match phase {
            Phase::Up => (life + 1) << 2,
            Phase::Lost => life << 2 | 1,
            Phase::Gone => life << 2 | 2,
        };
        self.word.store(word, Ordering::Release);
        for call in &self.registry.lock().calls {
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
    }

    /// Runs the thread that maintains the connection, until `stop` is signalled.
    pub(super) fn keep(&self, stop: &OwnedFd) {
        loop {
            let fds = self.up.lock().as_ref().map(|up| {
                let back = up.back.as_ref().and_then(|(back, _)| back.try_clone().ok());
                (up.connection.stream().try_clone(), back)
            });
            let Some((Ok(stream), back)) = fds else {
                if !self.connect_again(stop) {
                    return;
                }
                continue;
            };
            let mut fds =
                vec![PollFd::new(stop, PollFlags::IN), PollFd::new(&stream, PollFlags::RDHUP)];
            fds.extend(back.as_ref().map(|back| PollFd::new(back, PollFlags::IN)));
            // Whether the wait fails or not, the next turn checks the sockets.
            let _ = rustix::event::poll(&mut fds, None);
            let revents: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
            if !revents[0].is_empty() {
                return;
            }
            if !revents[1].is_empty() {
                warn!(name: "lost", device = self.name(), "the back end has gone");
                self.enter(&mut self.up.lock(), None, Phase::Lost);
                continue;
            }
            if revents.get(2).is_some_and(|revents| !revents.is_empty()) {
                self.hear();
            }
        }
    }

    /// Handles a request of the back end: the disk has another size.
    fn hear(&self) {
        let mut up = self.up.lock();
        let Some(up) = &mut *up else { return };
        let Some((back, incoming)) = &mut up.back else { return };
        match incoming.poll(back) {
            Ok(Received::Message(message)) => {
                let header = message.header;
                let is_news = header.request == Header::CONFIG_CHANGE;
                let config = is_news.then(|| up.config().ok()).flatten();
                if let Some(config) = &config {
                    let size_bytes = config.sectors << SECTOR_SHIFT;
                    info!(name: "resized", device = self.name(), size_bytes, "the disk has another size");
                    self.size_bytes.store(size_bytes, Ordering::Release);
                }
                if let (true, Some((back, _))) = (header.needs_reply(), &up.back) {
                    let answer = header.reply(8).message(&number(config.is_none().into()));
                    // A back end that sends requests and does not read the replies gets none.
                    let _ = send(back, &answer, &[]);
                }
            }
            Ok(Received::NotYet) => {}
            // The back end will send nothing more.
            Ok(Received::Closed(_)) | Err(_) => up.back = None,
        }
    }

    fn try_again(&self) -> Result<()> {
        let (mut up, facts) = connect(&self.path, &self.options, Some(&self.facts))?;
        let size_bytes = facts.config.sectors << SECTOR_SHIFT;
        if size_bytes < self.size_bytes.load(Ordering::Acquire) {
            return Err(another(&self.name(), format!("it has {size_bytes} bytes now")));
        }
        let mut current = self.up.lock();
        let all = self.registry.lock().arenas.clone();
        up.set_all(&all)?;
        self.size_bytes.store(size_bytes, Ordering::Release);
        self.enter(&mut current, Some(up), Phase::Up);
        info!(name: "running", device = self.name(), size_bytes, "the back end is back");
        Ok(())
    }

    /// Connects again, until it succeeds or the options' time limit has passed. Returns false if
    /// the thread has to stop.
    fn connect_again(&self, stop: &OwnedFd) -> bool {
        let start = Instant::now();
        let Link { options, .. } = self;
        loop {
            let Err(error) = self.try_again() else { return true };
            let is_over = error.kind() == ErrorKind::Interrupted
                || start.elapsed() >= options.reconnect
                || options.timeout_policy.is_over(
                    &self.name(),
                    "to come back",
                    start,
                    options.reconnect,
                );
            *self.why.lock() = Some(error.to_string());
            if is_over {
                error!(name: "given_up", device = self.name(), %error, "the back end does not come back");
                self.enter(&mut self.up.lock(), None, Phase::Gone);
            }
            let mut fds = [PollFd::new(stop, PollFlags::IN)];
            let nap = rustix::event::Timespec { tv_sec: 0, tv_nsec: RETRY.subsec_nanos().into() };
            // After the time limit, only the stop signal ends the wait.
            loop {
                let stopped = rustix::event::poll(&mut fds, (!is_over).then_some(&nap));
                if stopped.is_ok_and(|count| count > 0) {
                    return false;
                }
                if !is_over {
                    break;
                }
            }
        }
    }
}

/// Makes the error for a back end that came back with another disk.
fn another(name: &str, what: String) -> Error {
    Error::new(ErrorKind::Gone, format!("{name}: another disk has come back: {what}"))
}

impl Up {
    fn config(&mut self) -> Result<Config> {
        let asked = ConfigMessage { offset: 0, flags: 0, bytes: &[0; Config::BYTES] };
        let payload = self.connection.ask(Request::GetConfig, &asked.payload())?;
        let found = ConfigMessage::parse(&payload).and_then(|it| it.bytes.try_into().ok());
        found.map(Config::decode).ok_or_else(|| {
            Error::new(ErrorKind::Io, "the back end does not say what its disk is")
                .hint("is it a back end of vhost-user-blk?")
        })
    }

    fn has_slots(&self) -> bool {
        self.protocol & protocol::CONFIGURE_MEM_SLOTS != 0
    }

    fn add(&mut self, arena: &Arc<Arena>, all: &[(Arc<Arena>, u32)]) -> Result<()> {
        if !self.has_slots() {
            return self.set_table(all);
        }
        let payload = RegionMessage(region_of(arena)).payload();
        let file = arena.file();
        self.connection.tell(Request::AddMemReg, &payload, file.as_slice())
    }

    fn remove(&mut self, arena: &Arc<Arena>, all: &[(Arc<Arena>, u32)]) -> Result<()> {
        if !self.has_slots() {
            return self.set_table(all);
        }
        let payload = RegionMessage(region_of(arena)).payload();
        let file = arena.file();
        self.connection.tell(Request::RemMemReg, &payload, file.as_slice())
    }

    fn set_all(&mut self, all: &[(Arc<Arena>, u32)]) -> Result<()> {
        if !self.has_slots() {
            return self.set_table(all);
        }
        all.iter().try_for_each(|(arena, _)| self.add(arena, all))
    }

    fn set_table(&mut self, all: &[(Arc<Arena>, u32)]) -> Result<()> {
        if all.len() > REGIONS_MAX {
            let context =
                format!("{} pieces of memory are too many for a back end of vhost-user", all.len());
            return Err(Error::new(ErrorKind::Limit, context)
                .hint(format!("it takes {REGIONS_MAX}: use fewer workers or jobs")));
        }
        let regions: Vec<_> = all.iter().map(|(arena, _)| region_of(arena)).collect();
        let files: Vec<_> = all.iter().filter_map(|(arena, _)| arena.file()).collect();
        self.connection.tell(Request::SetMemTable, &MemoryRegion::table(&regions), &files)
    }
}

/// Connects and negotiates features: those that were `known` before, if the back end comes back.
fn connect(
    path: &std::path::Path,
    options: &VhostUserOptions,
    known: Option<&Facts>,
) -> Result<(Up, Facts)> {
    let mut connection = Connection::open(path, options.timeout, options.timeout_policy.clone())?;
    let offered = connection.ask_number(Request::GetFeatures).map_err(|error| {
        error.hint(
            "is it a back end of vhost-user-blk, and free? Most serve one front end at a time",
        )
    })?;
    let needed = feature::VERSION_1 | feature::PROTOCOL_FEATURES;
    if offered & needed != needed {
        let context = format!("vhost-user:{} is a back end of an old kind", path.display());
        return Err(Error::new(ErrorKind::Unsupported, context)
            .hint("it has to know virtio 1 and protocol features"));
    }
    let wanted = needed
        | blk::SEG_MAX
        | blk::READ_ONLY
        | blk::BLK_SIZE
        | blk::FLUSH
        | blk::MQ
        | blk::DISCARD
        | blk::WRITE_ZEROES
        | feature::EVENT_IDX;
    // Not new features: with FLUSH, a cache would be agreed on that no caller flushes.
    let features = offered & known.map_or(wanted, |known| known.features);
    if let Some(known) = known
        && features != known.features
    {
        let lacks = known.features & !offered;
        let what = format!("it has not the features {lacks:#x} that it had");
        return Err(another(&format!("vhost-user:{}", path.display()), what));
    }
    let can = connection.ask_number(Request::GetProtocolFeatures)?;
    if can & protocol::CONFIG == 0 {
        let context = format!("vhost-user:{} does not say what its disk is", path.display());
        return Err(Error::new(ErrorKind::Unsupported, context)
            .hint("it has to be a back end of vhost-user-blk"));
    }
    let wanted = protocol::MQ
        | protocol::REPLY_ACK
        | protocol::BACKEND_REQ
        | protocol::CONFIG
        | protocol::CONFIGURE_MEM_SLOTS;
    let agreed = can & wanted;
    connection.tell(Request::SetProtocolFeatures, &number(agreed), &[])?;
    connection.has_ack = agreed & protocol::REPLY_ACK != 0;
    connection.tell(Request::SetOwner, &[], &[])?;
    connection.tell(Request::SetFeatures, &number(features), &[])?;
    let mut up = Up { connection, protocol: agreed, back: None };
    if agreed & protocol::BACKEND_REQ != 0 {
        let (ours, theirs) = back_channel()?;
        up.connection.tell(Request::SetBackendReqFd, &[], &[theirs.as_fd()])?;
        up.back = Some((ours, Incoming::new(PAYLOAD_BYTES_MAX, FDS_MAX)));
    }
    let config = up.config()?;
    let mut queues = 1;
    if agreed & protocol::MQ != 0 && features & blk::MQ != 0 {
        let most = up.connection.ask_number(Request::GetQueueNum)?;
        queues = u16::try_from(most).unwrap_or(u16::MAX).min(config.queues).clamp(1, 256);
    }
    if let Some(known) = known
        && (config.block_bytes != known.config.block_bytes || queues < known.queues)
    {
        let what = format!("it has blocks of {} bytes, and {queues} queues", config.block_bytes);
        return Err(another(&format!("vhost-user:{}", path.display()), what));
    }
    Ok((up, Facts { config, features, queues }))
}
