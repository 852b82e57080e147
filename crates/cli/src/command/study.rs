//! `qpair study`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use qpair_study::{
    Diff, EXPERIMENTS, Effort, Experiment, Lab, Lent, Mix, Need, Options, Outcome, Question, Row,
    StudyReport, advise, catalogue, cpus, diff, interfaces, run, to_html,
};
use serde::Serialize;

use super::bench::{parse_seconds, to_json};
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::Output;
use crate::study_lab::{DeviceArgs, Watch};
use crate::study_stores::Stores;
use crate::text::{count, utc};

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
unless --allow-writes is given. With --rebind nothing on them may be in use: their block devices disappear and come \
back. The drives return to their driver at the end, also after Ctrl-C. After kill -9, run qpair floor --recover.

Examples:
  qpair study
  qpair study --dir /mnt/fast --full --out fast.html
  qpair study --device /dev/nvme0n1 --device /dev/nvme1n1
  sudo qpair study --device /dev/nvme0n1 --rebind
  qpair study --budget 10m
  qpair study --list
  qpair study --experiment s1-fig2 --experiment s3-fig3 --repeat 10 --seconds-per-point 1
  qpair study --render study.json --out again.html
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

    /// Time after which no comparison begins, such as 90s [default: 5m]
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

    /// Print the numbers, or the list, as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    Diff(StudyDiff),
}

/// Show the differences between two studies: points outside both intervals, and verdicts
#[derive(Args, Debug)]
struct StudyDiff {
    /// Numbers (.json) of the first study
    #[arg(value_name = "A")]
    before: PathBuf,

    /// Numbers (.json) of the second study
    #[arg(value_name = "B")]
    after: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl StudyDiff {
    fn run(&self) -> Result<Exit> {
        let found = diff(&read_study(&self.before)?, &read_study(&self.after)?);
        let mut out = Output::new();
        if self.json {
            out.line(to_json(&found)?)?;
        } else {
            for line in diff_lines(&found) {
                out.line(line)?;
            }
        }
        out.finish()?;
        Ok(Exit::Done)
    }
}

fn diff_lines(found: &Diff) -> Vec<String> {
    let mut lines: Vec<String> = found.notes.iter().map(|note| format!("note: {note}")).collect();
    for one in &found.points {
        lines.push(format!(
            "{:>6.2} times  {}: {} IOPS, then {}",
            one.times,
            one.point,
            count(one.before as u64),
            count(one.after as u64)
        ));
    }
    for one in &found.verdicts {
        lines.push(format!("{}: {}, then {}", one.finding, one.before.words(), one.after.words()));
    }
    lines.push(format!(
        "{} points differ beyond both intervals, {} do not, {} are in one study only; {} findings have another outcome",
        found.points.len(),
        found.alike,
        found.alone,
        found.verdicts.len()
    ));
    lines
}

/// Parses seconds, or minutes with an `m`.
fn parse_time(text: &str) -> std::result::Result<f64, String> {
    match text.strip_suffix('m') {
        Some(minutes) => Ok(60.0 * parse_seconds(minutes)?),
        None => parse_seconds(text.strip_suffix('s').unwrap_or(text)),
    }
}

fn parse_experiment(name: &str) -> std::result::Result<&'static Experiment, String> {
    qpair_study::find(name).ok_or_else(|| {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        format!("known: {}", names.join(", "))
    })
}

/// Checks the output path before the measurement, so that its results are not lost.
pub(super) fn check_out_file(out: &Path) -> Result<()> {
    let folder = match out.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(Failure::usage(format!("--out {}: no such folder", out.display())));
    }
    if out.exists() && !out.is_file() {
        return Err(Failure::usage(format!("--out: {} is there and no file", out.display())));
    }
    Ok(())
}

impl Study {
    pub(crate) fn run(self) -> Result<Exit> {
        if let Some(What::Diff(diff)) = &self.what {
            return diff.run();
        }
        if self.list {
            return self.list();
        }
        let json_path = self.out.with_extension("json");
        self.check_out(&json_path)?;
        let report = match &self.render {
            Some(path) => read_study(path)?,
            None => match self.measure()? {
                Some(report) => report,
                None => return Ok(Exit::Interrupted),
            },
        };
        let json = report.to_json()?;
        write(&self.out, &to_html(&report, &utc(report.begun_s))?)?;
        let told = if self.render.as_ref().is_some_and(|from| same_file(from, &json_path)) {
            format!("report: {}", self.out.display())
        } else {
            write(&json_path, &json)?;
            format!("report: {}, numbers: {}", self.out.display(), json_path.display())
        };
        let mut out = Output::new();
        if self.json {
            out.line(&json)?;
        } else {
            for line in summary(&report) {
                out.line(line)?;
            }
            out.line(told)?;
        }
        out.finish()?;
        Ok(Exit::Done)
    }

    /// Checks the output paths before the measurement. No report may overwrite a measured device.
    fn check_out(&self, json_path: &Path) -> Result<()> {
        if self.out.extension().is_some_and(|ending| ending == "json") {
            return Err(Failure::usage("--out names the HTML report; the JSON goes beside it")
                .hint("--out study.html"));
        }
        for path in [&self.out as &Path, json_path] {
            check_out_file(path)?;
            let is_it = |spec: &qpair_block::DeviceSpec| {
                spec.paths().into_iter().any(|device| same_file(device, path))
            };
            if self.devices.devices.iter().any(is_it) {
                let what = format!("--out: {} is a device of the study", path.display());
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
            [] => EXPERIMENTS.iter().collect(),
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

    /// Returns the measured report, or `None` if the study was interrupted.
    fn measure(&self) -> Result<Option<StudyReport>> {
        let interrupt = Interrupt::install()?;
        let watch = Watch::new(interrupt.clone());
        if self.allow_writes {
            for spec in &self.devices.devices {
                eprintln!("qpair: writing to {spec}: its content is destroyed");
            }
        }
        let outcome = self.devices.lab(self.effort(), self.allow_writes, &watch).and_then(
            |(mut lab, own)| {
                let mut stores = Stores::new(self.devices.folder(), &lab, interrupt.clone());
                let report = match self.rebind {
                    true => Lent::begin(&mut lab).and_then(|lent| {
                        lent.run(&lab, &self.options(), &watch, Some(&mut stores))
                    }),
                    false => run(&lab, &self.options(), &watch, Some(&mut stores)),
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

    fn list(&self) -> Result<Exit> {
        let devices = match &self.devices.devices[..] {
            // Plan as if a file was given.
            [] => vec![qpair_study::Device::of("null:size=1GiB", true, true)?],
            _ => self.devices.given(self.allow_writes)?,
        };
        let mut interfaces = interfaces(&devices);
        if self.devices.devices.is_empty() {
            interfaces = qpair_study::INTERFACES[..5]
                .iter()
                .filter(|candidate| !candidate.name.contains("+p"))
                .map(|candidate| qpair_study::InterfaceReport {
                    name: candidate.name.to_owned(),
                    about: candidate.about.to_owned(),
                    ran_as: None,
                    unavailable: None,
                    way_out: None,
                })
                .collect();
        }
        let stores = self.devices.devices.is_empty();
        let lab = Lab {
            cpus: cpus()?,
            drivers: crate::interrupt::drivers(),
            devices,
            interfaces,
            effort: self.effort(),
            stores,
            mix: Mix::default(),
        };
        let settings = self.options().settings(lab.effort);
        let experiments: Vec<Listed> = self
            .options()
            .experiments
            .into_iter()
            .map(|experiment| {
                let plan = experiment.plan(&lab);
                let points = plan.configs().count();
                let seconds = if plan.over_time { None } else { Some(settings.estimate_s(points)) };
                Listed {
                    name: experiment.name,
                    figure: experiment.figure,
                    shows: experiment.shows,
                    needs: experiment.needs,
                    points,
                    seconds,
                    skipped: plan.skipped,
                }
            })
            .collect();
        let findings: Vec<ListedFinding> = catalogue().map(ListedFinding::of).collect();
        let mut out = Output::new();
        if self.json {
            out.line(to_json(&List { experiments, findings })?)?;
        } else {
            for line in experiments.iter().flat_map(Listed::lines) {
                out.line(line)?;
            }
            let tested = findings.iter().filter(|finding| finding.experiment.is_some()).count();
            out.line("")?;
            out.line(format!("findings of the papers: {}, tested: {tested}", findings.len()))?;
            for finding in findings {
                out.line(format!("{:<27} {}", finding.name, finding.source))?;
                out.line(format!("    {}", finding.claim))?;
                out.line(format!("    here: {}", finding.here))?;
            }
        }
        out.finish()?;
        Ok(Exit::Done)
    }
}

/// The output of `--list`.
#[derive(Serialize)]
struct List {
    experiments: Vec<Listed>,
    findings: Vec<ListedFinding>,
}

/// An experiment.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    figure: &'static str,
    shows: &'static str,
    needs: &'static str,
    points: usize,
    /// `None` for an experiment that is one long run.
    seconds: Option<f64>,
    skipped: Vec<String>,
}

impl Listed {
    fn lines(&self) -> Vec<String> {
        let long = self
            .seconds
            .map_or_else(|| "one long run".to_owned(), |seconds| format!("about {seconds:.0} s"));
        let here = match self.points {
            0 => self.skipped.join("; "),
            points => format!("{points} points, {long}"),
        };
        vec![
            format!("{:<15} {}", self.name, self.figure),
            format!("    {}", self.shows),
            format!("    needs: {}", self.needs),
            format!("    here: {here}"),
        ]
    }
}

/// A finding.
#[derive(Serialize)]
struct ListedFinding {
    name: &'static str,
    source: &'static str,
    claim: &'static str,
    /// The experiment that tests it.
    experiment: Option<&'static str>,
    /// The requirements of a test.
    needs: &'static [Need],
    here: String,
}

impl ListedFinding {
    fn of(row: &'static Row) -> Self {
        Self {
            name: row.name(),
            source: row.source(),
            claim: row.claim(),
            experiment: row.tested().map(|finding| finding.experiment),
            needs: row.needs(),
            here: row.here(),
        }
    }
}

/// Reads a stored study.
pub(crate) fn read_study(path: &Path) -> Result<StudyReport> {
    let name = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::io(&error, format_args!("reading {name}")))?;
    StudyReport::from_json(&text).map_err(|error| Failure::from(error).context(name))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)
        .map_err(|error| Failure::io(&error, format_args!("writing {}", path.display())))
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (fs::canonicalize(a), fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

fn summary(report: &StudyReport) -> Vec<String> {
    let runs: usize = report.points.iter().map(|point| point.runs.len()).sum();
    let failed = report.points.iter().filter(|point| point.runs.is_empty()).count();
    let mut lines = vec![format!(
        "{} configurations, {} runs, {:.0} s; {}",
        report.points.len(),
        runs,
        report.took_s,
        report.machine.one_line()
    )];
    for device in &report.devices {
        lines.push(format!("{}: {}", device.spec, device.about));
    }
    lines.extend(report.notes.iter().cloned());
    lines.extend(report.resolution().map(|resolution| resolution.words()));
    if failed > 0 {
        lines.push(format!("{failed} configurations could not be run; the report says why"));
    }
    lines.push(String::new());
    for outcome in [Outcome::Holds, Outcome::DoesNotHold, Outcome::Undecided] {
        for verdict in report.verdicts.iter().filter(|verdict| verdict.outcome == outcome) {
            lines.push(format!("{:<14} {}  ({})", outcome.words(), verdict.claim, verdict.source));
        }
    }
    let not = report.verdicts.iter().filter(|verdict| verdict.outcome == Outcome::NotTestable);
    lines.push(format!("{} more findings can't be tested here; the report says why", not.count()));
    lines.push(String::new());
    let drives = report.devices.len().max(1) as u32;
    for (words, cores) in [("one core", drives), ("two cores", 2 * drives)] {
        if cores > report.cores {
            continue;
        }
        let question = Question { cores: Some(cores), ..Question::default() };
        if let Some(choice) = advise(report, &question).choice {
            lines.push(format!(
                "with {words} for each drive: {}, {} IOPS at queue depth {}",
                choice.interface,
                count(choice.ios_per_s as u64),
                choice.depth
            ));
        }
    }
    lines
}
