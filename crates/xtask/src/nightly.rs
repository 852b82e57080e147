//! Tests that take hours, one after the other: the parts of `.ci/run` that prove more the longer
//! they run, a store behind a failing SAS controller, and a load that stops and starts while an
//! NVMe controller sleeps. Their results replace the table in docs/measure/nightly.md, with date
//! and commit.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Options of `cargo xtask nightly`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seeds of the simulation
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// First seed; by default another one each day
    #[arg(long)]
    seed: Option<u64>,
    /// Transactions on lists whose isolation is judged
    #[arg(long, default_value_t = 1_000_000)]
    isolation_transactions: u64,
    /// Kills of a process that runs such transactions
    #[arg(long, default_value_t = 2000)]
    isolation_kills: u64,
    /// Losses of power of stores on recorded disks
    #[arg(long, default_value_t = 20_000)]
    powercut_states: u64,
    /// Seconds for each fuzz target
    #[arg(long, default_value_t = 900)]
    fuzz_seconds: u64,
    /// Seconds of hostile clients and servers
    #[arg(long, default_value_t = 1200)]
    hostile_seconds: u64,
    /// Incarnations of a store behind a SAS controller
    #[arg(long, default_value_t = 500)]
    hba_lives: u64,
    /// Seconds of a load that stops and starts at random, before an NVMe controller that sleeps
    /// meanwhile
    #[arg(long, default_value_t = 3600)]
    doorbell_seconds: u64,
    /// Seconds of each run of the trial of a Raft group
    #[arg(long, default_value_t = 60)]
    openraft_seconds: u64,
    /// Seconds of Kafka's smoke test, whose application is killed meanwhile
    #[arg(long, default_value_t = 300)]
    kafka_seconds: u64,
    /// This part only; may be repeated
    #[arg(long = "only", value_name = "PART", value_parser = PARTS)]
    only: Vec<String>,
    /// File for the table
    #[arg(long, value_name = "FILE", default_value = "docs/measure/nightly.md")]
    out: PathBuf,
}

const PARTS: [&str; 14] = [
    "sim",
    "isolation",
    "powercut",
    "hba",
    "doorbells",
    "hostile",
    "asan",
    "guide",
    "package",
    "guest",
    "openraft",
    "kafka",
    "nvme_tls",
    "fuzz",
];
/// The number of transactions of one run of the part `isolation`.
const ISOLATION_RUN: u64 = 3000;
/// The number of states of one incarnation in the part `powercut`, and of one run, which has three
/// incarnations.
const POWERCUT_STATES: u64 = 40;
const POWERCUT_RUN: u64 = 3 * POWERCUT_STATES;
/// The arguments of cargo for the tests of the parts `hba` and `doorbells`.
const HBA_TEST: &str = "test -p qpair --profile ci --test qpair hba -- --nocapture";
const DOORBELL_TEST: &str =
    "test -p qpair-serve --profile ci --test serve stops_and_starts -- --nocapture";

/// The result of a part.
struct Outcome {
    part: &'static str,
    extent: String,
    passed: bool,
    minutes: u64,
    /// The lines of the output that state how much was done.
    said: Vec<String>,
}

/// Runs the parts and writes the table. If a part fails, the others still run.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a command")]
pub(crate) fn run(options: &Options) -> ExitCode {
    let mut outcomes = Vec::new();
    for part in PARTS {
        if !options.only.is_empty() && !options.only.iter().any(|only| only == part) {
            continue;
        }
        println!("=== {part}");
        match run_part(part, options) {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => {
                eprintln!("running part {part}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if let Err(error) = std::fs::write(&options.out, table(&outcomes)) {
        eprintln!("writing {}: {error}", options.out.display());
        return ExitCode::FAILURE;
    }
    println!("written: {}", options.out.display());
    if outcomes.iter().all(|outcome| outcome.passed) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run_part(part: &'static str, options: &Options) -> io::Result<Outcome> {
    let seed = options.seed.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_secs() / 86_400 * 1_000_000
    });
    let (variables, extent) = match part {
        "sim" => (
            vec![("SIM_SEEDS", options.seeds.to_string()), ("SIM_SEED", seed.to_string())],
            format!("{} seeds from {seed}, every planted bug", options.seeds),
        ),
        "isolation" => (
            vec![
                (
                    "ISOLATION_RUNS",
                    options.isolation_transactions.div_ceil(ISOLATION_RUN).to_string(),
                ),
                ("ISOLATION_KILLS", options.isolation_kills.to_string()),
                ("ISOLATION_SEED", seed.to_string()),
            ],
            format!(
                "{} transactions and {} kills from seed {seed}, planted bugs",
                options.isolation_transactions, options.isolation_kills
            ),
        ),
        "powercut" => (
            vec![
                ("POWERCUT_RUNS", options.powercut_states.div_ceil(POWERCUT_RUN).to_string()),
                ("POWERCUT_STATES", POWERCUT_STATES.to_string()),
                ("POWERCUT_SEED", seed.to_string()),
            ],
            format!("{} losses of power from seed {seed}, planted faults", options.powercut_states),
        ),
        "hba" => (
            vec![
                ("QPAIR_HBA_LIVES", options.hba_lives.to_string()),
                ("QPAIR_HBA_SEED", seed.to_string()),
            ],
            format!("{} lives from seed {seed}", options.hba_lives),
        ),
        "doorbells" => (
            vec![
                ("QPAIR_DOORBELL_SECONDS", options.doorbell_seconds.to_string()),
                ("QPAIR_DOORBELL_SEED", seed.to_string()),
            ],
            format!("{} s from seed {seed}", options.doorbell_seconds),
        ),
        "hostile" => (
            vec![("HOSTILE_SECONDS", options.hostile_seconds.to_string())],
            format!("{} s", options.hostile_seconds),
        ),
        "asan" => (vec![("ASAN", "all".to_owned())], "the whole workspace".to_owned()),
        "guide" => (vec![("GUIDE", "install".to_owned())], "commands and the book".to_owned()),
        "guest" => (vec![("GUEST", "all".to_owned())], "every test on both kernels".to_owned()),
        "openraft" => (
            vec![("OPENRAFT_SECONDS", options.openraft_seconds.to_string())],
            format!("{} s each run, planted bugs", options.openraft_seconds),
        ),
        "kafka" => (
            vec![("KAFKA_SECONDS", options.kafka_seconds.to_string())],
            format!("Kafka's tests, and {} s of kills", options.kafka_seconds),
        ),
        "nvme_tls" => (Vec::new(), "built with C, Linux's initiator".to_owned()),
        "package" => (
            vec![("PACKAGE", "all".to_owned())],
            "a static program from two folders, every crate from its package".to_owned(),
        ),
        _ => (
            vec![
                ("FUZZ_SECONDS", options.fuzz_seconds.to_string()),
                ("FUZZ_SANITIZER", "address".to_owned()),
            ],
            format!("{} s each target", options.fuzz_seconds),
        ),
    };
    let start = Instant::now();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let test = match part {
        "hba" => Some(HBA_TEST),
        "doorbells" => Some(DOORBELL_TEST),
        _ => None,
    };
    let mut command = Command::new(root.join(".ci/run"));
    match test {
        Some(test) => {
            command = Command::new(env!("CARGO"));
            command.args(test.split(' ')).current_dir(&root);
        }
        None => {
            command.arg(part);
        }
    }
    let mut child = command.envs(variables).stdout(Stdio::piped()).spawn()?;
    let mut said = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line?;
            echo(&line);
            if tells(part, &line) {
                said.push(line.trim().to_owned());
            }
        }
    }
    let passed = child.wait()?.success();
    Ok(Outcome { part, extent, passed, minutes: start.elapsed().as_secs().div_ceil(60), said })
}

#[expect(clippy::print_stdout, reason = "the output of a part goes through")]
fn echo(line: &str) {
    println!("{line}");
}

/// Whether a line of a part's output states how much was done, or what failed.
fn tells(part: &str, line: &str) -> bool {
    if line.starts_with("failed:") || line.starts_with("wrong:") || line.starts_with("skipped:") {
        return true;
    }
    match part {
        "sim" => line.contains("runs, ") || line.contains("not caught"),
        "isolation" => line.starts_with("isolation:") || line.contains("not caught"),
        "powercut" => line.starts_with("powercut:") || line.contains("not caught"),
        "fuzz" => line.ends_with(" inputs"),
        "hba" | "doorbells" => {
            line.starts_with("test result:") || line.contains("FAILED") || line.contains("bursts, ")
        }
        "hostile" => {
            ["hostile:", "before:", "after:"].iter().any(|word| line.starts_with(word))
                || line.contains("got as far")
        }
        "guide" => line.ends_with(" all links lead somewhere"),
        "openraft" => {
            line.ends_with("calls: Ok") || line.contains("found: ") || line.starts_with("Error: ")
        }
        "kafka" => {
            line.contains(" suppliers of qpair, ")
                || line.contains(" kills of ")
                || line.starts_with("the results with a kill")
        }
        "nvme_tls" => line.starts_with("built in ") || line.ends_with(": right"),
        "guest" => line.starts_with("--- ") && line.contains("failed"),
        "package" => line.ends_with(" crates") || line.contains(" crates are listed"),
        _ => line.contains("FAILED") || line.contains("AddressSanitizer:"),
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "# The last long run\n\nMade by `cargo xtask nightly` on {}, commit {}, {}.\n\n| part | how far | result | minutes |\n|---|---|---|---|\n",
        said_by("date", &["-u", "+%Y-%m-%d"]),
        said_by("git", &["rev-parse", "--short", "HEAD"]),
        said_by("uname", &["-sr"]),
    );
    for Outcome { part, extent, passed, minutes, said } in outcomes {
        let result = if *passed { "passed" } else { "**failed**" };
        let said = said.iter().rev().take(12).rev().map(|line| line.replace('|', "/"));
        let said = said.collect::<Vec<_>>().join("<br>");
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {part} | {extent} | {result}. {said} | {minutes} |");
    }
    text
}

/// Returns the output of a command, or "?" if it cannot be run.
fn said_by(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command).args(arguments).output();
    let said = output.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    said.map_or_else(|| "?".to_owned(), |said| said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Outcome, table};

    #[test]
    fn a_part_that_failed_is_told_in_the_table() {
        let failed = Outcome {
            part: "fuzz",
            extent: "1 s each target".to_owned(),
            passed: false,
            minutes: 2,
            said: vec!["wrong: a|b".to_owned()],
        };
        let text = table(&[failed]);
        assert!(text.contains("| fuzz | 1 s each target | **failed**. wrong: a/b | 2 |"), "{text}");
    }
}
