//! The `qpair` command.
//!
//! - - `command/`: one file per subcommand, with its arguments and its implementation.
//! - - `load/`: loads lines of input as records into a table.
//! - - The other modules are shared: opening a store, parsing keys and sizes, output that survives
//!   a closed pipe, and errors with advice.
//!
//! Everything about stores is in the library `qpair`. This crate parses arguments and prints
//! results.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![allow(
    clippy::print_stderr,
    reason = "a command tells people on standard error what is going on"
)]
#![forbid(unsafe_code)]

mod bar;
mod command;
mod events;
mod failure;
mod interrupt;
mod key;
mod live;
mod load;
mod output;
mod paint;
mod record_line;
mod store_args;
mod study_lab;
mod study_stores;
mod text;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use command::Command;

/// Exit codes, for every command's help.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    no such key or table; for check, log and repair: damage was found
  2    wrong use of the command
  3    an error of the store, the machine or the input
  130  interrupted; the work done until then is in the store";

/// Use an embedded key-value store on files and block devices from the command line.
///
/// STORE is a file, a block device, or a device specifier such as stripe:unit=64KiB:A+B. Sizes are
/// written as 4096, 64KiB, 1.5GiB.
#[derive(Parser)]
#[command(name = "qpair", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let Arguments { command } =
        Arguments::parse_from(command::as_fio_takes_them(std::env::args_os()));
    // With this handler, a write beyond the file size limit (ulimit -f) fails with an error that
    // says so, and does not end the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    // `target` logs events. Other commands show them as notes.
    if !matches!(command, Command::Target(_)) {
        events::notes();
    }
    match command.run() {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}
