//! `qpair bench lookup|update|scan|insert|tpcc|ycsb|commit|io|files|peak`.

mod commit;
mod files;
mod io;
mod lookup;
mod peak;
mod store;
mod tpcc;
mod ycsb;

use clap::Subcommand;
use qpair_bench::Workload;

use crate::failure::{Exit, Result};
use commit::Commit;
use files::Files;
use io::Io;
pub(crate) use io::as_fio_takes_them;
use lookup::Lookups;
use peak::Peak;
use tpcc::Tpcc;
use ycsb::Ycsb;

/// Measure a store (lookups, updates, scans, inserts, TPC-C, YCSB, commits) or a device
#[derive(Subcommand, Debug)]
pub(crate) enum Bench {
    /// Look up records uniformly at random; a missing store is created and filled first
    Lookup(Lookups),
    /// Replace records uniformly at random
    Update(Lookups),
    /// Scan 100 records from random keys; one operation is one record
    Scan(Lookups),
    /// Insert all records in random order into a new store; --seconds has no effect
    Insert(Lookups),
    Tpcc(Tpcc),
    Ycsb(Ycsb),
    Commit(Commit),
    /// Run workloads over files, devices and specifiers: fio's options and job files
    Io(Io),
    Files(Files),
    Peak(Peak),
}

impl Bench {
    pub(crate) fn run(self) -> Result<Exit> {
        match self {
            Self::Lookup(args) => args.run(Workload::Lookup),
            Self::Update(args) => args.run(Workload::Update),
            Self::Scan(args) => args.run(Workload::Scan),
            Self::Insert(args) => args.run(Workload::Insert),
            Self::Tpcc(tpcc) => tpcc.run(),
            Self::Ycsb(ycsb) => ycsb.run(),
            Self::Commit(commit) => commit.run(),
            Self::Io(io) => io.run(),
            Self::Files(files) => files.run(),
            Self::Peak(peak) => peak.run(),
        }
    }
}
