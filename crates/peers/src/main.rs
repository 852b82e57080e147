//! `qpair-peers`: the workloads of `qpair bench` over RocksDB, WiredTiger and LMDB, with reports of
//! the same layout.

mod command;

use std::process::ExitCode;

use clap::Parser;

/// The workloads of qpair bench over RocksDB, WiredTiger and LMDB
#[derive(Parser, Debug)]
#[command(name = "qpair-peers", version)]
struct Arguments {
    #[command(subcommand)]
    command: command::Command,
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command prints its report")]
fn main() -> ExitCode {
    match Arguments::parse().command.run() {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("qpair-peers: {error}");
            ExitCode::FAILURE
        }
    }
}
