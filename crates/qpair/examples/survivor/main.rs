//! Works on a store until it is killed, and says which commits were acknowledged; or judges what a
//! crash has left.
//!
//!   survivor make STORE             makes a store on a blank file or device
//!   survivor work STORE SEED        a line "ack TASK NUMBER" for each commit, on standard output
//!   survivor judge STORE JOURNAL    whether all of those lines are kept, and nothing in part
//!
//! `crates/qpair/tests/qpair/kill.rs` does the same with kills; `guest/tests/power` takes the power
//! away.

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
        ["make", store] => run_make(store),
        ["work", store, seed] => run_work(store, seed),
        ["judge", store, journal] => run_judge(store, journal),
        _ => Err("survivor make STORE | work STORE SEED | judge STORE JOURNAL".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("wrong: {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn options(store: &str) -> Options {
    Options::new(store).memory_bytes(4 << 20).workers(2)
}

fn run_make(store: &str) -> Result<(), String> {
    let made = options(store).format(true).open();
    made.and_then(|store| store.close()).map_err(|error| error.to_string())
}

fn run_work(store: &str, seed: &str) -> Result<(), String> {
    let seed = seed.parse().map_err(|_| "a seed is a number".to_owned())?;
    let acknowledged = |task: u32, number: u64| {
        // One write, so that no two lines mix.
        let line = format!("ack {task} {number}\n");
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    };
    work::work(&options(store), seed, acknowledged).map_err(|error| error.to_string())
}

fn run_judge(store: &str, journal: &str) -> Result<(), String> {
    let journal = std::fs::read(journal).map_err(|error| format!("{journal}: {error}"))?;
    let acknowledged = work::read_journal(&journal);
    let open = || work::open(&options(store)).map_err(|error| error.to_string());
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
