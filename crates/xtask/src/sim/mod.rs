//! Deterministic simulation: whole stores on simulated devices, with power cuts and faults, judged by a model. See
//! docs/design/simulation.md.
//!
//! A run follows from its seed alone: the same seed does the same, to the byte.

mod backups;
mod catalog;
mod damage;
mod errands;
mod full;
mod lives;
mod oracle;
mod runner;
mod salvage;
mod scenario;
mod stale;
mod state;
mod summary;
mod value;
mod workload;
mod world;

use std::process::ExitCode;
use std::time::Instant;

use qpair_engine::Canary;

use summary::{Counts, Summary};

/// Options of `cargo xtask sim`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, one after the other
    #[arg(long, default_value_t = 100)]
    runs: u64,
    /// Runs at a time; 0: as many as there are cores
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Plant this bug in the store; the simulation must catch it
    #[arg(long, value_parser = parse_canary)]
    canary: Option<Canary>,
    /// Name the bugs that can be planted, one a line
    #[arg(long)]
    list_canaries: bool,
    /// Tell each run's story
    #[arg(long)]
    verbose: bool,
}

fn parse_canary(name: &str) -> Result<Canary, String> {
    Canary::ALL.into_iter().find(|canary| canary.name() == name).ok_or_else(|| {
        let names: Vec<_> = Canary::ALL.iter().map(|canary| canary.name()).collect();
        format!("there are: {}", names.join(", "))
    })
}

/// Runs the simulation and prints what came of it.
#[expect(clippy::print_stdout, reason = "this is a command")]
pub(crate) fn run(options: &Options) -> ExitCode {
    if options.list_canaries {
        Canary::ALL.iter().for_each(|canary| println!("{}", canary.name()));
        return ExitCode::SUCCESS;
    }
    let start = Instant::now();
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let mut counts = Counts::default();
    let mut failures = 0;
    runner::run_seeds(options.seed, options.runs, threads, options.canary, |report| {
        counts += report.counts;
        if options.verbose {
            println!("seed {}", report.seed);
            report.log.iter().for_each(|line| println!("  {line}"));
        }
        match &report.outcome {
            Ok(trace) if options.verbose => println!("  trace {trace:016x}"),
            Ok(_) => {}
            Err(wrong) => {
                failures += 1;
                let canary =
                    options.canary.map_or(String::new(), |c| format!(" --canary {}", c.name()));
                let seed = report.seed;
                println!(
                    "failed: cargo xtask sim --seed {seed} --runs 1{canary} --verbose: {wrong}"
                );
            }
        }
        // One catch is enough of a planted bug.
        options.canary.is_none() || failures == 0
    });
    println!("{}", Summary { counts, failures, took: start.elapsed() });
    match (options.canary, failures) {
        (None, 0) => ExitCode::SUCCESS,
        (None, _) => ExitCode::FAILURE,
        (Some(canary), 0) => {
            println!("the bug {} was not caught", canary.name());
            ExitCode::FAILURE
        }
        (Some(canary), _) => {
            println!("the bug {} was caught", canary.name());
            ExitCode::SUCCESS
        }
    }
}

#[cfg(test)]
mod tests {
    use qpair_engine::Canary;

    use super::runner::{run_seed, run_seeds};

    #[test]
    fn a_few_seeds() {
        let mut failures = Vec::new();
        run_seeds(1, 40, 2, None, |report| {
            if let Err(wrong) = report.outcome {
                failures.push((report.seed, wrong));
            }
            true
        });
        assert!(failures.is_empty(), "{failures:#?}");
    }

    /// `.ci/run sim` plants all of them; here one shows that failures are seen.
    #[test]
    fn a_planted_bug_is_caught() {
        let canary = Canary::ALL[0];
        let mut caught = None;
        run_seeds(1, 10_000, 2, Some(canary), |report| {
            caught = caught.or(report.outcome.is_err().then_some(report.seed));
            caught.is_none()
        });
        assert!(caught.is_some(), "{}", canary.name());
    }

    #[test]
    fn the_same_seed_does_the_same() {
        for seed in 100..110 {
            let (one, two) = (run_seed(seed, None), run_seed(seed, None));
            assert_eq!(one.log, two.log);
            assert_eq!(one.outcome, two.outcome);
        }
        assert_ne!(run_seed(100, None).outcome, run_seed(101, None).outcome);
    }
}
