//! Works on a store until it is killed, and says which commits were acknowledged; or judges what a crash has left.
//!
//!   survivor work STORE SEED [MEMORY_BYTES] [buffered]     a line "ack TASK NUMBER" for each commit, on standard output
//!   survivor judge STORE JOURNAL [buffered]     whether all of those lines are kept, and nothing in part
//!
//! `crates/qpair/tests/kill.rs` does the same with kills; `guest/tests/power` takes the power away.

#![forbid(unsafe_code)]
#![allow(clippy::print_stderr, reason = "a command says what went wrong")]

mod work;

use std::io::Write;
use std::process::ExitCode;

use qpair::Options;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["work", store, seed, ..] => run_work(store, seed, &words[3..]),
        ["judge", store, journal, ..] => run_judge(store, journal, &words[3..]),
        _ => Err("survivor work STORE SEED | survivor judge STORE JOURNAL".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("wrong: {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn options(store: &str, words: &[&str]) -> Options {
    let memory_bytes = words.iter().find_map(|word| word.parse().ok()).unwrap_or(4 << 20);
    Options::new(store).memory_bytes(memory_bytes).workers(2).buffered(words.contains(&"buffered"))
}

fn run_work(store: &str, seed: &str, words: &[&str]) -> Result<(), String> {
    let seed = seed.parse().map_err(|_| "a seed is a number".to_owned())?;
    let acknowledged = |task: u32, number: u64| {
        // One write, so that no two lines mix.
        let line = format!("ack {task} {number}\n");
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    };
    work::work(options(store, words), seed, acknowledged).map_err(|error| error.to_string())
}

fn run_judge(store: &str, journal: &str, words: &[&str]) -> Result<(), String> {
    let journal = std::fs::read(journal).map_err(|error| format!("{journal}: {error}"))?;
    let acknowledged = work::read_journal(&journal);
    let open = || options(store, words).open().map_err(|error| error.to_string());
    let opened = open()?;
    let state = work::judge(&opened, &acknowledged)?;
    opened.close().map_err(|error| error.to_string())?;
    let opened = open()?;
    let report = opened.check(&|_, _| ()).map_err(|error| error.to_string())?;
    if !report.is_sound() || report.leaked_pages > 0 {
        return Err(format!("{} pages leaked; {:?}", report.leaked_pages, report.faults));
    }
    opened.close().map_err(|error| error.to_string())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{state}").map_err(|error| error.to_string())
}
