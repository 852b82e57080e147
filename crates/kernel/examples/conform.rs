//! Runs the conformance suite on any file or block device, in any mode: for machines with hardware
//! or a kernel that a build machine lacks.
//!
//! The suite overwrites the first 2 MiB of the file or device, and its last block. A missing file
//! is created, and removed afterwards.

#![allow(clippy::print_stdout, reason = "a program that reports")]
#![allow(clippy::print_stderr, reason = "a program that reports")]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{BlockDevice, ErrorKind, Result};
use qpair_conformance::{Options, run};
use qpair_kernel::{FileOptions, KernelDevice, Mode, open};

const USAGE: &str =
    "usage: conform PATH MODE, such as /dev/nvme0n1 io_uring+p; what is on PATH is overwritten";

/// The maximum time for the kernel to release the device of the previous check.
const TIMEOUT: Duration = Duration::from_secs(2);

fn open_with_retry(options: &FileOptions, mode: Mode) -> Result<KernelDevice> {
    let start = Instant::now();
    loop {
        match open(options, mode) {
            Err(error) if error.kind() == ErrorKind::Busy && start.elapsed() < TIMEOUT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, mode] = &arguments[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let is_new = !Path::new(path).exists();
    let create = is_new.then_some(4 << 20);
    let mode = mode.parse::<Mode>();
    let first = mode.and_then(|mode| {
        let device = open_with_retry(&FileOptions { create, ..FileOptions::new(path) }, mode)?;
        println!("{}: {}", device.info().interface, device.info().mode);
        Ok(mode)
    });
    let mode = match first {
        Ok(mode) => mode,
        Err(error) => {
            eprintln!("conform: {error}");
            return ExitCode::from(2);
        }
    };
    let make = || -> Arc<dyn BlockDevice> {
        match open_with_retry(&FileOptions::new(path), mode) {
            Ok(device) => Arc::new(device),
            // The suite counts a panic as the check's failure.
            Err(error) => panic!("opening {path} again: {error}"),
        }
    };
    let report = run(make, Options::default());
    println!("{report}");
    if is_new && let Err(cause) = std::fs::remove_file(path) {
        eprintln!("conform: removing {path}: {cause}");
    }
    if report.failed().next().is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
