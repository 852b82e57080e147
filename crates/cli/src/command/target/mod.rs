//! `qpair target`: block devices for guests.

mod attach;
mod config;
mod config_file;
mod report;
mod systemd;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use qpair_block::{BlockDevice, DeviceSpec, ErrorKind, open_slice};
use qpair_kernel::{FileOptions, Interface, Mode};
use qpair_serve::{
    BlkOptions, ConfigChange, HostPort, Manager, MetricsAddress, MetricsServer, NbdAddress,
    NvmeHost, OpenFile, RpcServer, SocketWay, Target, TargetOptions, TlsFiles,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::info;

use crate::events::{Events, Levels};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::file::FileArgs;
use crate::show::adaptation::{self, Adapted};
use config::{Config, Settings};
use config_file::{LOG, read, read_again, refused, tell_of_faults};
use report::Reporter;
use systemd::Systemd;

/// The interval of checks for truncated memory, for disks that have grown, and for Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time to wait for another process that has the device open and is about to end.
const PREDECESSOR: Duration = Duration::from_secs(3);

/// Serve block devices to virtual machines, with no kernel in the data path
#[derive(Args, Debug)]
#[command(
    name = "target",
    after_help = "\
QEMU connects to each disk at the socket FOLDER/NAME.sock (vhost-user-blk). The guest must share its memory with this \
program: use memory-backend-memfd. An idle guest costs nothing, unless --poll is given. One guest at a time can use a \
disk. A guest with a disk on nvme: or scsi: of this machine must not use a balloon, virtio-mem or free page \
reporting.

DEVICE is a file, a block device, or any device specifier: nvme:0000:3b:00.0, scsi:HOST/UNIT, softnvme:size=1GiB, \
stripe:..., ram:size=1GiB. The guest sees NAME as the disk's serial number (/dev/disk/by-id/virtio-NAME). Ctrl-C \
disconnects all guests and removes the sockets; a guest continues when the target runs again (QEMU's reconnect \
option).

Events are logged as lines on standard error, or with --json as objects on standard output. --log sets the level, for \
all crates or for one: qpair_drivers, qpair_mpt3sas, qpair_nvme, qpair_scsi, qpair_serve, qpair_vfio_user, \
qpair_vhost_user, qpair_virtio_scsi. The levels notice and info are the same.

With --rpc, SPDK's client (pip install spdk) or `qpair rpc` can create devices, layers of devices and disks while the \
target runs. `spdk-rpc -s PATH save_config` prints the configuration for --load. A --disk is a device for these calls \
too, under NAME: a call that carves, splits, stripes or serves it closes NAME.sock, unless a guest is connected. \
bdev_scsi_attach_controller makes devices of all units of a SCSI host, and of those that are plugged in later.

--config reads TOML. The table [target] has folder, rpc, metrics, workers, cpus, poll, sockets, buffered and log, as here. \
Each other table is a call, such as [[bdev_malloc_create]] with name, num_blocks and block_size. `qpair rpc \
save_config --toml` writes such a file. SIGHUP makes the target read the file again and apply the differences; a file \
with an error changes nothing.

Examples:
  qpair target --folder /run/qpair --disk data=ram:size=1GiB
  qpair target --folder /run/qpair --disk root=root.img --disk fast=nvme:0000:3b:00.0 --workers 2 --poll
  qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m \\
      -chardev socket,id=c,path=/run/qpair/data.sock,reconnect=1 -device vhost-user-blk-pci,chardev=c ...

  qpair target --folder /run/qpair --disk data=data.img --nbd unix:/run/qpair/nbd.sock
  nbdinfo 'nbd+unix:///data?socket=/run/qpair/nbd.sock'

  qpair target --folder /run/qpair --disk data=data.img --nbd tcp:0.0.0.0 --tls-certificate cert.pem --tls-key key.pem
  nbdinfo 'nbds://HOST/data?tls-certificates=FOLDER'

  qpair target --folder /run/qpair --disk data=data.img --nvme-tcp 0.0.0.0:4420
  nvme connect -t tcp -a HOST -n nqn.2026-11.invalid.qpair:target

  nvme gen-dhchap-key > host.key && chmod 600 host.key
  qpair target --folder /run/qpair --disk data=data.img --nvme-tcp 0.0.0.0:4420 --dhchap-key HOSTNQN=host.key
  nvme connect -t tcp -a HOST -n nqn.2026-11.invalid.qpair:target -S $(cat host.key)

  nvme gen-tls-key > tls.key && chmod 600 tls.key
  qpair target --folder /run/qpair --disk data=data.img --nvme-tcp 0.0.0.0:4420 --tls-psk HOSTNQN=tls.key
  nvme check-tls-key --insert --keydata=$(cat tls.key) --hostnqn=HOSTNQN --subsysnqn=nqn.2026-11.invalid.qpair:target --identity=1
  nvme connect -t tcp -a HOST -n nqn.2026-11.invalid.qpair:target --tls

  qpair target --folder /run/qpair --rpc /run/qpair/rpc.sock
  qpair rpc --socket /run/qpair/rpc.sock bdev_malloc_create name=M num_blocks=131072 block_size=512
  qpair rpc --socket /run/qpair/rpc.sock vhost_create_blk_controller ctrlr=m.sock dev_name=M
  qpair rpc --socket /run/qpair/rpc.sock bdev_scsi_attach_controller name=S traddr=0000:3b:00.0
  qpair rpc --socket /run/qpair/rpc.sock bdev_scsi_create name=custom device=St0 size_gb=400

  qpair target --config /etc/qpair/target.toml --metrics 127.0.0.1:9100 --log warning,qpair_nvme=debug"
)]
pub(crate) struct TargetCommand {
    /// Read the configuration from a file, and again at SIGHUP
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Folder of the sockets; created if missing [default: /run/qpair]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,

    /// Disk to serve; may be repeated
    #[arg(long, value_name = "NAME=DEVICE", required_unless_present_any = ["rpc", "config"], value_parser = parse_disk, long_help = format!("Disk to serve; may be repeated. {}", qpair_drivers::help()))]
    disk: Vec<(String, DeviceSpec)>,

    /// Serve the disks by NBD at unix:PATH or tcp:HOST[:PORT], under their names, and not by
    /// vhost-user
    #[arg(long, value_name = "ADDRESS", requires = "disk")]
    nbd: Option<NbdAddress>,

    /// Require TLS of NBD clients, with the certificate in this file (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["nbd", "tls_key"])]
    tls_certificate: Option<PathBuf>,

    /// File with the private key of --tls-certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,

    /// Require a certificate of NBD clients too, by an authority in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_client_ca: Option<PathBuf>,

    /// Serve the disks to hosts over NVMe/TCP at HOST:PORT, as namespaces of one subsystem, and not
    /// by vhost-user
    #[arg(long, value_name = "HOST:PORT", requires = "disk", conflicts_with = "nbd")]
    nvme_tcp: Option<HostPort>,

    /// Name of the subsystem over NVMe/TCP
    #[arg(
        long,
        value_name = "NQN",
        requires = "nvme_tcp",
        default_value = "nqn.2026-11.invalid.qpair:target"
    )]
    nqn: String,

    /// Host that may connect over NVMe/TCP; may be repeated [default: all]
    #[arg(long, value_name = "NQN", requires = "nvme_tcp")]
    allow_host: Vec<String>,

    /// Host that must prove by the key in this file who it is (DH-HMAC-CHAP); may be repeated, and
    /// allows the host
    #[arg(long, value_name = "NQN=FILE", requires = "nvme_tcp", value_parser = parse_key)]
    dhchap_key: Vec<(String, PathBuf)>,

    /// Key by which the target proves who it is to a host of --dhchap-key that asks; may be
    /// repeated
    #[arg(long, value_name = "NQN=FILE", requires = "dhchap_key", value_parser = parse_key)]
    dhchap_ctrlr_key: Vec<(String, PathBuf)>,

    /// Host that uses TLS with the key in this file; may be repeated, and allows the host. With it,
    /// no host may connect without TLS
    #[arg(long, value_name = "NQN=FILE", requires = "nvme_tcp", value_parser = parse_key)]
    tls_psk: Vec<(String, PathBuf)>,

    /// Accept JSON-RPC calls at this socket, only from the owner of this process
    #[arg(long, value_name = "PATH")]
    rpc: Option<PathBuf>,

    /// Serve metrics for Prometheus at this address with a port, or at a socket of this path
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<MetricsAddress>,

    /// Log level: error, warning, notice, info or debug, for all crates or for some:
    /// info,qpair_nvme=debug
    #[arg(long, value_name = "LEVEL,CRATE=LEVEL", value_parser = Levels::parse)]
    log: Option<Levels>,

    /// First make the calls that `spdk-rpc save_config` has printed to this file
    #[arg(long, value_name = "FILE", requires = "rpc")]
    load: Option<PathBuf>,

    #[command(flatten)]
    files: FileArgs,

    /// Refuse writes of guests
    #[arg(long)]
    read_only: bool,

    /// Maximum queues per disk; a guest sets up one per processor
    #[arg(long, value_name = "N", default_value_t = BlkOptions::default().queues, value_parser = clap::value_parser!(u16).range(1..=i64::from(qpair_serve::QUEUES_MAX)))]
    queues: u16,

    /// Threads that serve queues [default: 1]; with --poll, give each thread a core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,

    /// Pin the workers to these processors in turn, one each: 2,3
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cpus: Vec<usize>,

    /// Poll the rings all the time: the lowest latency, for a whole core per worker
    #[arg(long)]
    poll: bool,

    /// Serve the sockets of NBD and NVMe/TCP by epoll or io_uring, those with TLS by epoll in any
    /// case [default: auto, which is epoll]
    #[arg(long, value_name = "WAY")]
    sockets: Option<SocketWay>,

    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
}

/// Returns the host with this name, which is added if it is not there.
fn named<'a>(hosts: &'a mut Vec<NvmeHost>, nqn: &str) -> &'a mut NvmeHost {
    let at = hosts.iter().position(|host| host.nqn == nqn).unwrap_or_else(|| {
        hosts.push(NvmeHost { nqn: nqn.to_owned(), ..NvmeHost::default() });
        hosts.len() - 1
    });
    &mut hosts[at]
}

fn parse_key(text: &str) -> std::result::Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((nqn, file)) if !nqn.is_empty() && !file.is_empty() => {
            Ok((nqn.to_owned(), file.into()))
        }
        _ => Err("write NQN=FILE".into()),
    }
}

fn parse_disk(text: &str) -> std::result::Result<(String, DeviceSpec), String> {
    let (name, device) =
        text.split_once('=').ok_or("write NAME=DEVICE, such as data=ram:size=1GiB")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 20 || !name.chars().all(is_plain) || name.starts_with('.') {
        return Err(format!(
            "'{name}' is not a valid name of a disk: use up to 20 letters, digits, '-', '_' and '.', which the guest sees as its serial number"
        ));
    }
    let spec = DeviceSpec::parse(device).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), spec))
}

impl TargetCommand {
    pub(crate) fn run(mut self) -> Result<Exit> {
        let hang_up = Arc::new(AtomicBool::new(false));
        let interrupt = match &self.config {
            None => Interrupt::install()?,
            Some(_) => {
                signal_hook::flag::register(SIGHUP, hang_up.clone())
                    .map_err(|error| Failure::io(&error, "installing handlers for signals"))?;
                Interrupt::of(&[SIGINT, SIGTERM])?
            }
        };
        let mut systemd = Systemd::of_environment();
        let config = match &self.config {
            None => Config::default(),
            Some(file) => read(file)?.map_err(|faults| refused(file, &faults))?,
        };
        self.settle(config.settings);
        let reporter = Reporter::new(self.json);
        let events = Events::install(self.log.take().unwrap_or_default(), self.json);
        let workers = self.workers.unwrap_or(1).into();
        let options =
            TargetOptions { workers, poll: self.poll, sockets: self.sockets.unwrap_or_default() };
        let target = Arc::new(Target::new(options)?);
        target.pin(&self.cpus)?;
        let folder = self.folder.clone().unwrap_or_else(|| "/run/qpair".into());
        std::fs::create_dir_all(&folder).map_err(|error| Failure::io(&error, folder.display()))?;
        let manager = self.manager(folder, &target, &events)?;
        if let Some(file) = &self.config {
            manager.apply(&config.calls).map_err(|faults| refused(file, &faults))?;
        }
        let rpc = self.rpc.as_deref().map(|path| RpcServer::start(path, manager.clone()));
        let rpc = rpc.transpose()?;
        let metrics = self.metrics.as_ref().map(|address| {
            MetricsServer::start(address, &target, || adaptation::prometheus(&Adapted::here()))
        });
        let metrics = metrics.transpose()?;
        let addresses = (rpc.as_ref().map(RpcServer::path), metrics.as_ref());
        reporter.begin(&target, (addresses.0, addresses.1.map(MetricsServer::address)))?;
        systemd.ready("serving");
        while !interrupt.is_requested() {
            std::thread::sleep(LOOK_EVERY);
            target.look_after();
            manager.look_after();
            systemd.live();
            events.tell_of_left_out(Instant::now());
            if let Some(file) =
                self.config.as_ref().filter(|_| hang_up.swap(false, Ordering::Relaxed))
            {
                systemd.reloading();
                systemd.ready(match read_again(file, &manager, &events) {
                    Ok(ConfigChange { made, undone }) => {
                        info!(name: "configured", target: LOG, made, undone, "the configuration was read again");
                        "serving"
                    }
                    Err(faults) => {
                        tell_of_faults(file, &faults);
                        "serving; the configuration was refused"
                    }
                });
            }
        }
        systemd.stopping();
        events.tell_of_left_out(Instant::now() + Duration::from_secs(3600));
        reporter.end(&target)?;
        drop(metrics);
        drop(rpc);
        drop(manager);
        drop(target);
        // An interrupt is the normal end of this command.
        Ok(Exit::Done)
    }

    /// Takes what the file says where the command line says nothing.
    fn settle(&mut self, file: Settings) {
        let Settings { folder, rpc, metrics, workers, cpus, poll, sockets, buffered, log } = file;
        self.folder = self.folder.take().or(folder);
        self.rpc = self.rpc.take().or(rpc);
        self.metrics = self.metrics.take().or(metrics);
        self.workers = self.workers.or(workers);
        if self.cpus.is_empty() {
            self.cpus = cpus.unwrap_or_default();
        }
        self.poll |= poll.unwrap_or(false);
        self.sockets = self.sockets.or(sockets);
        self.files.buffered |= buffered.unwrap_or(false);
        self.log = self.log.take().or(log);
    }

    /// Makes the manager of the target: it has the disks of the command line, and has made the
    /// calls of a saved configuration.
    fn manager(
        &self,
        folder: PathBuf,
        target: &Arc<Target>,
        events: &Arc<Events>,
    ) -> Result<Arc<Manager>> {
        let (io, direct) = (self.files.io, !self.files.buffered);
        let open: OpenFile = Box::new(move |path, kind, read_only| {
            let interface = match kind {
                "aio" => Interface::Libaio,
                _ => Interface::IoUring,
            };
            let mode = if io.interface == interface { io } else { Mode::new(interface) };
            let file = FileOptions { read_only, direct, ..FileOptions::new(path) };
            Ok(Arc::new(qpair_kernel::open(&file, mode)?) as Arc<dyn BlockDevice>)
        });
        let version = env!("CARGO_PKG_VERSION");
        let manager = Manager::new(target.clone(), open, folder, version);
        manager.log_with(events.clone());
        manager.attach_with(attach::attach(&self.files.drivers));
        let mut carved = HashMap::new();
        for (name, spec) in &self.disk {
            let device = self.open_disk(spec, &mut carved)?;
            let options = BlkOptions { queues: self.queues, read_only: self.read_only };
            manager.add_disk(name, device, options)?;
        }
        if let Some(address) = &self.nbd {
            let names: Vec<String> = self.disk.iter().map(|(name, _)| name.clone()).collect();
            manager
                .serve_nbd(address, &names, self.read_only, self.tls_files().as_ref())
                .map_err(|what| Failure::new(Exit::Failed, what))?;
        }
        if let Some(address) = &self.nvme_tcp {
            let names: Vec<String> = self.disk.iter().map(|(name, _)| name.clone()).collect();
            let address = manager
                .serve_nvme_tcp(address, &self.nqn, &names, &self.hosts()?)
                .map_err(|what| Failure::new(Exit::Failed, what))?;
            info!(name: "listening", target: LOG, %address, nqn = self.nqn, "hosts of NVMe/TCP can connect");
        }
        if let Some(file) = &self.load {
            let wrong = |what: &dyn std::fmt::Display| {
                Failure::new(Exit::Failed, format!("{}: {what}", file.display()))
            };
            let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
            let config = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
            manager.load(&config).map_err(|error| wrong(&error))?;
        }
        Ok(manager)
    }

    /// Returns the hosts that may connect over NVMe/TCP.
    fn hosts(&self) -> Result<Vec<NvmeHost>> {
        let mut hosts: Vec<NvmeHost> = self
            .allow_host
            .iter()
            .map(|nqn| NvmeHost { nqn: nqn.clone(), ..NvmeHost::default() })
            .collect();
        for (nqn, file) in &self.dhchap_key {
            named(&mut hosts, nqn).key = Some(file.clone());
        }
        for (nqn, file) in &self.dhchap_ctrlr_key {
            let host = hosts.iter_mut().find(|host| host.nqn == *nqn && host.key.is_some());
            let Some(host) = host else {
                return Err(Failure::usage(format!(
                    "--dhchap-ctrlr-key {nqn} has no --dhchap-key"
                )));
            };
            host.controller_key = Some(file.clone());
        }
        for (nqn, file) in &self.tls_psk {
            named(&mut hosts, nqn).psk = Some(file.clone());
        }
        let without = hosts.iter().find(|host| host.psk.is_none());
        if let (false, Some(host)) = (self.tls_psk.is_empty(), without) {
            return Err(Failure::usage(format!(
                "the host {} has no --tls-psk, so it could not connect beside those that have one",
                host.nqn
            )));
        }
        Ok(hosts)
    }

    fn tls_files(&self) -> Option<TlsFiles> {
        let (certificate, key) = self.tls_certificate.clone().zip(self.tls_key.clone())?;
        Some(TlsFiles { certificate, key, client_ca: self.tls_client_ca.clone() })
    }

    /// Opens the device of a disk. Disks that are slices of one device share it.
    fn open_disk(
        &self,
        spec: &DeviceSpec,
        carved: &mut HashMap<String, (Arc<dyn BlockDevice>, HashSet<String>)>,
    ) -> Result<Arc<dyn BlockDevice>> {
        let DeviceSpec::Carved { name, inner } = spec else { return self.open(spec) };
        let (device, given) = match carved.entry(inner.to_string()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert((self.open(inner)?, HashSet::new())),
        };
        if !given.insert(name.clone()) {
            return Err(Failure::usage(format!("{spec} is given for two disks")));
        }
        Ok(Arc::new(open_slice(device, name)?))
    }

    fn open(&self, spec: &DeviceSpec) -> Result<Arc<dyn BlockDevice>> {
        // A target that was killed a moment ago may still have it.
        let until = Instant::now() + PREDECESSOR;
        loop {
            match self.files.open(spec, self.read_only) {
                Err(error) if error.kind() == ErrorKind::Busy && Instant::now() < until => {
                    std::thread::sleep(LOOK_EVERY);
                }
                other => return Ok(other?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_names() {
        let (name, spec) = parse_disk("a-1=ram:size=1MiB").unwrap();
        assert_eq!((name.as_str(), spec.to_string()), ("a-1", "ram:size=1MiB".to_owned()));
        for wrong in
            ["ram:", "=ram:size=1MiB", "a/b=x", "..=x", "012345678901234567890=x", "a=odd:x"]
        {
            assert!(parse_disk(wrong).is_err(), "{wrong}");
        }
    }
}
