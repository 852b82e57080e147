//! The project's own tasks, run as `cargo xtask`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod guide;
mod instructions;
mod nightly;
mod package;

use std::process::ExitCode;

use clap::Parser;
use qpair_sim::{drive, isolation, powercut, stores};

/// A task of the project.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Runs whole stores on simulated devices, and checks every answer and every recovered state
    Sim(stores::Options),
    /// Serves a drive with a volatile cache to a virtual machine, over NBD
    Drive(drive::Options),
    /// Lets hostile peers attack the servers and clients of vfio-user, NBD and NVMe/TCP, and
    /// verifies a good driver's blocks in between
    Hostile(qpair_hostile::Options),
    /// Runs transactions on lists, in threads and tasks, and judges by their reads whether they
    /// were isolated
    Isolation(isolation::Options),
    /// Cuts the power of stores on recorded disks at many moments, and judges the remaining data
    Powercut(powercut::Options),
    /// Runs the commands of the guide, and compares their output with that in its pages
    Guide(guide::Options),
    /// Counts the instructions of operations, and compares them with recorded counts
    Instructions(instructions::Options),
    /// Builds a static program and makes packages of it: .deb, .rpm, an image, a list of crates
    Package(package::Options),
    /// Runs the tests that take hours, and writes their results into the documents
    Nightly(nightly::Options),
}

fn main() -> ExitCode {
    match Task::parse() {
        Task::Sim(options) => stores::run(&options),
        Task::Drive(options) => drive::run(&options),
        Task::Hostile(options) => qpair_hostile::run(&options),
        Task::Isolation(options) => isolation::run(&options),
        Task::Powercut(options) => powercut::run(&options),
        Task::Guide(options) => guide::run(&options),
        Task::Instructions(options) => instructions::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Nightly(options) => nightly::run(&options),
    }
}
