//! Histories of transactions on lists, from real threads and tasks, judged by a checker that knows
//! nothing of the engine. See docs/design/isolation.md.
//!
//! A seed determines the configuration of a run and the requests of its processes. The order of the
//! requests depends on the machine, so the same seed may show a fault once and not again. `cargo
//! xtask sim` has runs that follow from a seed alone.

mod chores;
mod kills;
mod life;
mod plan;
mod run;
mod text;

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qpair_engine::Canary;
use qpair_isolation::Verdict;

use crate::scratch::{Folder, interrupted};

/// Options of `cargo xtask isolation`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds, one after the other
    #[arg(long, default_value_t = 64)]
    runs: u64,
    /// Transactions of each run
    #[arg(long, default_value_t = 3000)]
    transactions: usize,
    /// Begin no run after so many seconds; 0: no limit
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// After the runs, kill a process that runs transactions so many times, and judge what it acknowledged and what is found
    #[arg(long, default_value_t = 0)]
    kills: u64,
    /// Plant this bug in the store; a run must be bad
    #[arg(long, value_parser = parse_canary)]
    canary: Option<Canary>,
    /// Describe each run and its results
    #[arg(long)]
    verbose: bool,
    /// Folder for stores in files; they are removed again [default: beside this program]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Be the process that is killed, on this store
    #[arg(long, hide = true)]
    life_of: Option<PathBuf>,
    /// Number of the process, with which its elements begin
    #[arg(long, hide = true, default_value_t = 0)]
    life: u64,
}

fn parse_canary(name: &str) -> Result<Canary, String> {
    Canary::ALL.into_iter().find(|canary| canary.name() == name).ok_or_else(|| {
        let names: Vec<_> = Canary::ALL.into_iter().map(Canary::name).collect();
        format!("there are: {}", names.join(", "))
    })
}

/// The results of the runs so far.
#[derive(Debug, Default)]
struct Counts {
    runs: u64,
    kills: u64,
    bad: u64,
    transactions: u64,
    reads: u64,
    edges: u64,
    backups: u64,
}

/// The interval of progress messages.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// The state of all runs: their results and the output.
struct Runs {
    counts: Counts,
    began: Instant,
    told: Instant,
    interrupted: Arc<AtomicBool>,
    /// Whether standard output is closed.
    unheard: bool,
}

impl Runs {
    /// Writes a line to standard output.
    fn say(&mut self, line: fmt::Arguments<'_>) {
        let mut out = io::stdout().lock();
        self.unheard |= out.write_fmt(line).and_then(|()| out.write_all(b"\n")).is_err();
    }

    fn is_over(&self) -> bool {
        self.unheard || self.interrupted.load(Ordering::Relaxed)
    }

    /// Reports progress on standard error at intervals.
    fn tell(&mut self) {
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            // Progress is for whom it reaches.
            let _ = writeln!(io::stderr(), "{}", self.summary());
        }
    }

    fn take(&mut self, outcome: Result<Verdict, String>, again: impl fmt::Display) {
        let wrong = match outcome {
            Ok(verdict) => {
                self.counts.transactions += verdict.transactions;
                self.counts.reads += verdict.reads;
                self.counts.edges += verdict.edges;
                (!verdict.is_clean()).then(|| verdict.to_string())
            }
            Err(wrong) => Some(wrong),
        };
        if let Some(wrong) = wrong {
            self.counts.bad += 1;
            self.say(format_args!("failed: cargo xtask isolation {again}: {wrong}"));
        }
        self.tell();
    }

    fn summary(&self) -> String {
        let Counts { runs, kills, bad, transactions, reads, edges, backups } = self.counts;
        format!(
            "isolation: {runs} runs and {kills} kills, {bad} bad: {transactions} transactions, {reads} reads of lists, {edges} edges, {backups} backups, in {:.1} s",
            self.began.elapsed().as_secs_f64()
        )
    }
}

/// Runs all seeds. The exit code is 1 if something was wrong or a planted bug was not found, and
/// 130 after Ctrl-C.
pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(store) = &options.life_of {
        return life::run(options, store);
    }
    let interrupted = interrupted();
    let now = Instant::now();
    let (counts, unheard) = (Counts::default(), false);
    let mut runs = Runs { counts, began: now, told: now, interrupted, unheard };
    let deadline = (options.seconds > 0).then(|| now + Duration::from_secs(options.seconds));
    let folder = match Folder::new(options.dir.as_deref(), "isolation") {
        Ok(folder) => folder,
        Err(error) => {
            runs.say(format_args!("failed: making a folder for stores: {error}"));
            return ExitCode::FAILURE;
        }
    };
    for number in 0..options.runs {
        if runs.is_over() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        if options.canary.is_some() && runs.counts.bad > 0 {
            break;
        }
        let seed = options.seed.wrapping_add(number);
        let plan = plan::Plan::new(seed, options);
        let outcome = run::run(&plan, folder.path(), &runs.interrupted, &mut runs.counts.backups);
        runs.counts.runs += 1;
        if let (true, Ok(verdict)) = (options.verbose, &outcome) {
            let said = verdict.to_string();
            runs.say(format_args!(
                "seed {seed}: {plan}: {}",
                said.lines().next().unwrap_or_default()
            ));
        }
        let canary = options.canary.map(|canary| format!(" --canary {}", canary.name()));
        let again = format!(
            "--seed {seed} --runs 1 --transactions {}{} ({plan})",
            options.transactions,
            canary.unwrap_or_default()
        );
        runs.take(outcome, again);
    }
    if options.kills > 0 && options.canary.is_none() {
        kills::run(options, folder.path(), &mut runs);
    }
    let summary = runs.summary();
    runs.say(format_args!("{summary}"));
    if let Some(canary) = options.canary {
        let caught = runs.counts.bad > 0;
        let was = if caught { "was" } else { "was not" };
        runs.say(format_args!("the bug {} {was} caught", canary.name()));
        return if caught { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    match runs.counts.bad {
        0 if runs.interrupted.load(Ordering::Relaxed) => ExitCode::from(130),
        0 if !runs.unheard => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
