//! `qpair softdrive`: drives made of software, for other programs.

mod model;
mod report;
mod sockets;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use qpair_block::keys::quote;
use qpair_softdev::hba::{DiskOptions, DiskProfile};
use qpair_softdev::{MediumOptions, SoftHba, SoftHbaOptions, SoftNvme, SoftNvmeOptions};
use qpair_vfio_user::{Host, Idle, Server, ServerOptions};
use rustix::thread::{CpuSet, sched_setaffinity};
use signal_hook::consts::{SIGUSR1, SIGUSR2};

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::{parse_seconds, parse_size};
use model::Model;
use report::Reporter;
use sockets::Sockets;

/// The interval at which clients and interrupts are checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const NVME_DRIVES_MAX: u16 = 64;

/// Emulate NVMe drives or SAS disks for this program, SPDK or QEMU
#[derive(Args, Debug)]
#[command(after_help = "\
The drives are complete NVMe controllers behind vfio-user sockets. One thread serves all drives: give it a core. \
Ctrl-C ends the program and removes the sockets. SIGUSR1 simulates a power failure and restart of all drives.

With one drive, --socket PATH is the socket; if PATH is a folder, PATH/cntrl, as SPDK expects. With --drives N, the \
sockets are PATH.1 to PATH.N; in a folder, PATH/1/cntrl to PATH/N/cntrl.

Profiles: none (no delays), tlc, qlc (with an SLC cache that runs out), optane, sas-ssd, and with --hba hdd (7200 \
rpm). Options may follow, but not with --hba: --profile tlc,read_us=80,dies=8.

With --hba the program serves one SAS host bus adapter (MPI 2.5, or --mpi 2.6) with --drives N disks behind it. Each \
request is then a message over the socket. SIGUSR2 removes the last disk, or inserts it again.

Examples:
  qpair softdrive --socket /run/soft.sock
  qpair bench io --filename nvme:vfio-user:/run/soft.sock --rw randread --iodepth 32 --runtime 5

  qpair softdrive --socket /run/soft.sock --size 4GiB --size 64MiB --block 4096 --block 512
  qpair softdrive --socket /run/drives --drives 4 --null --cpu 3 --idle poll
  qpair softdrive --socket /run/soft.sock --file drive.img --size 10GiB --profile qlc
  qpair softdrive --socket /run/hba.sock --hba --drives 2 --size 256MiB
  qpair softdrive --socket /run/soft.sock --fault seed=7,read_error_rate=0.001,remove_after=50000")]
pub(crate) struct SoftDrive {
    /// Socket, or folder of the sockets, for drivers to connect to
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,

    /// Bytes of a namespace; repeat for several namespaces [default: 1GiB, or the file's size]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Vec<u64>,

    /// Bytes of a logical block; once for all namespaces, or once for each [default: 512]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    block: Vec<u64>,

    /// Keep the blocks in a file or block device, not in memory; one for each namespace, or with
    /// --hba for each disk
    #[arg(long, value_name = "PATH", conflicts_with = "null")]
    file: Vec<PathBuf>,

    /// Keep no blocks: writes are discarded, and reads do not change the driver's memory
    #[arg(long)]
    null: bool,

    /// Serve one SAS host bus adapter with the drives as its disks
    #[arg(long, conflicts_with_all = ["fault", "trap_doorbells"])]
    hba: bool,

    /// Report what a driver does against the rules of the interface
    #[arg(long, requires = "hba")]
    strict: bool,

    /// Write the driver's register accesses, requests and frames to a file
    #[arg(long, requires = "hba", value_name = "FILE")]
    transcript: Option<PathBuf>,

    /// Protocol of the host bus adapter: MPI 2.5, as a SAS3008, or 2.6, as a 9500-8e
    #[arg(long, requires = "hba", value_name = "VERSION", value_parser = ["2.5", "2.6"], default_value = "2.5")]
    mpi: String,

    /// Connect the disks of the host bus adapter through two levels of expanders
    #[arg(long, requires = "hba")]
    expanders: bool,

    /// Identical drives, at most 64 (1024 with --expanders); with --file, drive N keeps its blocks
    /// in PATH.N
    #[arg(long, visible_alias = "disks", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    drives: u16,

    /// Latency profile: none, tlc, qlc, optane, sas-ssd (with --hba also hdd), then its options
    #[arg(long, value_name = "NAME[,OPTION=VALUE]...")]
    profile: Option<String>,

    /// Faults to inject, with their rates
    #[arg(long, value_name = "OPTION=VALUE[,...]")]
    fault: Option<String>,

    /// Lose unflushed writes when the power fails
    #[arg(long)]
    volatile_cache: bool,

    /// I/O queue pairs of a drive; with --hba, reply queues of the host bus adapter
    #[arg(long, value_name = "N")]
    queues: Option<u16>,

    /// Forbid drivers to map the doorbells: each doorbell is a message over the socket
    #[arg(long)]
    trap_doorbells: bool,

    /// Processor for the serving thread
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,

    /// When idle: poll (look again at once), or nap=TIME (sleep, at most TIME microseconds)
    #[arg(long, value_name = "HOW", default_value = "nap=1000", value_parser = parse_idle)]
    idle: Idle,

    /// Disconnect a driver after this many idle seconds, to admit another [default: never]
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    idle_timeout: Option<f64>,

    /// Seconds between reports on the activity of the drives [default: no reports]
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    status: Option<f64>,

    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
}

fn parse_idle(text: &str) -> std::result::Result<Idle, String> {
    if text == "poll" {
        return Ok(Idle::Poll);
    }
    let us = text.strip_prefix("nap=").and_then(|us| us.parse().ok()).filter(|us| *us >= 1);
    us.map(|us| Idle::Nap(Duration::from_micros(us)))
        .ok_or_else(|| "write poll, or nap=1000 for at most 1000 microseconds".to_owned())
}

impl SoftDrive {
    pub(crate) fn run(self) -> Result<Exit> {
        if self.hba {
            let options = self.hba_options()?;
            return self.serve(1, |_| Ok(SoftHba::new(options.clone())?));
        }
        if self.drives > NVME_DRIVES_MAX {
            return Err(Failure::usage(format!("--drives {} is too large", self.drives))
                .hint(format!("one process serves at most {NVME_DRIVES_MAX} NVMe drives")));
        }
        self.serve(self.drives, |number| Ok(SoftNvme::new(self.options_of(number)?)?))
    }

    fn serve<D: Model + 'static>(
        &self,
        count: u16,
        make: impl Fn(u16) -> Result<Arc<D>>,
    ) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let (power, plug) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for (signal, name, flag) in [(SIGUSR1, "SIGUSR1", &power), (SIGUSR2, "SIGUSR2", &plug)] {
            signal_hook::flag::register(signal, flag.clone()).map_err(|error| {
                Failure::io(&error, format_args!("installing a handler for {name}"))
            })?;
        }
        if let Some(cpu) = self.cpu {
            pin(cpu)?;
        }
        let options = ServerOptions {
            mapped: !self.trap_doorbells,
            idle_timeout: self.idle_timeout.map(Duration::from_secs_f64),
            ..ServerOptions::default()
        };
        let sockets = Sockets::prepare(&self.socket, count)?;
        let mut drives = Vec::new();
        for (number, path) in (1..).zip(sockets.paths()) {
            let drive = make(number)?;
            drives.push((drive.clone(), Server::bind(path, drive, options.clone())?));
        }
        let mut host = Host::new(drives, self.idle);
        let mut reporter = Reporter::new(self.json, self.status);
        reporter.begin(&mut host)?;
        let mut cuts = 0;
        while !interrupt.is_requested() {
            host.run_for(LOOK_EVERY);
            if power.swap(false, Ordering::Relaxed) {
                cuts += 1;
                host.drives().iter().for_each(|(drive, _)| drive.power_cut(cuts));
                reporter.power_cut()?;
            }
            if plug.swap(false, Ordering::Relaxed) {
                for (drive, _) in host.drives() {
                    if let Some(what) = drive.pull_or_plug() {
                        reporter.plugged(what)?;
                    }
                }
            }
            reporter.look(&mut host, Instant::now())?;
        }
        reporter.end(&mut host)?;
        // An interrupt is the normal end of this command.
        Ok(Exit::Done)
    }

    /// Returns the options of a host bus adapter. Its disks are all alike, or there is one for each
    /// size.
    fn hba_options(&self) -> Result<SoftHbaOptions> {
        let mut options = SoftHbaOptions::default();
        let profile = match &self.profile {
            Some(name) => DiskProfile::named(name)?,
            None => DiskProfile::default(),
        };
        let count = usize::from(self.drives).max(self.size.len()).max(self.file.len());
        if !self.file.is_empty() && self.file.len() != count {
            return Err(Failure::usage(format!(
                "{} files are given for {count} disks",
                self.file.len()
            ))
            .hint("give --file once for each disk"));
        }
        let of = |values: &[u64], number: usize| values.get(number).or(values.first()).copied();
        let disk = |number: usize| {
            let mut disk = DiskOptions::default();
            if let Some(path) = self.file.get(number) {
                disk.medium = MediumOptions::File(path.clone());
                // Zero stands for the size of the file.
                disk.size_bytes = 0;
            }
            if let Some(bytes) = of(&self.size, number) {
                disk.size_bytes = bytes;
            }
            if let Some(bytes) = of(&self.block, number) {
                disk.logical_block_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            }
            if self.null {
                disk.medium = MediumOptions::Null;
            }
            disk.profile = profile;
            disk
        };
        options.disks = (0..count).map(disk).collect();
        if let Some(queues) = self.queues {
            options.queues = u8::try_from(queues).unwrap_or(u8::MAX);
        }
        options.has_expanders = self.expanders;
        options.is_later = self.mpi == "2.6";
        options.volatile_write_cache = self.volatile_cache;
        options.strict = self.strict;
        options.transcript.clone_from(&self.transcript);
        Ok(options)
    }

    fn options_of(&self, number: u16) -> Result<SoftNvmeOptions> {
        let list = |values: &[u64]| values.iter().map(u64::to_string).collect::<Vec<_>>().join("+");
        let mut words = Vec::new();
        if !self.size.is_empty() {
            words.push(format!("size={}", list(&self.size)));
        }
        if !self.block.is_empty() {
            words.push(format!("block={}", list(&self.block)));
        }
        if self.null {
            words.push("medium=null".to_owned());
        } else if !self.file.is_empty() {
            let files: Vec<String> =
                self.file.iter().map(|path| self.medium(path, number)).collect();
            words.push(format!("medium={}", files.join("+")));
        }
        if let Some(queues) = self.queues {
            words.push(format!("queues={queues}"));
        }
        if self.volatile_cache {
            words.push("cache=on".to_owned());
        }
        words.extend(self.profile.as_ref().map(|profile| format!("profile={profile}")));
        words.extend(self.fault.clone());
        Ok(SoftNvmeOptions::parse(&words.join(","))?)
    }

    fn medium(&self, path: &std::path::Path, number: u16) -> String {
        let mut path = path.to_string_lossy().into_owned();
        if self.drives > 1 {
            path.push_str(&format!(".{number}"));
        }
        format!("file:{}", quote(&path))
    }
}

fn pin(cpu: u32) -> Result<()> {
    let mut set = CpuSet::new();
    if (cpu as usize) < CpuSet::MAX_CPU {
        set.set(cpu as usize);
    }
    sched_setaffinity(None, &set).map_err(|errno| {
        Failure::io(&errno.into(), format_args!("running on processor {cpu}"))
            .hint("lscpu lists the processors; taskset -p $$ those that this shell may use")
    })
}
