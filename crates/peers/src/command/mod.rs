//! The subcommands: one workload each.

mod store;
mod tpcc;

use clap::Subcommand;
use qpair::Result;

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// TPC-C: all five transactions in the standard's mix, no think time, not audited
    Tpcc(tpcc::Tpcc),
}

impl Command {
    /// Runs the workload; its report as JSON.
    pub(crate) fn run(self) -> Result<String> {
        match self {
            Self::Tpcc(tpcc) => tpcc.run(),
        }
    }
}
