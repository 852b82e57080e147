//! `qpair bench io`: fio's options, its job files, and its reports.
//!
//! - `words`: the options of jobs, in their order on the command line;
//! - `plan`: shows the jobs instead of running them;
//! - `status`: reports during a run;
//! - `stores`: refuses to overwrite stores.

mod plan;
mod status;
mod stores;
mod words;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use qpair_workload::options::{Limits, Place, Plan, Section, command_line, seconds, settle};
use qpair_workload::output::{Style, csv, fio_json_text, table, write_hgrm, write_logs};
use qpair_workload::{Form, RunReport, jobfile, run};
use rustix::fs::{Access, AtFlags, CWD};

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::show::live::{Eta, LiveLine};
use crate::show::output::{Output, print_bytes};
use crate::study::files::same_file;

use status::States;
pub(crate) use words::as_fio_takes_them;

const AFTER_HELP: &str = "\
Jobs come from the command line, from job files, or both. --name begins a job; options before the first --name are \
for all jobs. A fio option that qpair does not support is an error. Sizes are those of fio: 4k is 4096. Options have \
one dash or two.

Exit codes:
  0    done
  1    a block differs from what was written (--verify)
  2    wrong use: an option, a job file, or a contradiction
  3    a device or a job failed
  130  interrupted; the results until then were reported

Examples:
  qpair bench io --filename=/dev/nvme0n1 --rw=randread --direct=1 --ioengine=io_uring --iodepth=32 --runtime=10 --time_based
  qpair bench io --filename=data.bin --size=1g --rw=randwrite --direct=1 --verify=crc32c --interface io_uring+k
  qpair bench io jobs.fio --section=readers --output-format=json --output=run.json
  qpair bench io --filename=null:size=1g --rw=randread --iodepth=32 --rate_iops=100k --rate_process=poisson";

/// Run workloads over files, devices and specifiers: fio's options and job files
pub(crate) struct Io {
    /// Options of jobs, in their order.
    words: Vec<(&'static str, String)>,
    own: Own,
}

#[derive(Args, Debug)]
struct Own {
    /// Job files of fio's format; - is standard input
    #[arg(value_name = "JOBFILE")]
    files: Vec<PathBuf>,

    /// Run only the jobs of this name; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Run")]
    section: Vec<String>,

    /// Refuse jobs that write or trim
    #[arg(long, help_heading = "Run")]
    readonly: bool,

    /// Write even to a device that is mounted, in use or holds a store: its content is lost
    #[arg(long, conflicts_with = "readonly", help_heading = "Run")]
    force: bool,

    /// Show the jobs with all settings, and run nothing
    #[arg(long, help_heading = "Run")]
    parse_only: bool,

    /// Explain one option, or all options
    #[arg(long, value_name = "OPTION|all", help_heading = "Run")]
    cmdhelp: Option<String>,

    /// Write the report to a file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Formats of the report, one after the other: normal (a table), json and json+ (fio's), csv
    #[arg(
        long,
        value_name = "FORMAT[,...]",
        value_delimiter = ',',
        default_value = "normal",
        help_heading = "Output"
    )]
    output_format: Vec<Format>,

    /// The same as --output-format=json
    #[arg(long, conflicts_with = "output_format", help_heading = "Output")]
    json: bool,

    /// Show a live line while jobs run; auto: on a terminal only
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    eta: Eta,

    /// Report the state every TIME (seconds, or with a unit: 500ms, 1.5, 2m): all figures since the
    /// measurement began, not those of the last interval. Each state is a whole report in every
    /// --output-format: with json, several documents come one after the other
    #[arg(long, value_name = "TIME", value_parser = interval, help_heading = "Output")]
    status_interval: Option<Duration>,

    /// Write every latency distribution to PREFIX_read_clat.1.hgrm and so on
    #[arg(long, value_name = "PREFIX", help_heading = "Output")]
    hgrm: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Normal,
    Json,
    #[value(name = "json+")]
    JsonPlus,
    Csv,
}

impl Args for Io {
    fn augment_args(command: Command) -> Command {
        words::augment(Own::augment_args(command)).after_help(AFTER_HELP)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Io {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        Ok(Self { words: words::in_order(matches), own: Own::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io").field("words", &self.words).field("own", &self.own).finish()
    }
}

impl Io {
    pub(crate) fn run(self) -> Result<Exit> {
        if let Some(name) = &self.own.cmdhelp {
            return words::explain(name);
        }
        words::refuse_others(&self.words)?;
        let limits = Limits { read_only: self.own.readonly, force: self.own.force };
        let plan = settle(&self.sections()?, limits)?;
        if self.own.parse_only {
            return plan::show(&plan);
        }
        for note in &plan.notes {
            eprintln!("qpair: note: {note}");
        }
        self.measure(&plan)
    }

    fn sections(&self) -> Result<Vec<Section>> {
        let words = self.words.iter().map(|(name, value)| (*name, Some(value.as_str())));
        let (global, mut sections) = command_line(words)?;
        let only = &self.own.section;
        sections.retain(|section| only.is_empty() || only.contains(&section.name));
        for (number, file) in self.own.files.iter().enumerate() {
            let mut of_file = jobfile::read(file, &global, only)?;
            if let (1.., Some(first)) = (number, of_file.first_mut()) {
                // Jobs of a file begin after those of the file before have ended.
                first.wall = true;
            }
            sections.append(&mut of_file);
        }
        let has_name = self.words.iter().any(|(name, _)| *name == "name");
        if self.own.files.is_empty() && !has_name && !global.is_empty() {
            let place = Place::COMMAND_LINE;
            sections.push(Section {
                name: "io".into(),
                place,
                global: Vec::new(),
                own: global,
                wall: false,
            });
        }
        if let Some(name) =
            only.iter().find(|name| !sections.iter().any(|section| section.name == **name))
        {
            return Err(Failure::usage(format!(
                "--section={name} names a job that does not exist"
            )));
        }
        if sections.is_empty() {
            return Err(
                Failure::usage("no job is given").hint("give --filename=DEVICE, or a job file")
            );
        }
        Ok(sections)
    }

    fn measure(&self, plan: &Plan) -> Result<Exit> {
        let formats = match self.own.json {
            true => vec![Format::Json],
            false => self.own.output_format.clone(),
        };
        self.check_output(&plan.jobs)?;
        stores::refuse(&plan.jobs)?;
        let interrupt = Interrupt::install()?;
        let mut line = LiveLine::new(interrupt.clone(), self.own.eta);
        if !formats.contains(&Format::Normal) || self.own.output.is_some() {
            line.notes = true;
        }
        let stress = plan.jobs.iter().find(|job| job.form == Form::Stress);
        if let Some(job) = stress {
            line.samples = Some(job.sample.unwrap_or(Duration::from_secs(1)));
        }
        let states = States::new(&line, self.own.status_interval, |report, number| {
            self.put(&self.text(report, &formats), number > 0)
        });
        let outcome = run(&crate::interrupt::drivers(), &plan.jobs, &states);
        line.finish();
        let removed = remove(&plan.unlink);
        let report = outcome?;
        let (count, told) = states.end();
        let reported = told.and(self.put(&self.text(&report, &formats), count > 0));
        let reported = reported.and_then(|()| self.files(&report));
        reported.and(removed)?;
        Ok(exit(&report, interrupt.is_requested()))
    }

    /// Checks, before hours are spent on a run, that its report can be written and does not
    /// overwrite a measured file.
    fn check_output(&self, jobs: &[qpair_workload::Job]) -> Result<()> {
        let logs = jobs.iter().flat_map(|job| &job.logs).map(|(_, prefix)| prefix);
        let histograms = jobs.iter().filter_map(|job| Some(&job.histogram_log.as_ref()?.prefix));
        for prefix in logs.chain(histograms).chain(&self.own.hgrm) {
            let mut name = prefix.clone().into_os_string();
            name.push("_*");
            check_file(Path::new(&name), name.display())?;
        }
        for path in jobs.iter().filter_map(|job| job.write_iolog.as_ref()) {
            check_file(path, path.display())?;
        }
        let Some(path) = &self.own.output else { return Ok(()) };
        let same = |other: &Path| path == other || same_file(path, other);
        let measured = jobs.iter().flat_map(|job| &job.targets).flat_map(|one| one.spec.paths());
        let is_device = std::fs::metadata(path).is_ok_and(|metadata| {
            std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type())
        });
        if is_device || measured.into_iter().any(same) {
            let what =
                format!("--output={} would overwrite a device or what is measured", path.display());
            return Err(Failure::usage(what));
        }
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map(drop)
            .map_err(Failure::at("writing", path))
    }

    fn text(&self, report: &RunReport, formats: &[Format]) -> String {
        let colour = self.own.output.is_none()
            && Output::is_terminal()
            && std::env::var_os("NO_COLOR").is_none();
        let text = |format: &Format| match format {
            Format::Normal => table(report, Style { colour, ..Style::default() }),
            Format::Json => fio_json_text(report, false),
            Format::JsonPlus => fio_json_text(report, true),
            Format::Csv => csv(report),
        };
        formats.iter().map(text).collect()
    }

    /// Writes a report to the output. If `behind`, appends it to earlier reports; otherwise
    /// replaces them.
    fn put(&self, text: &str, behind: bool) -> Result<()> {
        let Some(path) = &self.own.output else {
            return print_bytes(text.as_bytes());
        };
        let mut options = std::fs::OpenOptions::new();
        options.create(true).write(true).append(behind).truncate(!behind);
        let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(Failure::at("writing", path))
    }

    fn files(&self, report: &RunReport) -> Result<()> {
        write_logs(report)?;
        if let Some(prefix) = &self.own.hgrm {
            write_hgrm(report, prefix)?;
        }
        Ok(())
    }
}

/// Checks that a file can be written or created. `what` names the file in the error.
fn check_file(path: &Path, what: impl std::fmt::Display) -> Result<()> {
    let failed = |error| Failure::io(&error, format_args!("writing {what}"));
    let may = |path: &Path, access| {
        let found = rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS);
        found.map_err(|error| failed(error.into()))
    };
    if path.is_dir() {
        return Err(failed(std::io::ErrorKind::IsADirectory.into()));
    }
    if path.exists() {
        return may(path, Access::WRITE_OK);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if !std::fs::metadata(folder).map_err(failed)?.is_dir() {
        return Err(failed(std::io::ErrorKind::NotADirectory.into()));
    }
    may(folder, Access::WRITE_OK | Access::EXEC_OK)
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    seconds(text).map_err(|error| format!("\"{text}\" {error}"))
}

fn exit(report: &RunReport, interrupted: bool) -> Exit {
    let wrong = report.jobs.iter().any(|job| job.verify.wrong > 0);
    let failed = report.jobs.iter().filter_map(|job| job.error.as_ref().map(|error| (job, error)));
    let mut exit = Exit::Done;
    for (job, error) in failed {
        eprintln!("qpair: error: job {}: {}", job.job.name, error.what);
        exit = Exit::Failed;
    }
    match (interrupted, wrong) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Negative,
        (false, false) => exit,
    }
}

fn remove(files: &[PathBuf]) -> Result<()> {
    let gone = |path: &Path| match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::at("removing", path)(error))
        }
        _ => Ok(()),
    };
    // If one file cannot be removed, the others still are.
    let mut all = Ok(());
    for path in files {
        all = all.and(gone(path));
    }
    all
}
