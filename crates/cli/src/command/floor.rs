//! `qpair floor`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use qpair_block::DeviceSpec;
use qpair_drivers::recover;
use qpair_floor::{
    KernelDrive, Load, Options, Report, Which, Workload, build, paper, paper_names, run, table,
    to_html,
};
use qpair_pci::sysfs::PciAddress;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::parse::number::{parse_count, parse_seconds};
use crate::show::output::{Output, print, say};
use crate::show::text::utc;
use crate::study::files::{check_out_file, write};
use crate::study::lab::Watch;

/// Measure a drive's own speed, and the cost of each layer above it
///
/// The floor is the drive's own speed: commands built before the run, one doorbell for each I/O,
/// polled completions. For a DEVICE of the kernel's driver, a kernel module measures it; this
/// program's driver (if there is VFIO), its io_uring path and fio (if installed) follow in turns.
/// With --user, only this program's driver measures.
#[derive(Args, Debug)]
#[command(after_help = "\
The report gives each gap in microseconds, in percent of the floor, and in percent of the path's own latency. The \
drive is only read, unless --allow-writes is given.

A DEVICE needs root and the kernel's headers. Nothing on it may be in use: its block devices disappear and come back \
during the run; for a SAS disk, so do those of all disks behind its controller, which all must be free. The drive returns to its driver at \
the end, also after Ctrl-C. After kill -9, run qpair floor --recover, or restart the machine. The module, hwperf, is \
loaded for the run only.

Workloads: randread, randwrite (4 KiB), read128k, write128k, read256k, write256k (sequential). The default is all \
that read; with --allow-writes, all.

Examples:
  sudo qpair floor /dev/nvme0n1
  sudo qpair floor 0000:3b:00.0 --paper table2 --out floor.html
  sudo qpair floor --recover
  qpair floor --build hwperf --headers /usr/src/linux-headers-6.12   the module only, for another machine
  sudo qpair floor /dev/sdb --without-module --paper table3   a SAS disk, the kernel's stack and this program's
  qpair floor --user softnvme:size=1GiB,mdts=6
  qpair floor --user nvme:0000:3b:00.0 --rw randread --iodepth 1,4,16,64
  qpair floor --user nvme:0000:3b:00.0 --rw randwrite --allow-writes --json")]
pub(crate) struct Floor {
    /// A drive of the kernel's driver: /dev/nvme0n1, a SAS disk such as /dev/sdb, or the
    /// controller's address
    #[arg(value_name = "DEVICE", required_unless_present_any = ["user", "recover", "build"])]
    device: Option<String>,

    /// Measure a drive of this program's driver: nvme:ADDRESS or scsi:ADDRESS/N (see qpair nvme
    /// bind), or softnvme:size=1GiB
    #[arg(long, value_name = "SPEC", conflicts_with = "device")]
    user: Option<DeviceSpec>,

    /// Return the drives of a killed program to their driver: the drive at the address DEVICE, or
    /// all
    #[arg(long, conflicts_with = "user")]
    recover: bool,

    /// Build the module into a folder, and do nothing else
    #[arg(long, value_name = "DIR", conflicts_with_all = ["device", "user", "recover"])]
    build: Option<PathBuf>,

    /// Kernel headers for the module [default: those of the running kernel]
    #[arg(long, value_name = "DIR", conflicts_with = "user")]
    headers: Option<PathBuf>,

    /// Use this module, built earlier
    #[arg(long, value_name = "FILE", conflicts_with_all = ["user", "build", "headers"])]
    module: Option<PathBuf>,

    /// Leave out the kernel module: the floor is that of this program's driver, which needs VFIO
    #[arg(long, conflicts_with_all = ["user", "build", "headers", "module"])]
    without_module: bool,

    /// Workloads, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_workload)]
    rw: Vec<Workload>,

    /// I/Os in flight per job, separated by commas
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,32", value_parser = parse_count::<u32, DEPTH_MAX>)]
    iodepth: Vec<u32>,

    /// Jobs: threads, each with a queue pair of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_count::<u32, JOBS_MAX>)]
    numjobs: u32,

    /// Use a paper's loads and times: table2 (depth 1, 30 s) or table3 (depths 1 to 64, 1 to 16
    /// jobs, 300 s)
    #[arg(long, value_name = "NAME", value_parser = parse_paper, conflicts_with_all = ["rw", "iodepth", "numjobs"])]
    paper: Option<&'static str>,

    /// Write to the drive: its content is DESTROYED
    #[arg(long)]
    allow_writes: bool,

    /// Seconds of each turn [default: 0.5, or the paper's]
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    seconds: Option<f64>,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse_count::<u32, ROUNDS_MAX>)]
    repeat: u32,

    /// Seed of the random offsets
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const DEPTH_MAX: u64 = 65_535;
const JOBS_MAX: u64 = 1024;
const ROUNDS_MAX: u64 = 10_000;

fn parse_workload(name: &str) -> std::result::Result<Workload, String> {
    let names = || Workload::ALL.map(|(name, _)| name).join(", ");
    Workload::named(name).ok_or_else(|| format!("choose one of {}", names()))
}

fn parse_paper(name: &str) -> std::result::Result<&'static str, String> {
    let known = paper_names().iter().find(|known| **known == name).copied();
    known.ok_or_else(|| format!("choose one of {}", paper_names().join(", ")))
}

impl Floor {
    pub(crate) fn run(self) -> Result<Exit> {
        if let Some(folder) = &self.build {
            let file = build(folder, self.headers.as_deref())?;
            say(file.display().to_string())?;
            return Ok(Exit::Done);
        }
        if self.recover {
            return give_back(self.device.as_deref());
        }
        if let Some(out) = &self.out {
            check_out_file(out)?;
        }
        let options = self.options()?;
        let interrupt = Interrupt::install()?;
        let watch = Watch::new(interrupt.clone());
        if self.allow_writes && options.loads.iter().any(|load| load.workload.write) {
            let name = options.drive.name();
            eprintln!("qpair: writing to {name}: its content is destroyed");
        }
        let outcome = run(&options, &watch);
        watch.end();
        let report = outcome?;
        self.print(&report)?;
        if report.interrupted {
            return interrupted("whole rounds were kept");
        }
        Ok(Exit::Done)
    }

    fn options(&self) -> Result<Options> {
        let drive = match (&self.user, &self.device) {
            (Some(spec), _) => Which::User(spec.clone()),
            (None, Some(name)) => Which::Kernel(KernelDrive {
                name: name.clone(),
                without_module: self.without_module,
                module: self.module.clone(),
                headers: self.headers.clone(),
            }),
            (None, None) => return Err(Failure::usage("no device is given")),
        };
        let (time, mut loads) = match self.paper.and_then(paper) {
            Some((time, loads)) => (time, loads),
            None => (Duration::from_millis(500), self.loads()),
        };
        // A paper's settings and the defaults are reduced to the permitted workloads. Workloads
        // that the user named are run or refused.
        if self.rw.is_empty() {
            loads.retain(|load| self.allow_writes || !load.workload.write);
        }
        Ok(Options {
            drive,
            drivers: crate::interrupt::drivers(),
            loads,
            time: self.seconds.map_or(time, Duration::from_secs_f64),
            repeat: self.repeat,
            seed: self.seed,
            allow_writes: self.allow_writes,
        })
    }

    fn loads(&self) -> Vec<Load> {
        let workloads = match &self.rw[..] {
            [] => Workload::ALL.iter().map(|(_, workload)| *workload).collect(),
            chosen => chosen.to_vec(),
        };
        let of = |workload| {
            self.iodepth.iter().map(move |depth| Load {
                workload,
                depth: *depth,
                jobs: self.numjobs,
            })
        };
        workloads.into_iter().flat_map(of).collect()
    }

    fn print(&self, report: &Report) -> Result<()> {
        let mut out = Output::new();
        if self.json {
            out.line(report.to_json()?)?;
        } else {
            for line in table(report) {
                out.line(line)?;
            }
        }
        if let Some(path) = &self.out {
            write(path, &to_html(report, &utc(report.begun_s))?)?;
            if !self.json {
                out.line(format!("\nplots: {}", path.display()))?;
            }
        }
        out.finish()
    }
}

fn give_back(which: Option<&str>) -> Result<Exit> {
    let which = which.map(str::parse::<PciAddress>).transpose()?;
    let done = recover(which)?;
    if done.is_empty() {
        say("nothing was taken, or all was given back")?;
    }
    let line = |(address, driver)| format!("{address} is with the kernel's driver {driver} again");
    print(done.into_iter().map(line))?;
    Ok(Exit::Done)
}
