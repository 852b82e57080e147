//! `qpair advise`.

use std::path::{Path, PathBuf};

use clap::Args;
use qpair_study::{
    Advice, Choice, Effort, Lab, Mix, Options, Question, StudyReport, advise, find, run,
};

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::parse_size;
use crate::show::output::print_report;
use crate::show::text::count;
use crate::study::files::read_study;
use crate::study::lab::{DeviceArgs, Watch};

const BLOCK_MAX: u32 = 16 << 20;

/// Name the best interface for this machine, with measurements and what would change the answer
///
/// The answer comes from a stored study (--study). Without one, the command measures IOPS and
/// latency by queue depth, on one core and on two, for about a minute.
#[derive(Args, Debug)]
#[command(after_help = "\
The answer is a value for --interface of the other commands.

Examples:
  qpair advise --study study.json
  qpair advise --study study.json --cores 1 --qd 32
  qpair advise --device /dev/nvme0n1 --latency-us 200
  qpair advise --reads 70 --block 16KiB")]
pub(crate) struct Advise {
    /// Use the numbers of an earlier qpair study, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with = "devices")]
    study: Option<PathBuf>,

    #[command(flatten)]
    devices: DeviceArgs,

    /// Cores for all drives together [default: as many as in the study]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cores: Option<u32>,

    /// Requests in flight on a drive [default: the best number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    qd: Option<u32>,

    /// Limit of the 99th percentile of the latency, in microseconds [default: none]
    #[arg(long, value_name = "N", conflicts_with = "qd", value_parser = clap::value_parser!(u64).range(1..))]
    latency_us: Option<u64>,

    /// The drive has a file system: leave out interfaces that need the whole drive
    #[arg(long)]
    filesystem: bool,

    /// Percentage of reads; the other requests are writes
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u8).range(..=100))]
    reads: u8,

    /// Size of a request
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_size)]
    block: u64,

    /// Write to the given devices, to measure writes: their content is DESTROYED
    #[arg(long, requires = "devices")]
    allow_writes: bool,

    /// Keep the answer for the drive of this file or device: auto begins with it there from now on
    #[arg(long, value_name = "PATH")]
    keep: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The time of a measurement in seconds.
const BUDGET_S: f64 = 60.0;

impl Advise {
    pub(crate) fn run(self) -> Result<Exit> {
        self.check()?;
        let study = match &self.study {
            Some(path) => read_study(path)?,
            None => match self.measure()? {
                Some(study) => study,
                None => return Ok(Exit::Interrupted),
            },
        };
        if let Some(cores) = self.cores.filter(|cores| *cores > study.cores) {
            let what = format!("--cores {cores} is too large: the study had {}", study.cores);
            return Err(Failure::usage(what)
                .hint("what was not measured is not advised; run it where there are so many"));
        }
        let question = Question {
            cores: self.cores,
            depth: self.qd,
            latency_us_max: self.latency_us.map(|us| us as f64),
            filesystem: self.filesystem,
            mix: self.mix()?,
        };
        let advice = advise(&study, &question);
        let kept = match (&self.keep, &advice.choice) {
            (Some(path), Some(choice)) => Some(keep(path, choice, study.begun_s)),
            _ => None,
        };
        print_report(self.json, &advice, || {
            let path = kept.as_ref().and_then(|kept| kept.as_ref().ok());
            let kept = path.map(|path| format!("kept in {}", path.display()));
            lines(&advice).into_iter().chain(kept).collect()
        })?;
        kept.transpose()?;
        Ok(if advice.choice.is_some() { Exit::Done } else { Exit::Negative })
    }

    /// Refuses options that cannot be measured, before the measurement begins.
    fn check(&self) -> Result<()> {
        if let Some(device) = &self.keep {
            qpair_kernel::check_advice_device(device)?;
        }
        let there = qpair_study::cpus()?.len();
        if let Some(cores) =
            self.cores.filter(|cores| self.study.is_none() && *cores as usize > there)
        {
            let what = format!("--cores {cores} is too large: {there} may be used here");
            return Err(Failure::usage(what).hint("run it where there are so many"));
        }
        let writes = self.reads < 100 && self.study.is_none();
        if writes && !self.allow_writes && !self.devices.devices.is_empty() {
            let what = "--reads: measuring writes destroys the content of the given devices";
            return Err(Failure::usage(what)
                .hint("give --allow-writes, or leave --device out to measure a new file"));
        }
        self.mix().map(|_| ())
    }

    fn mix(&self) -> Result<Mix> {
        let block_bytes = u32::try_from(self.block)
            .ok()
            .filter(|bytes| (512..=BLOCK_MAX).contains(bytes) && bytes.is_multiple_of(512));
        let block_bytes = block_bytes.ok_or_else(|| {
            Failure::usage(format!(
                "--block {} is not valid: give a multiple of 512, up to 16 MiB",
                self.block
            ))
        })?;
        Ok(Mix { read_percent: self.reads, block_bytes })
    }

    /// Returns the measured report, or `None` if the measurement was interrupted.
    fn measure(&self) -> Result<Option<StudyReport>> {
        let interrupt = Interrupt::install()?;
        let watch = Watch::new(interrupt.clone());
        let experiment = find("s1-fig2").ok_or_else(|| {
            Failure::new(Exit::Failed, "experiment s1-fig2 is missing, which is a bug in qpair")
        })?;
        let options = Options {
            experiments: vec![experiment],
            repeat: None,
            // The blocks of runs are spread over this time; one question is not worth five minutes.
            budget_s: Some(BUDGET_S),
            seconds_per_point: None,
            seed: 1,
        };
        let outcome =
            self.devices.lab(Effort::Usual, self.allow_writes, &watch).and_then(|(lab, own)| {
                let lab = Lab { mix: self.mix()?, ..lab };
                let report = run(&lab, &options, &watch, None);
                drop(own);
                Ok(report?)
            });
        watch.end();
        if interrupt.is_requested() {
            eprintln!("qpair: interrupted; what was made for measuring is removed");
            return Ok(None);
        }
        outcome.map(Some)
    }
}

/// Keeps a choice for the drive of a file or device.
fn keep(device: &Path, choice: &Choice, begun_s: u64) -> Result<PathBuf> {
    let mode = choice.interface.parse()?;
    let why = format!(
        "a study at {begun_s} s since 1970 measured {} IOPS at depth {}",
        count(choice.ios_per_s as u64),
        choice.depth
    );
    Ok(qpair_kernel::keep_advice(device, &mode, &why)?)
}

fn lines(advice: &Advice) -> Vec<String> {
    let mut lines = Vec::new();
    match &advice.choice {
        Some(choice) => {
            lines.push(format!("use {}", choice.interface));
            lines.push(format!("    measured: {}", measured(choice)));
        }
        None => lines.push("no advice".to_owned()),
    }
    lines.extend(advice.reasons.iter().map(|text| format!("    because: {text}")));
    lines.extend(advice.warnings.iter().map(|text| format!("    beware: {text}")));
    if !advice.others.is_empty() {
        lines.push("the others".to_owned());
        for other in &advice.others {
            lines.push(format!("    {}: {}", other.interface, measured(other)));
        }
    }
    if !advice.changes.is_empty() {
        lines.push("what would change the answer".to_owned());
        lines.extend(advice.changes.iter().map(|text| format!("    {text}")));
    }
    lines
}

fn measured(choice: &Choice) -> String {
    let interval = choice.ios_per_s_interval.map_or_else(String::new, |(low, high)| {
        format!(" [{} to {}]", count(low as u64), count(high as u64))
    });
    format!(
        "{} IOPS{interval} at queue depth {} on {} core{}, p50 {:.0} us, p99 {:.0} us, {:.1} us of processor time each",
        count(choice.ios_per_s as u64),
        choice.depth,
        choice.cores,
        if choice.cores == 1 { "" } else { "s" },
        choice.p50_us,
        choice.p99_us,
        choice.cpu_us_per_io
    )
}
