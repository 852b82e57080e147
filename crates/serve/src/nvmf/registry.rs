//! The registry of subsystems by name, and the sockets of their controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_block::{Error, ErrorKind, Result};
use qpair_nvme_auth::psk::InterchangeKey;
use qpair_nvme_auth::{HostKeys, Policy};
use qpair_nvme_device::{ControllerOptions as DeviceOptions, Delegated, Doorbells, NvmeController};
use qpair_nvme_tcp::HostPort;
use qpair_nvme_wire::ana::AnaState;
use qpair_pci::PciDevice;
use qpair_vfio_user::{Server, ServerOptions};

use super::controller::{Controller, ControllerOptions};
use super::subsystem::{Namespace, Post, Subsystem};
use crate::disk::Disk;
use crate::nvme_tcp::{Directory, Portal};
use crate::unit::Unit;
use crate::workers::{Placed, Workers};

/// The options of the transport, which apply to all controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    /// The maximum number of entries of an I/O queue.
    pub(crate) queue_entries_max: u32,
    /// The maximum number of I/O queue pairs of a controller.
    pub(crate) queues_max: u16,
    /// The maximum size of a transfer, as a power of two of 4 KiB.
    pub(crate) mdts: u8,
    /// Whether drivers cannot map the doorbells: each ring of a doorbell is then a message.
    pub(crate) trap_doorbells: bool,
    /// Whether drivers are offered doorbells in their own memory. A target that polls does not
    /// offer them, since it looks at mapped doorbells.
    pub(crate) shadow_doorbells: bool,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            queue_entries_max: 1024,
            queues_max: 32,
            mdts: 5,
            trap_doorbells: false,
            shadow_doorbells: true,
        }
    }
}

/// A controller that runs on a worker. Dropping it ends the controller.
#[derive(Debug)]
struct Served {
    /// The address as the caller gave it.
    address: String,
    controller_id: u16,
    post: Arc<Post>,
    subsystem: Arc<Subsystem>,
    workers: Arc<Workers>,
    placed: Option<Placed>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.subsystem.leave(&self.post);
        if let Some(placed) = self.placed.take() {
            self.workers.remove(placed);
        }
    }
}

#[derive(Debug)]
struct Entry {
    subsystem: Arc<Subsystem>,
    controllers: Vec<Served>,
}

/// A description of a subsystem.
#[derive(Clone, Debug)]
pub(crate) struct SubsystemInfo {
    pub(crate) nqn: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    pub(crate) namespaces_max: u32,
    pub(crate) namespaces: Vec<Namespace>,
    /// The addresses of the controllers as callers gave them.
    pub(crate) addresses: Vec<String>,
    pub(crate) paths: Vec<PathBuf>,
    /// Whether a driver is connected to one of the controllers.
    pub(crate) has_client: bool,
    /// The hosts that may connect over TCP; `None`: all.
    pub(crate) hosts: Option<BTreeSet<String>>,
    /// The addresses at which it is served over TCP.
    pub(crate) tcp_addresses: Vec<HostPort>,
    /// The states of the ways by these addresses; `None`: hosts are not told.
    pub(crate) ana: Option<Vec<AnaState>>,
}

/// All subsystems.
#[derive(Debug)]
pub(crate) struct Nvmf {
    workers: Arc<Workers>,
    pub(crate) transport: Option<Transport>,
    /// Whether the transport over TCP was created.
    pub(crate) has_tcp: bool,
    portals: Vec<Portal>,
    directory: Arc<Directory>,
    all: BTreeMap<String, Entry>,
}

fn busy(what: &str) -> Error {
    Error::new(ErrorKind::Busy, format!("Device or resource busy: a driver has {what}"))
        .hint("end it first, or say force=true")
}

impl Nvmf {
    pub(crate) fn new(workers: Arc<Workers>) -> Self {
        Self {
            workers,
            transport: None,
            has_tcp: false,
            portals: Vec::new(),
            directory: Arc::default(),
            all: BTreeMap::new(),
        }
    }

    pub(crate) fn has(&self, nqn: &str) -> bool {
        self.all.contains_key(nqn)
    }

    pub(crate) fn has_controllers(&self) -> bool {
        self.all.values().any(|entry| !entry.controllers.is_empty())
    }

    fn get(&mut self, nqn: &str) -> Result<&mut Entry> {
        self.all.get_mut(nqn).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("Subsystem with NQN '{nqn}' not found"))
        })
    }

    /// Makes a subsystem without namespaces and controllers.
    ///
    /// # Errors
    /// `Exists` for a name that is taken.
    pub(crate) fn create(
        &mut self,
        nqn: &str,
        serial: String,
        model: String,
        namespaces_max: u32,
    ) -> Result<()> {
        if self.has(nqn) {
            return Err(Error::new(
                ErrorKind::Exists,
                format!("Subsystem NQN '{nqn}' already exists"),
            ));
        }
        let subsystem = Subsystem::new(nqn.to_owned(), serial, model, namespaces_max);
        self.all.insert(nqn.to_owned(), Entry { subsystem, controllers: Vec::new() });
        Ok(())
    }

    /// Deletes a subsystem and ends its controllers. Returns the disks that were its namespaces.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if a driver is connected and `force` is not set.
    pub(crate) fn delete(&mut self, nqn: &str, force: bool) -> Result<Vec<Arc<Disk>>> {
        if self.get(nqn)?.subsystem.has_client() && !force {
            return Err(busy(nqn));
        }
        let entry = self.all.remove(nqn);
        let Some(Entry { subsystem, controllers }) = entry else { return Ok(Vec::new()) };
        let disks = subsystem.namespaces().into_iter().map(|it| it.disk).collect();
        drop(controllers);
        // The portals release the disks before this returns.
        subsystem.change(Vec::clear);
        for portal in self.portals.iter().filter(|portal| portal.has(&subsystem)) {
            portal.remove(&subsystem);
        }
        self.portals.retain(|portal| !portal.is_empty());
        Ok(disks)
    }

    /// Makes a disk a namespace, under the number that is asked for or else the first free one.
    ///
    /// # Errors
    /// `NotFound`; `Exists` for a number that is taken; `Invalid` for one that is out of range;
    /// `NoSpace` if all are taken.
    pub(crate) fn add(
        &mut self,
        nqn: &str,
        nsid: Option<u32>,
        disk: &Arc<Disk>,
        uuid: [u8; 16],
    ) -> Result<u32> {
        let subsystem = &self.get(nqn)?.subsystem;
        let (taken, most) = (subsystem.namespaces(), subsystem.namespaces_max);
        let is_taken = |nsid: u32| taken.iter().any(|it| it.nsid == nsid);
        let nsid = match nsid {
            None => (1..=most).find(|nsid| !is_taken(*nsid)).ok_or_else(|| {
                Error::new(ErrorKind::NoSpace, format!("{nqn} has {most} namespaces already"))
            })?,
            Some(nsid) if nsid == 0 || nsid > most => {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("namespace {nsid} is out of range: the limit is {most}"),
                ));
            }
            Some(nsid) if is_taken(nsid) => {
                let context = format!("{nqn} has a namespace {nsid} already");
                return Err(Error::new(ErrorKind::Exists, context));
            }
            Some(nsid) => nsid,
        };
        subsystem.change(|all| all.push(Namespace { nsid, disk: disk.clone(), uuid }));
        Ok(nsid)
    }

    /// Removes a namespace, and returns its disk.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if a driver is connected and `force` is not set.
    pub(crate) fn remove(&mut self, nqn: &str, nsid: u32, force: bool) -> Result<Arc<Disk>> {
        let subsystem = &self.get(nqn)?.subsystem;
        let found = subsystem.namespaces().into_iter().find(|it| it.nsid == nsid);
        let namespace = found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{nqn} has no namespace {nsid}"))
        })?;
        if subsystem.has_client() && !force {
            return Err(busy(&format!("namespace {nsid} of {nqn}")));
        }
        subsystem.change(|all| all.retain(|it| it.nsid != nsid));
        Ok(namespace.disk)
    }

    /// Starts a controller on a worker. It serves the drivers that connect to the socket at `path`,
    /// one at a time.
    ///
    /// # Errors
    /// `NotFound` without the subsystem, `Invalid` without a transport, `Exists` for an address
    /// that is in use; else the error of binding the socket.
    pub(crate) fn listen(&mut self, nqn: &str, address: &str, path: &Path) -> Result<()> {
        let transport = self.transport.ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "there is no transport of the type VFIOUSER")
                .hint("nvmf_create_transport creates it")
        })?;
        let workers = self.workers.clone();
        let Entry { subsystem, controllers } = self.get(nqn)?;
        if controllers.iter().any(|it| it.address == address) {
            let context = format!("{nqn} has a controller at {address} already");
            return Err(Error::new(ErrorKind::Exists, context));
        }
        let is_free = |id: &u16| controllers.iter().all(|it| it.controller_id != *id);
        let controller_id = (1..=u16::MAX).find(is_free).unwrap_or(u16::MAX);
        let options = DeviceOptions {
            queues_max: transport.queues_max,
            queue_entries_max: transport.queue_entries_max,
            mdts: transport.mdts,
            doorbells: match (
                transport.shadow_doorbells && !workers.poll(),
                transport.trap_doorbells,
            ) {
                (true, _) => Doorbells::Shadow,
                (false, true) => Doorbells::Trapped,
                (false, false) => Doorbells::Mapped,
            },
            // Drivers send flushes, and the devices decide what to do with them.
            volatile_write_cache: true,
            serial: subsystem.serial.clone(),
            model: subsystem.model.clone(),
            subsystem: subsystem.nqn.clone(),
            controller_id,
            namespaces_max: subsystem.namespaces_max,
            is_shared: true,
        };
        let device = Arc::new(NvmeController::new(options, Delegated::default())?);
        let path = match path.is_dir() {
            // SPDK takes a folder, and gives the socket in it this name.
            true => path.join("cntrl"),
            false => path.to_owned(),
        };
        let options =
            ServerOptions { mapped: !transport.trap_doorbells, ..ServerOptions::default() };
        let server = Server::bind(&path, device.clone() as Arc<dyn PciDevice>, options)?;
        let post = Post::new(PathBuf::from(server.path()))?;
        let options = ControllerOptions {
            subsystem: subsystem.clone(),
            device,
            server,
            post: post.clone(),
            transfer_bytes_max: 4096 << transport.mdts,
        };
        let start = move || Ok(Controller::start(options)? as Box<dyn Unit>);
        let placed = Some(workers.add(Box::new(start))?);
        // The controller reads the namespaces by itself the first time.
        subsystem.join(&post);
        let (address, subsystem) = (address.to_owned(), subsystem.clone());
        controllers.push(Served { address, controller_id, post, subsystem, workers, placed });
        Ok(())
    }

    /// Ends the controller at an address.
    ///
    /// # Errors
    /// `NotFound`; `Busy` if a driver is connected and `force` is not set.
    pub(crate) fn unlisten(&mut self, nqn: &str, address: &str, force: bool) -> Result<()> {
        let controllers = &mut self.get(nqn)?.controllers;
        let at = controllers.iter().position(|it| it.address == address);
        let at = at.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{nqn} has no controller at {address}"))
        })?;
        if controllers[at].post.has_client() && !force {
            return Err(busy(&format!("the controller at {address}")));
        }
        drop(controllers.remove(at));
        Ok(())
    }

    /// Serves a subsystem to hosts over TCP. Returns the address, with the port that was chosen if
    /// the port was 0. With `requires_tls` hosts must use TLS there.
    ///
    /// # Errors
    /// `NotFound` without the subsystem; `Exists` if it is served at the address already; `Invalid`
    /// if others are served there with TLS and it without, or the other way; `Unsupported` in a
    /// build without TLS; else the error of listening.
    pub(crate) fn listen_tcp(
        &mut self,
        nqn: &str,
        address: &HostPort,
        requires_tls: bool,
    ) -> Result<HostPort> {
        let subsystem = self.get(nqn)?.subsystem.clone();
        let at = self.portals.iter().position(|portal| portal.address() == address);
        if let Some(portal) = at.map(|at| &self.portals[at]) {
            if portal.has(&subsystem) {
                let context = format!("{nqn} is served at {address} already");
                return Err(Error::new(ErrorKind::Exists, context));
            }
            if portal.requires_tls() != requires_tls {
                let what = if requires_tls { "without TLS" } else { "with TLS" };
                let context = format!("other subsystems are served at {address} {what}");
                return Err(Error::new(ErrorKind::Invalid, context).hint("choose another port"));
            }
            portal.add(&subsystem)?;
            return Ok(portal.address().clone());
        }
        let portal = Portal::start(address, requires_tls, &self.directory, &self.workers)?;
        portal.add(&subsystem)?;
        let address = portal.address().clone();
        self.portals.push(portal);
        Ok(address)
    }

    /// Ends the connections of a subsystem's hosts at an address, and serves it there no longer.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn unlisten_tcp(&mut self, nqn: &str, address: &HostPort) -> Result<()> {
        let subsystem = self.get(nqn)?.subsystem.clone();
        let is_it = |portal: &&Portal| portal.address() == address && portal.has(&subsystem);
        let portal = self.portals.iter().find(is_it).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{nqn} is not served at {address}"))
        })?;
        portal.remove(&subsystem);
        self.portals.retain(|portal| !portal.is_empty());
        Ok(())
    }

    /// Lets hosts of a subsystem know the states of their ways to its namespaces.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn report_ana(&mut self, nqn: &str) -> Result<()> {
        self.get(nqn)?.subsystem.reports_ana.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the state of the way by an address to a subsystem's namespaces.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` if hosts are not told of states.
    pub(crate) fn set_ana(&mut self, nqn: &str, address: &HostPort, state: AnaState) -> Result<()> {
        let subsystem = self.get(nqn)?.subsystem.clone();
        if !subsystem.reports_ana.load(Ordering::Relaxed) {
            let context = format!("{nqn} does not report states of access");
            return Err(Error::new(ErrorKind::Invalid, context)
                .hint("create the subsystem with ana_reporting=true"));
        }
        let is_it = |portal: &&Portal| portal.address() == address && portal.has(&subsystem);
        let portal = self.portals.iter().find(is_it).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{nqn} is not served at {address}"))
        })?;
        portal.set_ana(&subsystem, state);
        Ok(())
    }

    /// Changes the hosts that may connect to a subsystem over TCP; `None`: all.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn change_hosts(
        &mut self,
        nqn: &str,
        change: impl FnOnce(&mut Option<BTreeSet<String>>),
    ) -> Result<()> {
        self.get(nqn)?.subsystem.change_hosts(change);
        self.directory.changed();
        Ok(())
    }

    /// Sets the keys by which a host proves who it is at a subsystem; `None`: it need not.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn set_keys(&mut self, nqn: &str, host: &str, keys: Option<HostKeys>) -> Result<()> {
        self.get(nqn)?.subsystem.set_keys(host, keys);
        Ok(())
    }

    /// Sets the key of TLS of a host at a subsystem; `None`: it has none.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn set_tls_key(
        &mut self,
        nqn: &str,
        host: &str,
        key: Option<InterchangeKey>,
    ) -> Result<()> {
        self.get(nqn)?.subsystem.set_tls_key(host, key);
        Ok(())
    }

    /// Sets the hash functions and groups of authentications that begin later.
    pub(crate) fn set_policy(&self, policy: Policy) {
        *self.directory.policy.lock() = Arc::new(policy);
    }

    /// Returns the number of connections over TCP.
    pub(crate) fn tcp_clients(&self) -> usize {
        self.portals.iter().map(Portal::clients).sum()
    }

    /// Whether a subsystem is served over TCP.
    pub(crate) fn has_portals(&self) -> bool {
        !self.portals.is_empty()
    }

    /// Returns descriptions of all subsystems, sorted by name.
    pub(crate) fn infos(&self) -> Vec<SubsystemInfo> {
        let info = |entry: &Entry| {
            let it = &entry.subsystem;
            let portals = || self.portals.iter().filter(|portal| portal.has(it));
            SubsystemInfo {
                nqn: it.nqn.clone(),
                serial: it.serial.clone(),
                model: it.model.clone(),
                namespaces_max: it.namespaces_max,
                namespaces: it.namespaces(),
                addresses: entry.controllers.iter().map(|it| it.address.clone()).collect(),
                paths: entry.controllers.iter().map(|it| it.post.path.clone()).collect(),
                has_client: it.has_client(),
                hosts: it.hosts(),
                tcp_addresses: portals().map(|portal| portal.address().clone()).collect(),
                ana: it
                    .reports_ana
                    .load(Ordering::Relaxed)
                    .then(|| portals().filter_map(|portal| portal.ana(it)).collect()),
            }
        };
        self.all.values().map(info).collect()
    }
}
