//! The subcommands: one workload each.

mod commit;
mod store;
mod tpcc;
mod ycsb;

use clap::Subcommand;
use qpair::Result;

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// TPC-C: all five transactions in the standard's mix, no think time, not audited
    Tpcc(tpcc::Tpcc),
    /// YCSB's core workloads, 10 fields of 100 bytes a record
    Ycsb(ycsb::Ycsb),
    /// Updates of single rows, each a transaction
    Commit(commit::Update),
    /// Inserts in random order into a new store
    Insert(commit::Insert),
}

impl Command {
    /// Runs the workload. Returns its report as JSON.
    pub(crate) fn run(self) -> Result<String> {
        match self {
            Self::Tpcc(tpcc) => tpcc.run(),
            Self::Ycsb(ycsb) => ycsb.run(),
            Self::Commit(update) => update.run(),
            Self::Insert(insert) => insert.run(),
        }
    }
}
