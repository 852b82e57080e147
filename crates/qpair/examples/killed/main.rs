//! Measures how soon a store opens after its process was killed: `killed FILE MIB load`, then
//! `killed FILE MIB run SECONDS` and `killed FILE MIB open` in turns.
//!
//! MIB of log lie between checkpoints. The store has two million rows of 1,008 bytes, five times
//! its memory and more. `run` reads and replaces 600 random rows a transaction, prints how many
//! rows that are a second, and aborts.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints what it measures")]

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use qpair::Options;

const ROWS: u64 = 2_000_000;

/// Returns the key of a row. Neighbours are far from each other.
fn key(row: u64) -> [u8; 8] {
    row.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wrong: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let [file, mib, what @ ..] = words else {
        return Err("killed FILE MIB load|run SECONDS|open".into());
    };
    let mut options = Options::new(file).memory_bytes(256 << 20).workers(2);
    options = options.checkpoint_bytes(mib.parse::<u64>()? << 20).format(what == ["load"]);
    let begun = Instant::now();
    let store = options.open()?;
    println!("open after {:.2} s", begun.elapsed().as_secs_f64());
    let table = store.table("t")?;
    match what {
        ["load"] => {
            for first in (0..ROWS).step_by(20_000) {
                let mut tx = store.begin();
                for row in first..first + 20_000 {
                    tx.put(&table, &key(row), &[row as u8; 1000])?;
                }
                tx.commit()?;
            }
            drop(table);
            store.close()?;
        }
        ["run", seconds] => {
            let (begun, limit) = (Instant::now(), Duration::from_secs(seconds.parse()?));
            let mut random = fastrand::Rng::new();
            let mut count = 0u64;
            while begun.elapsed() < limit {
                let mut tx = store.begin();
                for _ in 0..600 {
                    let key = key(random.u64(0..ROWS));
                    let mut value = table.get(&key)?.ok_or("a row is missing")?;
                    value[0] ^= 1;
                    tx.put(&table, &key, &value)?;
                }
                tx.commit()?;
                count += 600;
            }
            println!("{:.0} rows a second", count as f64 / begun.elapsed().as_secs_f64());
            std::process::abort();
        }
        _ => std::process::abort(),
    }
    Ok(())
}
