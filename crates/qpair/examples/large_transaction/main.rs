//! Measures transactions with many rows: `large_transaction FILE ROWS asc|random [MIB]`.
//!
//! The rows have keys of 36 bytes and values of 100. The first transaction puts them, the second
//! replaces them. MIB is the memory for the writes of a transaction; by default, that of a store.
//! Prints microseconds a row, and the greatest memory of the process so far.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints what it measures")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use qpair::Options;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wrong: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [file, rows, order, limit @ ..] = words else {
        return Err("large_transaction FILE ROWS asc|random [MIB]".into());
    };
    let rows: u64 = rows.parse()?;
    let mut numbers: Vec<u64> = (0..rows).collect();
    if order == "random" {
        fastrand::Rng::with_seed(1).shuffle(&mut numbers);
    }
    let mut options = Options::new(file).format(true).memory_bytes(64 << 20).workers(2);
    if let Some(mib) = limit.first() {
        options = options.transaction_bytes_max(mib.parse::<usize>()? << 20);
    }
    let store = options.open()?;
    let table = store.table("t")?;
    let before = memory_mib()?;
    for round in 0..2u8 {
        let mut tx = store.begin();
        let begun = Instant::now();
        for number in &numbers {
            tx.put(&table, format!("{number:036}").as_bytes(), &[round; 100])?;
        }
        let (put, memory_put) = (begun.elapsed(), memory_mib()?);
        let begun = Instant::now();
        tx.commit()?;
        let us = |time: std::time::Duration| time.as_secs_f64() * 1e6 / rows as f64;
        println!(
            "{}: put {:.2} us a row, {} MiB; commit {:.2} us a row, {} MiB",
            ["new", "replaced"][usize::from(round)],
            us(put),
            memory_put - before,
            us(begun.elapsed()),
            memory_mib()? - before,
        );
    }
    drop(table);
    store.close()?;
    Ok(())
}

/// Returns the greatest memory of this process so far, in MiB.
fn memory_mib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).ok_or("no VmHWM")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kib >> 10)
}
