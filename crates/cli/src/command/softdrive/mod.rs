//! `qpair softdrive`: NVMe drives made of software, for other programs.

mod report;
mod sockets;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use qpair_softdev::{SoftNvme, SoftNvmeOptions};
use qpair_vfio_user::{Host, Idle, Server, ServerOptions};
use rustix::thread::{CpuSet, sched_setaffinity};
use signal_hook::consts::SIGUSR1;

use crate::command::bench::parse_seconds;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::store_args::parse_size;
use report::Reporter;
use sockets::Sockets;

/// How often drivers that came and went are looked for, and Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Serve NVMe drives made of software to this program, SPDK or QEMU
#[derive(Args, Debug)]
#[command(after_help = "\
The drives are complete NVMe controllers behind sockets (vfio-user). A driver maps their doorbells and they map its \
memory; after that the sockets are silent. One thread serves all of them: give it a core. Ctrl-C ends it and removes \
the sockets. SIGUSR1 lets the power of all drives fail and come back.

--socket PATH with one drive: the socket; if PATH is a folder, PATH/cntrl, which is where SPDK looks. With --drives N: \
PATH.1 to PATH.N; if PATH is a folder, PATH/1/cntrl to PATH/N/cntrl.

Profiles: none (no delays), tlc, qlc (with an SLC cache that runs out), optane; each option of one can be changed: \
--profile tlc,read_us=80,dies=8.

Examples:
  qpair softdrive --socket /run/soft.sock
  qpair bench io --filename nvme:vfio-user:/run/soft.sock --rw randread --iodepth 32 --runtime 5

  qpair softdrive --socket /run/soft.sock --size 4GiB --size 64MiB --block 4096 --block 512
  qpair softdrive --socket /run/drives --drives 4 --null --cpu 3 --idle poll
  qpair softdrive --socket /run/soft.sock --file drive.img --size 10GiB --profile qlc
  qpair softdrive --socket /run/soft.sock --fault seed=7,read_error_rate=0.001,remove_after=50000")]
pub(crate) struct SoftDrive {
    /// Where drivers connect
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,

    /// Bytes of a namespace; several times: several namespaces [default: 1GiB, or the file's size]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Vec<u64>,

    /// Bytes of a logical block; once for all namespaces, or once for each [default: 512]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    block: Vec<u64>,

    /// Keep the blocks in a file or block device, not in memory; once for each namespace
    #[arg(long, value_name = "PATH", conflicts_with = "null")]
    file: Vec<PathBuf>,

    /// Keep no blocks: writes are forgotten, reads leave the driver's memory as it was
    #[arg(long)]
    null: bool,

    /// Drives, all alike; with --file, drive N keeps its blocks in PATH.N
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    drives: u16,

    /// How long commands take: none, tlc, qlc, optane, with options after it
    #[arg(long, value_name = "NAME[,OPTION=VALUE]...")]
    profile: Option<String>,

    /// What goes wrong, and how often
    #[arg(long, value_name = "OPTION=VALUE[,...]")]
    fault: Option<String>,

    /// Lose writes that were not flushed when the power fails
    #[arg(long)]
    volatile_cache: bool,

    /// Pairs of I/O queues of a drive
    #[arg(long, value_name = "N")]
    queues: Option<u16>,

    /// Let drivers not map the doorbells: each is a message over the socket
    #[arg(long)]
    trap_doorbells: bool,

    /// The processor that serves
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,

    /// While there is nothing to do: poll (look again at once), or nap=TIME (nap, at most so many microseconds)
    #[arg(long, value_name = "HOW", default_value = "nap=1000", value_parser = parse_idle)]
    idle: Idle,

    /// Send a driver away that has done nothing for so many seconds, so that another one can come [default: never]
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    idle_timeout: Option<f64>,

    /// Say what the drives did, every so many seconds
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    status: Option<f64>,

    /// Print a JSON object for each thing that happens, one a line
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
        let interrupt = Interrupt::install()?;
        let power = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGUSR1, power.clone())
            .map_err(|error| Failure::io(&error, "taking over SIGUSR1"))?;
        if let Some(cpu) = self.cpu {
            pin(cpu)?;
        }
        let options = ServerOptions {
            mapped: !self.trap_doorbells,
            idle_timeout: self.idle_timeout.map(Duration::from_secs_f64),
            ..ServerOptions::default()
        };
        let sockets = Sockets::prepare(&self.socket, self.drives)?;
        let mut drives = Vec::new();
        for (number, path) in (1..).zip(sockets.paths()) {
            let drive = SoftNvme::new(self.options_of(number)?)?;
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
                for (drive, _) in host.drives() {
                    drive.power_cut(cuts);
                    drive.insert();
                }
                reporter.power_cut()?;
            }
            reporter.look(&mut host, Instant::now())?;
        }
        reporter.end(&mut host)?;
        // A request to end is how this command ends.
        Ok(Exit::Done)
    }

    /// Of drive `number`, from 1.
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
        let mut quoted = "file:".to_owned();
        for c in path.chars() {
            if matches!(c, ',' | '+' | '\\') {
                quoted.push('\\');
            }
            quoted.push(c);
        }
        quoted
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
