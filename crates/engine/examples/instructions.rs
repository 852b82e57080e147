//! A fixed run of lookups, updates or transactions in memory, for callgrind to count: `instructions
//! get|get_with|put|commit COUNT`. A transaction reads ten records and updates two. `cargo xtask
//! instructions` calls it.

#![allow(clippy::print_stderr, reason = "an example says how it is called")]

use std::process::ExitCode;
use std::sync::Arc;

use qpair_block::{BlockDevice, RamDevice, RamOptions};
use qpair_engine::{Result, Store, StoreOptions};

const RECORDS: u64 = 20_000;
const VALUE: [u8; 120] = [7; 120];

fn run(what: &str, count: u64) -> Result<()> {
    let ram = RamDevice::new(RamOptions { size_bytes: 64 << 20, ..RamOptions::default() })
        .map_err(|error| qpair_engine::Error::block(error, "a device in memory"))?;
    let device: Arc<dyn BlockDevice> = Arc::new(ram);
    // Without a log, `put` runs on the calling thread, as a lookup does. The difference of two runs
    // therefore contains no instructions of other threads.
    let options = StoreOptions {
        format: true,
        memory_bytes: 32 << 20,
        workers: 1,
        log: false,
        checkpoint_bytes: u64::MAX,
        ..StoreOptions::default()
    };
    let store = Store::open(vec![device], &options)?;
    let table = store.table("t")?;
    table.bulk_load((0..RECORDS).map(|key| Ok((key.to_be_bytes().to_vec(), VALUE.to_vec()))))?;
    let mut key = 1_u64;
    let mut next = || {
        // Knuth's generator: the same keys everywhere.
        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((key >> 33) % RECORDS).to_be_bytes()
    };
    for _ in 0..count {
        let record = next();
        match what {
            "commit" => {
                let mut transaction = store.begin();
                for _ in 0..10 {
                    std::hint::black_box(transaction.get(&table, &next())?);
                }
                transaction.put(&table, &record, &VALUE)?;
                transaction.put(&table, &next(), &VALUE)?;
                transaction.commit()?;
            }
            "put" => drop(table.put(&record, &VALUE)?),
            "get_with" => {
                let _ = table.get_with(&record, |value| *std::hint::black_box(&value.len()))?;
            }
            _ => drop(std::hint::black_box(table.get(&record)?)),
        }
    }
    store.close()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let asked = match &words[..] {
        [what, count] => count.parse().ok().map(|count| (what.as_str(), count)),
        _ => None,
    };
    let outcome = match asked {
        Some((what @ ("get" | "get_with" | "put" | "commit"), count)) => run(what, count),
        _ => {
            eprintln!("instructions get|get_with|put|commit COUNT");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
