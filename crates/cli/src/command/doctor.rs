//! `qpair doctor`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use qpair_machine::{
    Area, Device, DeviceKind, Finding, Machine, Outcome, Root, Severity, Trials,
    ask_for_interfaces, examine, try_interfaces, try_interfaces_in,
};
use serde_json::json;

use crate::failure::{Exit, Failure, Result};
use crate::show::output::Output;
use crate::show::paint::{Color, Paint, wrap};
use crate::show::text::counted;

/// Show what this machine's storage can do, and what slows it down
///
/// The command examines the kernel, processors, memory, limits and drives, and reads one block over
/// every interface. For each weak point it prints a command that fixes it. It changes nothing and
/// needs no root; a value that it cannot read is "not available".
#[derive(Args, Debug)]
#[command(after_help = "\
Marks:
  ok       as it should be
  hint     it works, and could be better
  problem  something does not work
  -        for your information

Examples:
  qpair doctor                    the machine, its drives in short, and the interfaces on a small file here
  qpair doctor /dev/nvme0n1       a drive: its queues, scheduler, polling, and every interface on it
  qpair doctor files.qpair        a file, its file system and the drives below
  qpair doctor --json | jq '.findings[] | select(.severity == \"problem\")'

Without DEVICE, the command uses a file of 64 KiB in the current directory, or else in $TMPDIR, and removes it at the \
end. The exit code is 3 if no interface works.")]
pub(crate) struct Doctor {
    /// Files, directories or devices to examine [default: all drives, in short]
    #[arg(value_name = "DEVICE")]
    devices: Vec<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

struct Diagnosis {
    machine: Machine,
    devices: Vec<Device>,
    interfaces: Vec<Trials>,
    findings: Vec<Finding>,
    /// The reason why no file could be created to test interfaces on.
    no_file: Option<String>,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<Exit> {
        let in_short = self.devices.is_empty();
        let diagnosis = diagnose(&self.devices)?;
        let mut out = Output::new();
        if self.json {
            let object = json!({
                "machine": diagnosis.machine,
                "devices": diagnosis.devices,
                "interfaces": diagnosis.interfaces,
                "no_file": diagnosis.no_file,
                "findings": diagnosis.findings,
            });
            out.line(object.to_string())?;
        } else {
            Page { out: &mut out, paint: Paint::for_output() }.print(&diagnosis, in_short)?;
        }
        out.finish()?;
        let trials = &diagnosis.interfaces;
        if !trials.is_empty() && trials.iter().all(Trials::all_failed) {
            return Err(Failure::new(Exit::Failed, "no interface works here"));
        }
        Ok(Exit::Done)
    }
}

fn diagnose(paths: &[PathBuf]) -> Result<Diagnosis> {
    let machine = Machine::read();
    let devices = if paths.is_empty() {
        Device::all(&Root::system())
    } else {
        paths.iter().map(|path| read(path)).collect::<Result<_>>()?
    };
    let (interfaces, no_file) = if paths.is_empty() {
        on_a_file_here()
    } else {
        let tried = devices.iter().map(|device| match device.kind {
            DeviceKind::Directory => try_interfaces_in(Path::new(&device.path))
                .map_err(|error| cannot_make_a_file(Path::new(&device.path), &error)),
            _ => Ok(try_interfaces(device)),
        });
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        tried.for_each(|outcome| match outcome {
            Ok(trials) => done.push(trials),
            Err(why) => failed.push(why),
        });
        (done, (!failed.is_empty()).then(|| failed.join("; ")))
    };
    let findings = examine(&machine, &devices);
    Ok(Diagnosis { machine, devices, interfaces, findings, no_file })
}

fn read(path: &Path) -> Result<Device> {
    Device::read(path).map_err(|error| {
        let failure = Failure::io(&error, format!("examining {}", path.display()));
        let specifier = path.to_string_lossy().contains(':');
        match error.kind() {
            io::ErrorKind::NotFound if specifier => {
                failure.hint("give the path alone, without the kind of device before it")
            }
            io::ErrorKind::NotFound => failure
                .hint("give a file, a directory or a device that is there; lsblk lists drives"),
            _ => failure,
        }
    })
}

/// Tests interfaces on a small file, in the current directory or else in the directory for
/// temporary files.
fn on_a_file_here() -> (Vec<Trials>, Option<String>) {
    let mut refused = Vec::new();
    for directory in [PathBuf::from("."), std::env::temp_dir()] {
        match try_interfaces_in(&directory) {
            Ok(trials) => return (vec![trials], None),
            Err(error) => refused.push(cannot_make_a_file(&directory, &error)),
        }
    }
    (vec![ask_for_interfaces()], Some(refused.join("; ")))
}

fn cannot_make_a_file(directory: &Path, error: &io::Error) -> String {
    format!("no file could be made in {}: {error}", directory.display())
}

/// The maximum width of a line in columns. Commands are never broken.
const WIDTH: usize = 100;
/// The width in columns of the mark and the space around it.
const MARK: usize = 11;
/// The maximum width in columns of a state with its reason beside it. A longer state stands above
/// its reason.
const STATE: usize = 24;

struct Page<'a> {
    out: &'a mut Output,
    paint: Paint,
}

impl Page<'_> {
    fn print(&mut self, diagnosis: &Diagnosis, in_short: bool) -> Result<()> {
        self.out.line(diagnosis.machine.one_line())?;
        let sections = [
            (Area::Kernel, "kernel"),
            (Area::Processors, "processors"),
            (Area::Memory, "memory and limits"),
            (Area::UserSpaceDrivers, "drivers in user space (interfaces of the kernel do without)"),
        ];
        for (area, title) in sections {
            self.title(title)?;
            self.findings(diagnosis.findings.iter().filter(|finding| finding.area == area))?;
        }
        for device in &diagnosis.devices {
            self.title(&format!("{}: {}", device.path, device.one_line()))?;
            let area = Area::Device(device.path.clone());
            let findings = diagnosis.findings.iter().filter(|finding| finding.area == area);
            if in_short {
                self.findings(findings.filter(|finding| finding.severity >= Severity::Hint))?;
            } else {
                self.findings(findings)?;
            }
        }
        if let Some(why) = &diagnosis.no_file {
            self.title(&format!("interfaces ({why})"))?;
        }
        for trials in &diagnosis.interfaces {
            self.interfaces(trials)?;
        }
        let count = |severity| {
            let of = diagnosis.findings.iter().filter(|finding| finding.severity == severity);
            of.count() as u64
        };
        let problems = counted(count(Severity::Problem), "problem");
        let hints = counted(count(Severity::Hint), "hint");
        self.out.line("")?;
        self.out.line(format!("{problems}, {hints}; nothing was changed"))
    }

    fn title(&mut self, title: &str) -> Result<()> {
        let title = self.paint.paint(Color::Bold, title);
        self.out.line(format!("\n{title}"))
    }

    fn findings<'f>(&mut self, findings: impl Iterator<Item = &'f Finding>) -> Result<()> {
        let findings: Vec<&Finding> = findings.collect();
        let widest = |text: fn(&Finding) -> &str| {
            let widths = findings.iter().map(|finding| text(finding).chars().count());
            widths.filter(|&width| width <= STATE).max().unwrap_or(0)
        };
        let (subject, state) = (widest(|finding| &finding.subject), widest(|f| &f.state));
        for finding in &findings {
            let mark = match finding.severity {
                Severity::Info => ("-", Color::Dim),
                Severity::Good => ("ok", Color::Green),
                Severity::Hint => ("hint", Color::Yellow),
                Severity::Problem => ("problem", Color::Red),
            };
            let columns = [(&*finding.subject, subject), (&*finding.state, state)];
            self.entry(mark, &columns, &finding.why)?;
            for mend in &finding.mend {
                let note = self.paint.paint(Color::Dim, &format!("# {}", mend.note));
                self.out.line(format!("{:MARK$}  {}  {note}", "", mend.command))?;
            }
        }
        Ok(())
    }

    fn interfaces(&mut self, trials: &Trials) -> Result<()> {
        if !trials.path.is_empty() {
            let cache =
                if trials.direct { "" } else { ", through the page cache: no direct I/O there" };
            self.title(&format!("interfaces on {}{cache}", trials.path))?;
        }
        let width = trials.modes.iter().map(|trial| trial.mode.len()).max().unwrap_or(0);
        for trial in &trials.modes {
            let mark = match trial.outcome {
                Outcome::Works => ("ok", Color::Green),
                Outcome::Fails => ("no", Color::Red),
                Outcome::NotTried => ("-", Color::Dim),
            };
            let text = match &trial.way_out {
                Some(way_out) => format!("{} ({way_out})", trial.detail),
                None => trial.detail.clone(),
            };
            self.entry(mark, &[(&trial.mode, width)], &text)?;
        }
        Ok(())
    }

    /// Writes one entry: the mark, columns with their widths, and text that wraps below itself.
    fn entry(
        &mut self,
        (mark, color): (&str, Color),
        columns: &[(&str, usize)],
        text: &str,
    ) -> Result<()> {
        let indent = MARK + columns.iter().map(|(_, width)| width + 2).sum::<usize>();
        let mut lines = wrap(text, WIDTH.saturating_sub(indent).max(WIDTH / 3)).into_iter();
        let padding = " ".repeat(MARK - 2 - mark.len());
        let mut line = format!("  {}{padding}", self.paint.paint(color, mark));
        for (word, width) in columns {
            line += &format!("{word:width$}  ");
        }
        let fits = columns.iter().all(|(word, width)| word.chars().count() <= *width);
        if fits {
            line += &lines.next().unwrap_or_default();
        }
        self.out.line(line.trim_end())?;
        lines.try_for_each(|line| self.out.line(format!("{:indent$}{line}", "")))
    }
}
