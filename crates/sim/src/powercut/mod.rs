//! Losses of power of the real build: stores on disks that record every write and flush, and the
//! remaining data if the record ends at any moment. See docs/design/powercut.md.
//!
//! A seed determines the configuration of a run, the cuts of its record and the fate of each write.
//! The order of requests depends on the machine, so the images of a failed state are kept.

mod commands;
mod cut;
mod files;
mod format;
mod history;
mod image;
mod judge;
mod load;
mod plan;
mod record;
mod recorder;
mod rig;
mod run;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use plan::{Fault, Plan};
use rig::DAEMON;
use run::{Counts, Run};

use crate::console::Console;
use crate::folder::Folder;

/// Options of `cargo xtask powercut`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask powercut                                      twelve runs, one of each configuration
  cargo xtask powercut --runs 1000000 --seconds 3600        for an hour
  cargo xtask powercut --seed 7 --runs 1 --states 500       one run, cut more often
  cargo xtask powercut --canary lost-flush                  with a fault planted, which must be found

Each run needs qemu-storage-daemon (Debian: qemu-system-common); without it nothing is run, and the exit code is 77. \
The program qpair is taken from beside this one: cargo build --profile ci --workspace --bins.")]
pub struct Options {
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds, one after the other
    #[arg(long, default_value_t = 12)]
    runs: u64,
    /// States judged of each life of a store; a run has three lives
    #[arg(long, default_value_t = 20)]
    states: usize,
    /// Begin no run after this number of seconds; 0: no limit
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// Plant this fault: lost-flush (the cut takes what was flushed), unflushed-log (the store does
    /// not wait for its log), or a bug of the engine's as in `sim --list-canaries`. A run must fail
    #[arg(long, value_parser = Fault::parse, value_name = "FAULT")]
    canary: Option<Fault>,
    /// Print the plan of each run
    #[arg(long)]
    verbose: bool,
    /// Folder for sockets, files of devices, and states that failed [default: beside this program]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// The program qpair, for commands and `qpair target` [default: beside this program]
    #[arg(long, value_name = "FILE")]
    qpair: Option<PathBuf>,
}

/// The exit code if the storage daemon is missing, as for other skipped tests.
const SKIPPED: u8 = 77;

/// Runs all seeds. The exit code is 1 if something was wrong or a planted fault was not found, 77
/// if the daemon is missing, and 130 after Ctrl-C.
pub fn run(options: &Options) -> ExitCode {
    let mut console = Console::new();
    if !has_daemon() {
        console.say(format_args!(
            "skipped: no {DAEMON} (apt-get install --no-install-recommends qemu-system-common)"
        ));
        return ExitCode::from(SKIPPED);
    }
    let program = match find_program(options) {
        Ok(program) => program,
        Err(error) => {
            console.say(format_args!("failed: finding the program qpair: {error}"));
            return ExitCode::FAILURE;
        }
    };
    if program.is_none() {
        console.say(format_args!(
            "skipped: commands and qpair target: no qpair beside this program (cargo build --profile ci --workspace --bins)"
        ));
    }
    let folder = match Folder::new(options.dir.as_deref(), "pc") {
        Ok(folder) => folder,
        Err(error) => {
            console.say(format_args!("failed: making a folder for devices: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let summary = run_all(options, program.as_deref(), folder.path(), &mut console);
    console.say(format_args!("{summary}"));
    match options.canary {
        None => console.exit_code(summary.bad),
        Some(fault) => console.verdict_of_planted("fault", fault.name(), summary.bad > 0),
    }
}

/// Runs the seeds in order. When searching for a planted fault, stops at the first failure.
fn run_all(
    options: &Options,
    program: Option<&Path>,
    folder: &Path,
    console: &mut Console,
) -> Summary {
    let interrupted = &*console.interrupted();
    let mut summary = Summary { runs: 0, bad: 0, counts: Counts::default(), began: Instant::now() };
    let limit = Duration::from_secs(options.seconds);
    for number in 0..options.runs {
        let is_late = options.seconds > 0 && summary.began.elapsed() >= limit;
        let is_found = options.canary.is_some() && summary.bad > 0;
        if is_late || is_found || console.is_over() {
            break;
        }
        let plan = Plan::new(options.seed.wrapping_add(number), program.is_some(), options.canary);
        let run = Run { plan: &plan, states: options.states, program, folder, interrupted };
        let outcome = run.run(&mut summary.counts);
        summary.runs += 1;
        if options.verbose {
            console.say(format_args!("seed {}: {plan}", plan.seed));
        }
        if let (Err(wrong), false) = (outcome, console.is_interrupted()) {
            summary.bad += 1;
            let fault = plan.fault.map(|fault| format!(" --canary {}", fault.name()));
            console.say(format_args!(
                "failed: cargo xtask powercut --seed {} --runs 1 --states {}{} ({plan}): {wrong}",
                plan.seed,
                options.states,
                fault.unwrap_or_default()
            ));
        }
        console.progress(&summary);
    }
    summary
}

struct Summary {
    runs: u64,
    bad: u64,
    counts: Counts,
    began: Instant,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, bad, began, .. } = self;
        let Counts {
            lives,
            commands,
            steps,
            flushes,
            states,
            of_recoveries,
            of_commands,
            as_files,
            with_unflushed,
        } = self.counts;
        write!(
            f,
            "powercut: {runs} runs, {bad} bad: {states} states judged, {with_unflushed} of them with writes that were not flushed, {of_recoveries} in a recovery, {of_commands} in a command, {as_files} also as files; {lives} lives, {commands} commands, {steps} steps recorded, {flushes} of them flushes, in {:.1} s",
            began.elapsed().as_secs_f64()
        )
    }
}

fn has_daemon() -> bool {
    let mut command = Command::new(DAEMON);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn find_program(options: &Options) -> io::Result<Option<PathBuf>> {
    if let Some(program) = &options.qpair {
        return program.canonicalize().map(Some);
    }
    let beside = std::env::current_exe()?.with_file_name("qpair");
    Ok(beside.exists().then_some(beside))
}
