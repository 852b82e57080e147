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
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use qpair_engine::Canary;
use qpair_isolation::Verdict;

use crate::console::Console;
use crate::folder::Folder;

/// Options of `cargo xtask isolation`.
#[derive(clap::Args)]
pub struct Options {
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
    /// After the runs, kill a process that runs transactions so many times, and judge what it
    /// acknowledged and what is found
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

struct Runs {
    counts: Counts,
    began: Instant,
    console: Console,
}

impl Runs {
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
            self.console.say(format_args!("failed: cargo xtask isolation {again}: {wrong}"));
        }
        let summary = self.summary();
        self.console.progress(summary);
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
pub fn run(options: &Options) -> ExitCode {
    if let Some(store) = &options.life_of {
        return life::run(options, store);
    }
    let now = Instant::now();
    let mut runs = Runs { counts: Counts::default(), began: now, console: Console::new() };
    let interrupted = runs.console.interrupted();
    let deadline = (options.seconds > 0).then(|| now + Duration::from_secs(options.seconds));
    let folder = match Folder::new(options.dir.as_deref(), "isolation") {
        Ok(folder) => folder,
        Err(error) => {
            runs.console.say(format_args!("failed: making a folder for stores: {error}"));
            return ExitCode::FAILURE;
        }
    };
    for number in 0..options.runs {
        if runs.console.is_over() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        if options.canary.is_some() && runs.counts.bad > 0 {
            break;
        }
        let seed = options.seed.wrapping_add(number);
        let plan = plan::Plan::new(seed, options);
        let outcome = run::run(&plan, folder.path(), &interrupted, &mut runs.counts.backups);
        runs.counts.runs += 1;
        if let (true, Ok(verdict)) = (options.verbose, &outcome) {
            let said = verdict.to_string();
            runs.console.say(format_args!(
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
    runs.console.say(format_args!("{summary}"));
    match options.canary {
        None => runs.console.exit_code(runs.counts.bad),
        Some(canary) => runs.console.verdict_of_planted("bug", canary.name(), runs.counts.bad > 0),
    }
}
