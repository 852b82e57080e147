//! `qpair bench lookup|update|scan|insert|tpcc|ycsb|commit|io|files|peak`.

mod commit;
mod files;
mod io;
mod lookup;
mod peak;
mod store;
mod tpcc;
mod ycsb;

use clap::{Args, Subcommand};
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
#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
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
        match self.what {
            What::Lookup(args) => args.run(Workload::Lookup),
            What::Update(args) => args.run(Workload::Update),
            What::Scan(args) => args.run(Workload::Scan),
            What::Insert(args) => args.run(Workload::Insert),
            What::Tpcc(tpcc) => tpcc.run(),
            What::Ycsb(ycsb) => ycsb.run(),
            What::Commit(commit) => commit.run(),
            What::Io(io) => io.run(),
            What::Files(files) => files.run(),
            What::Peak(peak) => peak.run(),
        }
    }
}
