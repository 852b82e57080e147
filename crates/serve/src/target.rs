//! A target: workers, and the sockets at which it serves disks to front ends.

use qpair_memory::locks::Mutex;
use std::fmt;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;

use qpair_block::{Error, ErrorKind, Result, WakeEvent};
use qpair_memory::mappings_cut;
use qpair_socket::{Listener, send};
use qpair_vhost_user::codec::Header;
use rustix::net::Shutdown;
use tracing::{info, warn};

use crate::blk::Blk;
use crate::device::Device;
use crate::disk::Disk;
use crate::nbd;
use crate::nvmf::Nvmf;
use crate::scsi::Controller;
use crate::session::{Session, Shared};
use crate::stream::SocketWay;
use crate::workers::{WorkerInfo, Workers};

/// The stack size in bytes of a thread that reads messages.
const STACK_BYTES: usize = 256 << 10;
/// The most queues of a disk: messages have one byte for a queue's number.
pub const QUEUES_MAX: u16 = 256;

/// The options of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetOptions {
    /// The number of threads that serve queues.
    pub workers: usize,
    /// Whether workers poll: a worker that has a queue never sleeps.
    pub poll: bool,
    /// The way of the sockets of NBD and NVMe/TCP.
    pub sockets: SocketWay,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self { workers: 1, poll: false, sockets: SocketWay::default() }
    }
}

/// The options with which a disk is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlkOptions {
    /// The most queues that a guest may set up; guests set up one for each of their processors.
    pub queues: u16,
    /// Whether the disk is read-only for guests.
    pub read_only: bool,
}

impl Default for BlkOptions {
    fn default() -> Self {
        Self { queues: 4, read_only: false }
    }
}

/// The kind of device that guests see.
#[derive(Clone, Debug)]
pub enum Backend {
    /// A disk.
    Blk {
        /// The disk.
        disk: Arc<Disk>,
        /// Whether the disk is read-only for guests.
        read_only: bool,
    },
    /// A SCSI host.
    Scsi {
        /// The disks that are the host's targets, with their numbers.
        targets: Vec<(u8, Arc<Disk>)>,
    },
}

/// A disk, SCSI host or namespace that is served at a socket.
#[derive(Clone, Debug)]
pub struct ExportInfo {
    /// The name under which it is served.
    pub name: String,
    /// The device that guests see.
    pub backend: Backend,
    /// The path of the socket.
    pub socket: PathBuf,
    /// Whether a front end is connected.
    pub has_client: bool,
}

impl ExportInfo {
    /// Returns the disks that guests reach at this socket.
    #[must_use]
    pub fn disks(&self) -> Vec<&Arc<Disk>> {
        match &self.backend {
            Backend::Blk { disk, .. } => vec![disk],
            Backend::Scsi { targets } => targets.iter().map(|(_, disk)| disk).collect(),
        }
    }
}

struct Served {
    name: String,
    kind: Kind,
    path: PathBuf,
    door: Arc<Door>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
enum Kind {
    Blk(Arc<Blk>),
    Scsi(Arc<Controller>),
}

impl Kind {
    fn device(&self) -> Arc<dyn Device> {
        match self {
            Self::Blk(blk) => blk.clone(),
            Self::Scsi(controller) => controller.clone(),
        }
    }
}

/// The state that the target shares with the thread of a socket.
struct Door {
    stop: AtomicBool,
    wake: WakeEvent,
    /// The connection of the current front end.
    stream: Mutex<Option<UnixStream>>,
    shared: Arc<Shared>,
}

/// A target. Dropping it disconnects all front ends and ends the workers.
pub struct Target {
    served: Mutex<Vec<Served>>,
    nvmf: Mutex<Nvmf>,
    pub(crate) nbd: Mutex<Vec<nbd::Server>>,
    pub(crate) workers: Arc<Workers>,
    /// The number of mappings that had been cut at the last look.
    cut: AtomicU64,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target with {:?}", self.workers)
    }
}

impl Target {
    /// Makes a target and starts its workers.
    ///
    /// # Errors
    /// `Invalid` for zero workers; `Unsupported` if this kernel does not offer the way of the
    /// sockets; else the error of starting a thread.
    pub fn new(options: TargetOptions) -> Result<Self> {
        let TargetOptions { workers, poll, sockets } = options;
        sockets.check()?;
        let workers = Arc::new(Workers::start(workers, poll, sockets)?);
        let cut = AtomicU64::new(mappings_cut());
        let nvmf = Mutex::new(Nvmf::new(workers.clone()));
        Ok(Self { served: Mutex::default(), nvmf, nbd: Mutex::default(), workers, cut })
    }

    /// Serves a disk, under a name, at the socket at `path`, to one front end at a time.
    ///
    /// # Errors
    /// `Invalid` for a number of queues that is 0 or too large; `Exists` for a name that is served
    /// already; else the error of binding the socket.
    pub fn serve_blk(
        &self,
        name: &str,
        disk: &Arc<Disk>,
        path: &Path,
        options: BlkOptions,
    ) -> Result<()> {
        let BlkOptions { queues, read_only } = options;
        let blk = Arc::new(Blk::new(disk, queues, read_only));
        self.serve(name, path, Kind::Blk(blk), queues)
    }

    /// Serves a SCSI host without targets, under a name, at the socket at `path`, to one front end
    /// at a time.
    ///
    /// # Errors
    /// The errors of [`Target::serve_blk`].
    pub fn serve_scsi(&self, name: &str, path: &Path, queues: u16) -> Result<()> {
        let controller = Arc::new(Controller::new(queues)?);
        self.serve(name, path, Kind::Scsi(controller), queues)
    }

    fn serve(&self, name: &str, path: &Path, kind: Kind, queues: u16) -> Result<()> {
        let device = kind.device();
        if queues == 0 || device.queues() > QUEUES_MAX {
            let most = QUEUES_MAX - device.queues().saturating_sub(queues);
            let context = format!("{name} cannot have {queues} queues");
            return Err(
                Error::new(ErrorKind::Invalid, context).hint(format!("choose from 1 to {most}"))
            );
        }
        let mut served = self.served.lock();
        if served.iter().any(|served| served.name == name) {
            let context = format!("{name} is served already");
            return Err(Error::new(ErrorKind::Exists, context));
        }
        let listener = Listener::bind(path)?;
        let path = listener.path().to_owned();
        let wake =
            WakeEvent::new().map_err(|cause| Error::os(cause, "creating an event for a socket"))?;
        let door = Arc::new(Door {
            stop: AtomicBool::new(false),
            wake,
            stream: Mutex::default(),
            shared: Arc::default(),
        });
        let thread = std::thread::Builder::new()
            .name(format!("qpair-{name}"))
            .stack_size(STACK_BYTES)
            .spawn({
                let door = door.clone();
                let (workers, name) = (self.workers.clone(), Arc::from(name));
                move || receive(&listener, &door, (&name, &device), &workers)
            })
            .map_err(|cause| Error::thread(cause, "creating a socket"))?;
        let name = name.to_owned();
        served.push(Served { name, kind, path, door, thread: Some(thread) });
        Ok(())
    }

    fn controller(&self, name: &str) -> Result<Arc<Controller>> {
        let found =
            self.served.lock().iter().find(|served| served.name == name).map(|it| it.kind.clone());
        match found {
            Some(Kind::Scsi(controller)) => Ok(controller),
            Some(Kind::Blk(_)) => {
                Err(Error::new(ErrorKind::Invalid, format!("{name} is a disk, not a SCSI host")))
            }
            None => Err(Error::new(ErrorKind::NotFound, format!("no SCSI host {name} is served"))),
        }
    }

    /// Makes a disk a target of a SCSI host, under a number or else the first free one. Notifies
    /// the guest, and returns the number.
    ///
    /// # Errors
    /// `NotFound` for a host that is not served; `Exists` for a number that is taken; `Invalid` for
    /// a number that is too large or a name that is a disk's; `NoSpace` if all numbers are taken.
    pub fn add_scsi_target(&self, name: &str, number: Option<u8>, disk: &Arc<Disk>) -> Result<u8> {
        self.controller(name)?.add(number, disk)
    }

    /// Removes a target from a SCSI host after its commands under way have ended. Notifies the
    /// guest, and returns the target's disk.
    ///
    /// # Errors
    /// `NotFound` for a target that does not exist; `Busy` if its commands do not end.
    pub fn remove_scsi_target(&self, name: &str, number: u8) -> Result<Arc<Disk>> {
        self.controller(name)?.remove(number)
    }

    /// Stops serving a disk or a SCSI host: its front end loses it.
    ///
    /// # Errors
    /// `NotFound` for a name that is not served. Without `force`, `Busy` if a front end is
    /// connected or a SCSI host has targets.
    pub fn remove(&self, name: &str, force: bool) -> Result<()> {
        let mut all = self.served.lock();
        let at = all.iter().position(|served| served.name == name);
        let at =
            at.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no disk {name} is served")))?;
        if !force && all[at].door.has_client() {
            let context = format!("Device or resource busy: a front end has {name}");
            return Err(
                Error::new(ErrorKind::Busy, context).hint("end it first, or say force=true")
            );
        }
        if let (false, Kind::Scsi(controller)) = (force, &all[at].kind)
            && !controller.targets().is_empty()
        {
            let context = format!("Device or resource busy: {name} has targets");
            return Err(
                Error::new(ErrorKind::Busy, context).hint("remove them first, or say force=true")
            );
        }
        let served = all.swap_remove(at);
        // Release the lock first, because dropping an export may wait for requests.
        drop(all);
        drop(served);
        Ok(())
    }

    /// Disconnects front ends whose memory was cut short, and notifies the others of disks that
    /// have changed size. To be called at intervals.
    pub fn look_after(&self) {
        let cut = mappings_cut();
        let is_news = self.cut.swap(cut, Ordering::Relaxed) != cut;
        for Served { name, door, kind, .. } in &*self.served.lock() {
            if is_news {
                let memory = door.shared.memory.lock().clone();
                if memory.is_cut() {
                    warn!(name: "cut_short", disk = name, "the guest's memory was cut short");
                    door.send_away();
                }
            }
            if kind.device().look_after() {
                info!(name: "resized", disk = name, "its guest is told of its size");
                door.tell_of_configuration();
            }
        }
    }

    /// Returns the disks and SCSI hosts that are served.
    #[must_use]
    pub fn exports(&self) -> Vec<ExportInfo> {
        let entry = |served: &Served| ExportInfo {
            name: served.name.clone(),
            backend: match &served.kind {
                Kind::Blk(blk) => Backend::Blk { disk: blk.disk.clone(), read_only: blk.read_only },
                Kind::Scsi(controller) => Backend::Scsi { targets: controller.targets() },
            },
            socket: served.path.clone(),
            has_client: served.door.has_client(),
        };
        self.served.lock().iter().map(entry).collect()
    }

    pub(crate) fn nvmf(&self) -> MutexGuard<'_, Nvmf> {
        self.nvmf.lock()
    }

    /// Returns the NVMe namespaces that are served. Each is named by its subsystem's name and its
    /// number; its socket is that of the subsystem's first controller.
    #[must_use]
    pub fn namespaces(&self) -> Vec<ExportInfo> {
        let mut all = Vec::new();
        for it in self.nvmf().infos() {
            all.extend(it.namespaces.into_iter().map(|namespace| ExportInfo {
                name: format!("{}/{}", it.nqn, namespace.nsid),
                backend: Backend::Blk {
                    read_only: namespace.disk.device.info().read_only,
                    disk: namespace.disk,
                },
                socket: it.paths.first().cloned().unwrap_or_default(),
                has_client: it.has_client,
            }));
        }
        all
    }

    /// Pins each worker to one processor: the first worker to the first of `cpus`, the next to the
    /// next, and from the first again after the last.
    ///
    /// # Errors
    /// `Invalid` for a processor that this process may not use.
    pub fn pin(&self, cpus: &[usize]) -> Result<()> {
        self.workers.pin(cpus)
    }

    /// Returns the load and the times of each worker.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerInfo> {
        self.workers.infos()
    }
}

impl Door {
    fn has_client(&self) -> bool {
        self.stream.lock().is_some()
    }

    fn send_away(&self) {
        if let Some(stream) = &*self.stream.lock() {
            // The front end may have left by itself.
            let _ = rustix::net::shutdown(stream, Shutdown::Both);
        }
    }

    fn tell_of_configuration(&self) {
        let back = self.shared.back.lock();
        if let Some(back) = &*back {
            // A front end that does not read the message reads the configuration when its guest
            // starts.
            let message = Header::request(Header::CONFIG_CHANGE, 0, false).message(&[]);
            let _ = send(back, &message, &[]);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.door.stop.store(true, Ordering::Release);
        self.door.wake.signal();
        self.door.send_away();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked will not report anything.
            let _ = thread.join();
        }
    }
}

/// Logs that a front end or a driver has connected or left. `why` is the reason if it was sent
/// away.
pub(crate) fn told_of_client(disk: &str, is_there: bool, why: Option<Error>) {
    match why {
        _ if is_there => info!(name: "connected", disk, "a guest has come"),
        None => info!(name: "left", disk, "the guest has gone"),
        Some(error) => warn!(name: "left", disk, %error, "the guest was sent away"),
    }
}

/// Runs the thread of a socket: serves one front end after the other until the target stops it.
fn receive(
    listener: &Listener,
    door: &Door,
    (name, device): (&Arc<str>, &Arc<dyn Device>),
    workers: &Arc<Workers>,
) {
    loop {
        let client = listener.wait(door.wake.as_fd());
        if door.stop.load(Ordering::Acquire) {
            return;
        }
        let Some(stream) = client else { continue };
        let Ok(other) = stream.try_clone() else { continue };
        *door.stream.lock() = Some(other);
        if !door.stop.load(Ordering::Acquire) {
            told_of_client(name, true, None);
            let shared = door.shared.clone();
            let (device, workers) = (device.clone(), workers.clone());
            let ended = Session::new(name.clone(), stream, device, workers, shared).run();
            told_of_client(name, false, ended.err());
        }
        *door.stream.lock() = None;
        *door.shared.back.lock() = None;
        *door.shared.memory.lock() = Arc::default();
    }
}
