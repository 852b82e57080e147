//! Deterministic simulation: whole stores on simulated devices, with power cuts and faults, judged
//! by a model. See docs/design/simulation.md.
//!
//! A run follows from its seed alone: running the same seed again repeats every byte.

mod backups;
mod beside;
mod catalog;
mod damage;
mod errands;
mod expiring;
mod full;
mod hba;
mod histories;
mod lives;
mod makings;
mod oracle;
mod plan;
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

use plan::{Devices, Plan, Planted};
use summary::{Counts, Summary};

use crate::console::Console;

/// Options of `cargo xtask sim`.
#[derive(clap::Args)]
pub struct Options {
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds, one after the other
    #[arg(long, default_value_t = 100)]
    runs: u64,
    /// Runs at a time; 0: as many as there are cores
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Kind of devices: simulated devices, or disks behind a soft HBA with its driver
    #[arg(long, value_enum, default_value_t = Devices::Sim)]
    device: Devices,
    /// Plant this bug in the store, or in the SCSI stack; the simulation must catch it
    #[arg(long, value_parser = Planted::parse)]
    canary: Option<Planted>,
    /// Name the bugs that can be planted in what `--device` names, one a line
    #[arg(long)]
    list_canaries: bool,
    /// Let tasks work with lists alone, in every run: the judge of isolation is told what they read
    #[arg(long)]
    lists: bool,
    /// Tell each run's story
    #[arg(long)]
    verbose: bool,
}

/// Runs the simulation. The exit code is 1 if a run failed or a planted bug was not caught, and 130
/// after Ctrl-C.
pub fn run(options: &Options) -> ExitCode {
    let mut console = Console::new();
    if options.list_canaries {
        for planted in Planted::all(options.device) {
            console.say(format_args!("{}", planted.name()));
        }
        return console.exit_code(0);
    }
    let start = Instant::now();
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let plan = Plan { devices: options.device, planted: options.canary, only_lists: options.lists };
    let mut counts = Counts::default();
    let (mut done, mut failures) = (0u64, 0);
    runner::run_seeds(options.seed, options.runs, threads, plan, |report| {
        counts += report.counts;
        done += 1;
        if options.verbose {
            console.say(format_args!("seed {}", report.seed));
            report.log.iter().for_each(|line| console.say(format_args!("  {line}")));
        }
        match &report.outcome {
            Ok(trace) if options.verbose => console.say(format_args!("  trace {trace:016x}")),
            Ok(_) => {}
            Err(wrong) => {
                failures += 1;
                let seed = report.seed;
                console.say(format_args!(
                    "failed: cargo xtask sim{plan} --seed {seed} --runs 1 --verbose: {wrong}"
                ));
            }
        }
        console.progress(format_args!(
            "sim: {done} of {} runs, {failures} failed, in {:.0} s",
            options.runs,
            start.elapsed().as_secs_f64()
        ));
        // For a planted bug, one catch is enough.
        !console.is_over() && (options.canary.is_none() || failures == 0)
    });
    console.say(format_args!("{}", Summary { counts, failures, took: start.elapsed() }));
    match options.canary {
        None => console.exit_code(failures),
        Some(canary) => console.verdict_of_planted("bug", canary.name(), failures > 0),
    }
}

#[cfg(test)]
mod tests {
    use qpair_engine::Canary;

    use super::plan::{Devices, Plan, Planted};
    use super::runner::{run_seed, run_seeds};
    use super::summary::Counts;

    const ON_SIM: Plan = Plan { devices: Devices::Sim, planted: None, only_lists: false };
    const ON_HBA: Plan = Plan { devices: Devices::Hba, planted: None, only_lists: false };

    /// Runs seeds that must all succeed, and returns their counts.
    fn run_well(runs: u64, plan: Plan) -> Counts {
        let (mut failures, mut counts) = (Vec::new(), Counts::default());
        run_seeds(1, runs, 2, plan, |report| {
            counts += report.counts;
            if let Err(wrong) = report.outcome {
                failures.push((report.seed, wrong));
            }
            true
        });
        assert!(failures.is_empty(), "{failures:#?}");
        counts
    }

    #[test]
    fn a_few_seeds() {
        run_well(40, ON_SIM);
    }

    /// All kinds of faults behind an HBA occur within this small number of seeds.
    #[test]
    fn a_few_seeds_on_disks_behind_an_hba() {
        let counts = run_well(60, ON_HBA);
        assert!(counts.met.missing().is_empty(), "{:?}", counts.met.missing());
    }

    fn is_caught(planted: Planted, plan: Plan) -> bool {
        let mut caught = None;
        run_seeds(1, 10_000, 2, Plan { planted: Some(planted), ..plan }, |report| {
            caught = caught.or(report.outcome.is_err().then_some(report.seed));
            caught.is_none()
        });
        caught.is_some()
    }

    /// `.ci/run sim` plants all bugs. This test plants one of each kind, to show that failures are
    /// noticed.
    #[test]
    fn a_planted_bug_is_caught() {
        for plan in [ON_SIM, ON_HBA] {
            let planted = Planted::all(plan.devices).next().unwrap();
            assert!(is_caught(planted, plan), "{}", planted.name());
        }
    }

    /// The judge of isolation finds the bugs, knowing only what tasks read from lists.
    #[test]
    fn the_judge_finds_planted_bugs() {
        for canary in [Canary::LostUpdate, Canary::UncheckedReads, Canary::DeletedKeysOutOfOrder] {
            let plan = Plan { only_lists: true, ..ON_SIM };
            assert!(is_caught(Planted::Engine(canary), plan), "{}", canary.name());
        }
    }

    #[test]
    fn the_same_seed_does_the_same() {
        for plan in [ON_SIM, ON_HBA] {
            for seed in 100..110 {
                let (one, two) = (run_seed(seed, plan), run_seed(seed, plan));
                assert_eq!(one.log, two.log);
                assert_eq!(one.outcome, two.outcome);
            }
            assert_ne!(run_seed(100, plan).outcome, run_seed(101, plan).outcome);
        }
    }
}
