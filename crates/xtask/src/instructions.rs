//! Counts the instructions of operations with callgrind, and compares them with recorded counts: a
//! lookup, an update and a transaction in memory, a request of `bench io`, and one of a disk's
//! queue in the target.
//!
//! Counts of different compiler versions are not compared, since the generated code depends on the
//! compiler.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Options of `cargo xtask instructions`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Record the counts instead of comparing them
    #[arg(long)]
    write: bool,
    /// Permitted increase, percent
    #[arg(long, default_value_t = 0.5)]
    more_percent: f64,
    /// File with the recorded counts
    #[arg(long, value_name = "FILE", default_value = "docs/measure/instructions.txt")]
    file: PathBuf,
    /// Folder with `qpair` and `examples/`, built with the profile `ci`
    #[arg(long, value_name = "FOLDER")]
    built: PathBuf,
}

/// The numbers of operations of two runs. The difference of their instruction counts is used.
const COUNTS: [u64; 2] = [10_000, 60_000];
/// The number of requests in a turn of the target's test.
const TURN_REQUESTS: u64 = 4;

/// The names of the operations, as in the file.
const NAMES: [&str; 5] = ["get", "put", "commit", "bench-io", "target"];

/// Returns the run of a number of operations.
fn program(built: &Path, target_test: &Path, name: &str, count: u64) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    let count_text = count.to_string();
    match name {
        "bench-io" => valgrind.arg(built.join("qpair")).args([
            "bench",
            "io",
            "--name=counted",
            "--filename=null:size=1GiB",
            "--rw=randread",
            "--norandommap",
            "--bs=4k",
            "--iodepth=32",
            &format!("--number_ios={count}"),
        ]),
        "target" => {
            let turns = (count / TURN_REQUESTS).to_string();
            valgrind.env("QPAIR_TURNS", turns).arg(target_test).args([
                "--ignored",
                "--exact",
                "blk::tests::counted_reads",
            ])
        }
        _ => valgrind.arg(built.join("examples/instructions")).args([name, &count_text]),
    };
    valgrind
}

/// Builds the unit tests of the target with the profile `ci`, and returns their program.
fn target_test() -> Result<PathBuf, String> {
    let built = Command::new("cargo")
        .args(["test", "--profile", "ci", "-p", "qpair-serve", "-p", "qpair-cli", "--lib"])
        .args(["--no-run", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&built.stdout);
    let of_serve = |line: &&str| line.contains("\"name\":\"qpair_serve\"");
    text.lines()
        .filter(of_serve)
        .filter_map(|line| line.split("\"executable\":\"").nth(1)?.split('"').next())
        .next_back()
        .map(PathBuf::from)
        .ok_or_else(|| "cargo built no unit tests of qpair-serve".to_owned())
}

/// Compares the counts, or records them.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a command")]
pub(crate) fn run(options: &Options) -> ExitCode {
    match compare(options) {
        Ok(lines) => {
            lines.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<Vec<String>, String> {
    let compiler = compiler()?;
    let target_test = target_test()?;
    let per_op = |what| {
        let [few, many] = COUNTS;
        let run = |operations| count(what, program(&options.built, &target_test, what, operations));
        let more = run(many)?.saturating_sub(run(few)?);
        Ok::<f64, String>(more as f64 / (many - few) as f64)
    };
    let mut counted = Vec::new();
    for what in NAMES {
        counted.push((what, per_op(what)?));
    }
    let text = |(what, per_op): &(&str, f64)| format!("{what} {per_op:.1}\n");
    if options.write {
        let all: String = counted.iter().map(text).collect();
        std::fs::write(&options.file, format!("{compiler}\n{all}"))
            .map_err(|error| format!("{}: {error}", options.file.display()))?;
        return Ok(vec![format!("{} is written", options.file.display())]);
    }
    let before = std::fs::read_to_string(&options.file)
        .map_err(|error| format!("{}: {error}; --write makes it", options.file.display()))?;
    let mut before = before.lines();
    let theirs = before.next().unwrap_or_default();
    if theirs != compiler {
        let counted: String = counted.iter().map(text).collect();
        return Ok(vec![
            format!("not compared: counted with \"{theirs}\", and this is \"{compiler}\""),
            counted.replace('\n', "; "),
        ]);
    }
    let mut lines = Vec::new();
    for ((what, counted), line) in counted.iter().zip(before) {
        let old: f64 =
            line.strip_prefix(what).and_then(|number| number.trim().parse().ok()).ok_or_else(
                || format!("{}: \"{line}\" is no count of {what}", options.file.display()),
            )?;
        let most = options.more_percent;
        let percent_of = |counted: f64| (counted / old - 1.0) * 100.0;
        let mut counted = *counted;
        if percent_of(counted) > most {
            // On a busy machine, what a program does once a second is done more often.
            counted = counted.min(per_op(what)?);
        }
        let percent = percent_of(counted);
        let line = format!("{what}: {counted:.1} instructions, {percent:+.2} % of {old:.1}");
        if percent > most {
            return Err(format!(
                "{line}: more than {most} %; if it is worth that, write it down with --write"
            ));
        }
        lines.push(line);
    }
    Ok(lines)
}

fn compiler() -> Result<String, String> {
    let said = Command::new("rustc").arg("--version").output();
    let said = said.map_err(|error| format!("rustc: {error}"))?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// Returns the number of instructions of all threads in a run.
fn count(what: &str, mut program: Command) -> Result<u64, String> {
    let said = program.output().map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&said.stderr);
    let collected = text
        .split("Collected :")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next().and_then(|number| number.parse().ok()));
    match (said.status.success(), collected) {
        (true, Some(collected)) => Ok(collected),
        _ => Err(format!("{what} under callgrind: {text}")),
    }
}
