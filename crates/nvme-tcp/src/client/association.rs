//! An association: the device's controller at the target, with its admin queue. A thread keeps the
//! controller alive. When the controller is lost, the next queue that connects makes another.

use std::collections::BTreeSet;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::locks::Mutex;
use qpair_nvme_auth::HostKeys;
use qpair_nvme_wire::command::{admin, cns, feature};
use qpair_nvme_wire::fabrics::{
    ANY_CONTROLLER, ConnectData, FabricsIdentity, KEEP_ALIVE, Sgl, sgl,
};
use qpair_nvme_wire::registers::{CAP, CC, CC_RUN, CSTS, CSTS_READY, Capabilities};
use qpair_nvme_wire::{
    Command, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, NSID_ALL, Status,
};
use qpair_socket::client::Wire;
use qpair_tls::PskClient;

use super::authentication::{authenticate, read_keys};
use super::device::NvmeTcpOptions;
use super::link::{Answer, Link};
use super::tls::read_tls;
use crate::address::Place;

/// The entries of the admin queue.
const ADMIN_ENTRIES: u32 = 32;
/// The most I/O queues that are asked for.
const QUEUES: u32 = 64;
/// The event that namespaces have changed.
const NAMESPACES_CHANGED: u32 = 1 << 8;

/// The properties of a controller and a namespace, as the target tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) nsid: u32,
    pub(super) block_bytes: u32,
    pub(super) size_bytes: u64,
    pub(super) read_only: bool,
    pub(super) nguid: [u8; 16],
    pub(super) serial: String,
    /// The largest transfer in bytes; 0: no limit.
    pub(super) transfer_bytes_max: u32,
    pub(super) has_cache: bool,
    /// Optional commands (ONCS).
    pub(super) commands: u16,
    /// The most data in a capsule, bytes.
    pub(super) capsule_bytes: u32,
    pub(super) entries_max: u32,
    pub(super) queues: u16,
}

#[derive(Debug)]
struct Session {
    link: Link,
    controller: u16,
}

#[derive(Debug, Default)]
struct State {
    session: Option<Session>,
    /// Numbers of I/O queues that channels have.
    queues: BTreeSet<u16>,
    is_over: bool,
}

/// The state that the association shares with the thread that keeps the controller alive.
#[derive(Debug)]
pub(super) struct Shared {
    place: Place,
    options: NvmeTcpOptions,
    keys: Option<HostKeys>,
    tls: Option<PskClient>,
    state: Mutex<State>,
    news: Condvar,
    pub(super) facts: Facts,
    size_bytes: AtomicU64,
}

/// An association. The device and its channels share it; it ends with the last.
#[derive(Debug)]
pub(super) struct Association(Arc<Shared>);

impl Deref for Association {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.is_over = true;
        // The target ends the controller with its connection.
        state.session = None;
        self.news.notify_all();
    }
}

impl Association {
    /// Connects, and finds the namespace.
    ///
    /// # Errors
    /// The errors of connecting; `Denied` for a target that refuses the host; `NotFound` for a
    /// subsystem or a namespace that does not exist.
    pub(super) fn begin(place: Place, options: NvmeTcpOptions) -> Result<Arc<Self>> {
        let keys = read_keys(&options)?;
        let tls = read_tls(&place, &options)?;
        let (session, facts) = establish(&place, &options, keys.as_ref(), tls.as_ref())?;
        let state = Mutex::new(State { session: Some(session), ..State::default() });
        let size_bytes = AtomicU64::new(facts.size_bytes);
        let news = Condvar::new();
        let it = Arc::new(Shared { place, options, keys, tls, state, news, facts, size_bytes });
        let shared = it.clone();
        std::thread::Builder::new()
            .name("nvme-keeper".into())
            .spawn(move || keep(&shared))
            .map_err(|cause| Error::thread(cause, "keeping an NVMe/TCP controller alive"))?;
        Ok(Arc::new(Self(it)))
    }
}

impl Shared {
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Takes a free number of a queue.
    pub(super) fn take_number(&self) -> Option<u16> {
        let queues = &mut self.state.lock().queues;
        let number = (1..=self.facts.queues).find(|number| !queues.contains(number))?;
        queues.insert(number);
        Some(number)
    }

    pub(super) fn give_number(&self, number: u16) {
        self.state.lock().queues.remove(&number);
    }

    /// Connects an I/O queue of the controller, or of another if that is lost. Returns the queue's
    /// connection, and the most data of a PDU to the target, bytes.
    ///
    /// # Errors
    /// The errors of connecting; `Gone` if the target has another namespace now.
    pub(super) fn connect_queue(&self, number: u16, entries: u32) -> Result<(Wire, u32)> {
        let mut state = self.state.lock();
        if let Some(session) = &state.session {
            match self.connect(session.controller, number, entries) {
                Ok(queue) => return Ok(queue),
                // The controller may be lost, and its connection too.
                Err(_) => state.session = None,
            }
        }
        let (keys, tls) = (self.keys.as_ref(), self.tls.as_ref());
        let (session, facts) = establish(&self.place, &self.options, keys, tls)?;
        let had = &self.facts;
        let is_same = (facts.nguid, facts.block_bytes) == (had.nguid, had.block_bytes)
            && facts.size_bytes >= had.size_bytes
            && (facts.read_only, facts.has_cache) == (had.read_only, had.has_cache)
            && facts.commands & had.commands == had.commands;
        if !is_same {
            let context = format!("{} has another namespace than before", self.place);
            return Err(Error::new(ErrorKind::Gone, context).hint("open it again"));
        }
        self.size_bytes.store(facts.size_bytes, Ordering::Relaxed);
        let queue = self.connect(session.controller, number, entries);
        state.session = Some(session);
        queue
    }

    fn connect(&self, controller: u16, number: u16, entries: u32) -> Result<(Wire, u32)> {
        let NvmeTcpOptions { digests, timeout, .. } = self.options;
        let keys = self.keys.as_ref();
        let mut link = Link::open(&self.place.address, digests, timeout, self.tls.as_ref())?;
        let data = connect_data(&self.place, &self.options, controller);
        let connected = link.connect((number, entries), Duration::ZERO, &data);
        let answer = connected
            .map_err(|cause| failed(&self.place, cause))?
            .map_err(|it| refused(&self.place, it))?;
        authenticate(&mut link, &self.place, &self.options, keys, answer)?;
        let data_bytes_max = link.data_bytes_max;
        let wire = link.into_wire().map_err(|cause| failed(&self.place, cause))?;
        Ok((wire, data_bytes_max))
    }

    /// Asks the target for a sign of life, and whether the namespace has changed.
    fn refresh(&self, session: &mut Session) -> io::Result<()> {
        let link = &mut session.link;
        link.call(without_data(Command::new(KEEP_ALIVE, 0)), None)?;
        if link.event.is_some() {
            // Reading the log enables the event again.
            let mut command = Command::new(admin::GET_LOG_PAGE, NSID_ALL);
            command.0[10] = 4 | 1023 << 16;
            link.call(with_data(command, 4096), None)?;
            if let Ok(facts) = namespace(link, self.facts.nsid)? {
                self.size_bytes.store(facts.size_bytes, Ordering::Relaxed);
            }
            link.ask_for_event()?;
        }
        Ok(())
    }
}

/// Keeps a controller alive until its association ends.
fn keep(it: &Shared) {
    let pause = it.options.keep_alive / 2;
    let mut next = Instant::now() + pause;
    loop {
        let left = next.saturating_duration_since(Instant::now());
        let waited = it.news.wait_timeout_while(it.state.lock(), left, |state| !state.is_over);
        let Ok((mut state, _)) = waited else { return };
        if state.is_over {
            return;
        }
        if let Some(session) = &mut state.session
            && let Err(error) = it.refresh(session)
        {
            let device = it.place.to_string();
            tracing::warn!(name: "lost", device, %error, "a controller of NVMe/TCP was lost");
            state.session = None;
        }
        next = Instant::now() + pause;
    }
}

fn failed(place: &Place, cause: io::Error) -> Error {
    Error::os(cause, format!("{place}: connecting to an NVMe/TCP target"))
}

fn refused(place: &Place, (status, place_of_field): (Status, u32)) -> Error {
    const IN_DATA: u32 = 1 << 16;
    let is_subsystem = place_of_field == IN_DATA | u32::from(ConnectData::SUBSYSTEM_AT);
    let (kind, why) = match status {
        Status::CONNECT_INVALID_PARAMETER if is_subsystem => {
            (ErrorKind::NotFound, "the target has no subsystem of this name".to_owned())
        }
        Status::CONNECT_INVALID_HOST => {
            (ErrorKind::Denied, "the target does not allow this host".to_owned())
        }
        _ => (ErrorKind::Io, format!("the target answered Connect with {status:?}")),
    };
    Error::new(kind, format!("{place}: {why}"))
}

fn connect_data(place: &Place, options: &NvmeTcpOptions, controller_id: u16) -> ConnectData {
    ConnectData {
        host_id: options.host_id,
        controller_id,
        subsystem: place.subsystem.clone(),
        host: options.host.clone(),
    }
}

/// Names no data.
pub(super) fn without_data(mut command: Command) -> Command {
    command.set_sgl(Sgl { address: 0, len_bytes: 0, kind: sgl::TRANSPORT });
    command
}

/// Names data that the transport moves.
pub(super) fn with_data(mut command: Command, len_bytes: u32) -> Command {
    command.set_sgl(Sgl { address: 0, len_bytes, kind: sgl::TRANSPORT });
    command
}

/// Makes a controller, and finds the namespace.
fn establish(
    place: &Place,
    options: &NvmeTcpOptions,
    keys: Option<&HostKeys>,
    tls: Option<&PskClient>,
) -> Result<(Session, Facts)> {
    let mut link = Link::open(&place.address, options.digests, options.timeout, tls)?;
    let data = connect_data(place, options, ANY_CONTROLLER);
    let connected = link.connect((0, ADMIN_ENTRIES), options.keep_alive, &data);
    let answer =
        connected.map_err(|cause| failed(place, cause))?.map_err(|it| refused(place, it))?;
    authenticate(&mut link, place, options, keys, answer)?;
    let facts =
        begin(&mut link, place, options.timeout).map_err(|cause| failed(place, cause))??;
    Ok((Session { link, controller: answer as u16 }, facts))
}

type Found<T> = io::Result<std::result::Result<T, Status>>;

fn identify(link: &mut Link, cns: u8, nsid: u32) -> Found<[u8; IDENTIFY_BYTES]> {
    let command = with_data(Command::identify(cns, nsid, 0), IDENTIFY_BYTES as u32);
    let Answer { status, data, .. } = link.call(command, None)?;
    Ok(match <[u8; IDENTIFY_BYTES]>::try_from(data) {
        Ok(data) if status.is_success() => Ok(data),
        _ if status.is_success() => Err(Status::DATA_TRANSFER_ERROR),
        _ => Err(status),
    })
}

/// Returns what Identify tells of a namespace.
fn namespace(link: &mut Link, nsid: u32) -> Found<Facts> {
    let data = match identify(link, cns::NAMESPACE, nsid)? {
        Ok(data) => IdentifyNamespace::parse(&data),
        Err(status) => return Ok(Err(status)),
    };
    let format = data.format_in_use().filter(|it| (9..=16).contains(&it.data_shift));
    let Some(format) = format.filter(|it| it.metadata_bytes == 0 && data.protection == 0) else {
        return Ok(Err(Status::INVALID_NAMESPACE));
    };
    let size_bytes = data.size_blocks.checked_shl(format.data_shift.into());
    Ok(Ok(Facts {
        nsid,
        block_bytes: 1 << format.data_shift,
        size_bytes: size_bytes
            .filter(|size| size >> format.data_shift == data.size_blocks)
            .unwrap_or(0),
        read_only: data.write_protected,
        nguid: data.nguid,
        ..Facts::default()
    }))
}

/// Enables the controller, and asks for its properties.
fn begin(link: &mut Link, place: &Place, timeout: Duration) -> io::Result<Result<Facts>> {
    let wrong = |kind, what: String| Ok(Err(Error::new(kind, format!("{place}: {what}"))));
    let cap = Capabilities(link.call(Command::property_get(CAP, true), None)?.result);
    link.call(Command::property_set(CC, CC_RUN), None)?;
    let until = Instant::now() + timeout.max(Duration::from_millis(cap.ready_timeout_ms().into()));
    while link.call(Command::property_get(CSTS, false), None)?.result as u32 & CSTS_READY == 0 {
        if Instant::now() > until {
            return wrong(ErrorKind::Io, "the controller does not become ready".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let data = match identify(link, cns::CONTROLLER, 0)? {
        Ok(data) => data,
        Err(status) => return wrong(ErrorKind::Io, format!("Identify ended with {status:?}")),
    };
    let (controller, fabrics) = (IdentifyController::parse(&data), FabricsIdentity::parse(&data));
    let wanted = (QUEUES - 1) | (QUEUES - 1) << 16;
    let command = Command::set_features(feature::NUMBER_OF_QUEUES, wanted);
    let granted = link.call(without_data(command), None)?;
    let queues = granted.result as u16 & 0x3F;
    let nsid = match place.nsid {
        Some(nsid) => nsid,
        None => match identify(link, cns::ACTIVE_NAMESPACES, 0)? {
            Ok(list) => {
                let number = |at: usize| qpair_wire::le::u32_at(&list, at);
                if number(0) == 0 {
                    return wrong(ErrorKind::NotFound, "the subsystem has no namespace".into());
                }
                if number(4) != 0 {
                    let error = Error::new(
                        ErrorKind::Invalid,
                        format!("{place} has more than one namespace"),
                    );
                    return Ok(Err(error.hint(format!("write nvme:tcp:{place}/ns{}", number(0)))));
                }
                number(0)
            }
            Err(status) => return wrong(ErrorKind::Io, format!("Identify ended with {status:?}")),
        },
    };
    let facts = match namespace(link, nsid)? {
        Ok(facts) if facts.size_bytes > 0 => facts,
        _ => {
            return wrong(
                ErrorKind::NotFound,
                format!("the target has no usable namespace {nsid}"),
            );
        }
    };
    if controller.async_events & NAMESPACES_CHANGED != 0 {
        let command = Command::set_features(feature::ASYNC_EVENT, NAMESPACES_CHANGED);
        link.call(without_data(command), None)?;
        link.ask_for_event()?;
    }
    Ok(Ok(Facts {
        serial: controller.serial,
        transfer_bytes_max: if controller.mdts == 0 { 0 } else { 4096 << controller.mdts.min(15) },
        has_cache: controller.volatile_write_cache & 1 != 0,
        commands: controller.nvm_commands,
        capsule_bytes: fabrics.capsule_data_bytes().min(64 << 10),
        entries_max: cap.queue_entries_max().min(fabrics.commands_max.max(2).into()),
        queues: queues + 1,
        ..facts
    }))
}
