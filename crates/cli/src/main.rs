//! The `qpair` command.
//!
//! A module imports those further down only:
//!
//! - `command/`: one file or folder per subcommand: its arguments, and what it does. A command
//!   imports no other.
//! - `study/`: the environment of a study.
//! - `transfer/`: exports and imports: formats of this store and of others.
//! - `load/`: loads lines of input as records into a table.
//! - `parse/`: arguments of several commands: which store and how to open it, keys, sizes.
//! - `events/`: logs.
//! - `show/`: output that survives a closed pipe, bars, words for numbers.
//! - `version`: the build of this command.
//! - `interrupt`, `failure`: requests to stop, and errors with a way out.
//!
//! Everything about stores is in the library `qpair`. This crate parses arguments and prints
//! results.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![allow(
    clippy::print_stderr,
    reason = "a command tells people on standard error what is going on"
)]
#![forbid(unsafe_code)]

mod command;
mod events;
mod failure;
mod interrupt;
mod load;
mod parse;
mod show;
mod study;
mod transfer;
mod version;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, Parser};

use command::Command;
use interrupt::Interrupt;

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
#[command(name = "qpair", version, long_version = version::long(), after_help = EXIT_CODES, max_term_width = 100)]
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
    match command.run(Arguments::command) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(Interrupt::was_requested()),
    }
}
