//! `qpair study`.

mod diff;
mod list;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use qpair_study::{
    Effort, Experiment, Lent, Options, StudyReport, experiments, run, to_html, to_text,
};

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::{parse_seconds, parse_time};
use crate::show::output::{print, say};
use crate::show::text::utc;
use crate::study::files::{check_out_file, read_study, same_file, write};
use crate::study::lab::{DeviceArgs, Watch};
use crate::study::outside::Runner;
use crate::study::place::refuse;

/// Repeat the papers' experiments on this machine, and report the best interface and why
///
/// The study measures every interface that works here, on its own file or the given devices. It
/// writes a report: whether the papers' findings hold on this machine, plots, and all numbers. It
/// takes about five minutes.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
The report is one self-contained HTML file; the numbers are beside it, in a .json file. Given devices are only read, \
unless --allow-writes is given; the storage engine's figures need it, since stores are made on them. With --rebind nothing on them may be in use: their block devices disappear and come \
back. The drives return to their driver at the end, also after Ctrl-C. After kill -9, run qpair floor --recover.

Examples:
  qpair study
  qpair study --dir /mnt/fast --full --out fast.html
  qpair study --device /dev/nvme0n1 --device /dev/nvme1n1
  qpair study --device /dev/nvme0n1 --device /dev/nvme1n1 --allow-writes
  sudo qpair study --device /dev/nvme0n1 --rebind
  qpair study --budget 10m
  qpair study --list
  qpair study --experiment s1-fig2 --experiment s3-fig3 --repeat 10 --seconds-per-point 1
  qpair study --render study.json --out again.html
  qpair study --against last-week.json
  qpair study diff before.json after.json"
)]
pub(crate) struct Study {
    #[command(subcommand)]
    what: Option<What>,

    /// File of the report; the numbers go beside it
    #[arg(long, value_name = "FILE", default_value = "study.html")]
    out: PathBuf,

    #[command(flatten)]
    devices: DeviceArgs,

    /// Write to the given devices: their content is DESTROYED
    #[arg(long, requires = "devices")]
    allow_writes: bool,

    /// Random reads a second that the data sheets of the given devices promise together
    #[arg(long, value_name = "N", requires = "devices", conflicts_with = "list")]
    data_sheet: Option<f64>,

    /// Measure this program's driver and the kernel's in one study; drives change between the two
    #[arg(long, requires = "devices", conflicts_with_all = ["list", "render"])]
    rebind: bool,

    /// Run this experiment only; may be repeated
    #[arg(long = "experiment", value_name = "NAME", value_parser = parse_experiment)]
    experiments: Vec<&'static Experiment>,

    /// List the experiments and findings, with what they show and need, and run nothing
    #[arg(long, conflicts_with = "render")]
    list: bool,

    /// Make fewer and shorter runs: about a minute, with wide confidence intervals
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Measure more points in more and longer runs, with writes that fill the drive's cache: about
    /// an hour
    #[arg(long)]
    full: bool,

    /// Rounds of all points and comparisons [default: planned from the measured spread]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,

    /// Time over which comparisons are spread, and after which none begins, such as 90s [default:
    /// 5m]
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "repeat")]
    budget: Option<f64>,

    /// Seconds of each run [default: 0.2]
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    seconds_per_point: Option<f64>,

    /// Seed of the order of runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write the report from the numbers of an earlier study, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["devices", "experiments", "quick", "full"])]
    render: Option<PathBuf>,

    /// Numbers (.json) of an earlier study to compare with [default: those at --out that this study
    /// replaces, if they are of the same cores and devices]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "render"])]
    against: Option<PathBuf>,

    /// Print the numbers, or the list, as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    Diff(diff::StudyDiff),
}

fn parse_experiment(name: &str) -> std::result::Result<&'static Experiment, String> {
    qpair_study::find(name).ok_or_else(|| {
        let names: Vec<&str> = experiments().map(|experiment| experiment.name).collect();
        format!("choose one of {}", names.join(", "))
    })
}

impl Study {
    pub(crate) fn run(self) -> Result<Exit> {
        if let Some(What::Diff(diff)) = &self.what {
            return diff.run();
        }
        if self.list {
            let (effort, options) = (self.effort(), self.options());
            list::list(&self.devices, self.allow_writes, effort, &options, self.json)?;
            return Ok(Exit::Done);
        }
        let json_path = self.out.with_extension("json");
        self.check_out(&json_path)?;
        let report = match &self.render {
            Some(path) => read_study(path)?,
            None => {
                let against = self.against(&json_path)?;
                let Some(mut report) = self.measure()? else { return Ok(Exit::Interrupted) };
                if let Some(against) = against {
                    self.compare(&mut report, &against);
                }
                report
            }
        };
        let json = report.to_json()?;
        write(&self.out, &to_html(&report, &utc(report.begun_s))?)?;
        let told = if self.render.as_ref().is_some_and(|from| same_file(from, &json_path)) {
            format!("report: {}", self.out.display())
        } else {
            write(&json_path, &json)?;
            format!("report: {}, numbers: {}", self.out.display(), json_path.display())
        };
        match self.json {
            true => say(&json)?,
            false => print(to_text(&report).into_iter().chain([told]))?,
        }
        Ok(Exit::Done)
    }

    /// Reads the earlier study to compare with, if there is one.
    fn against(&self, json_path: &Path) -> Result<Option<StudyReport>> {
        match &self.against {
            Some(path) => read_study(path).map(Some),
            // A file at --out that is no study is replaced without a comparison.
            None => Ok(read_study(json_path).ok()),
        }
    }

    /// Compares the study with an earlier one. A study that cannot be compared is written all the
    /// same.
    fn compare(&self, report: &mut StudyReport, against: &StudyReport) {
        if let (Err(why), Some(path)) = (report.compare_with(against), &self.against) {
            eprintln!("qpair: --against {} is not compared: {why}", path.display());
        }
    }

    /// Checks the output paths before the measurement. No report may overwrite a measured device.
    fn check_out(&self, json_path: &Path) -> Result<()> {
        if self.out.extension().is_some_and(|ending| ending == "json") {
            return Err(Failure::usage("--out names the HTML report; the JSON goes beside it")
                .hint("write --out study.html"));
        }
        for path in [&self.out as &Path, json_path] {
            check_out_file(path)?;
            let is_it = |spec: &qpair_block::DeviceSpec| {
                spec.paths().into_iter().any(|device| same_file(device, path))
            };
            if self.devices.devices.iter().any(is_it) {
                let what = format!("--out {} is a device of the study", path.display());
                return Err(Failure::usage(what));
            }
        }
        Ok(())
    }

    fn effort(&self) -> Effort {
        match (self.quick, self.full) {
            (true, _) => Effort::Quick,
            (_, true) => Effort::Full,
            _ => Effort::Usual,
        }
    }

    fn options(&self) -> Options {
        let experiments = match &self.experiments[..] {
            [] => experiments().collect(),
            chosen => chosen.to_vec(),
        };
        Options {
            experiments,
            repeat: self.repeat,
            budget_s: self.budget,
            seconds_per_point: self.seconds_per_point,
            seed: self.seed,
        }
    }

    /// Measures, and returns the study; `None` if it was interrupted.
    fn measure(&self) -> Result<Option<StudyReport>> {
        let interrupt = Interrupt::install()?;
        let watch = Watch::new(interrupt.clone());
        let outcome = self.devices.lab(self.effort(), self.allow_writes, &watch).and_then(
            |(mut lab, own)| {
                lab.means.data_sheet_ios_per_s = self.data_sheet;
                if self.allow_writes {
                    refuse(&lab.devices, &lab.drivers)?;
                    for device in lab.devices.iter().filter(|device| !device.own) {
                        eprintln!("qpair: writing to {}: its content is destroyed", device.spec);
                    }
                }
                let lent = self.rebind.then(|| Lent::begin(&mut lab)).transpose()?;
                lab.place_stores();
                let mut outside = Runner::new(&lab, interrupt.clone());
                let report = match lent {
                    Some(lent) => lent.run(&lab, &self.options(), &watch, Some(&mut outside)),
                    None => run(&lab, &self.options(), &watch, Some(&mut outside)),
                };
                drop(own);
                Ok(report?)
            },
        );
        watch.end();
        if interrupt.is_requested() {
            eprintln!(
                "qpair: interrupted; no report was written, and the study's own file is removed"
            );
            return Ok(None);
        }
        outcome.map(Some)
    }
}
