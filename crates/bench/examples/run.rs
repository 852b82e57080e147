//! Runs one workload from environment-like arguments: `run lookup STORE RECORDS MEMORY_MIB IO WORKERS TASKS SECONDS`.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::print_stderr, reason = "an example talks to people")]
use qpair_bench::{RunOptions, Silent, run};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let o = RunOptions {
        store: a[2].clone().into(), records: a[3].parse().unwrap(), memory_bytes: a[4].parse::<u64>().unwrap() << 20,
        io: a[5].parse().unwrap(), workers: a[6].parse().unwrap(), tasks: a[7].parse().unwrap(), seconds: a[8].parse().unwrap(),
        ceiling_seconds: a.get(9).map_or(0.0, |s| s.parse().unwrap()), batch: a.get(10).map_or(32, |s| s.parse().unwrap()), linger_us: a.get(11).map_or(100, |s| s.parse().unwrap()), ..RunOptions::default()
    };
    match run(a[1].parse().unwrap(), &o, &Silent) {
        Ok(r) => println!("{}", serde_json::to_string_pretty(&r).unwrap()),
        Err(e) => { eprintln!("{e}"); std::process::exit(1) }
    }
}
