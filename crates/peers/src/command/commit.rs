//! `qpair-peers commit` and `qpair-peers insert`.

use clap::Args;
use qpair::Result;
use qpair_bench::Silent;
use qpair_bench::commit::{COMMIT_TABLES, CommitOptions, CommitReport, CommitWork, run_commit};
use qpair_bench::kv::Kv;

use super::store::{Job, StoreArgs};

/// Updates of rows.
#[derive(Args, Debug)]
pub(crate) struct Update {
    #[command(flatten)]
    store: StoreArgs,

    /// Records in the store
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    records: u64,

    /// Rows of a transaction
    #[arg(long, value_name = "N", default_value_t = 1)]
    rows: u32,
}

/// Inserts of rows.
#[derive(Args, Debug)]
pub(crate) struct Insert {
    #[command(flatten)]
    store: StoreArgs,

    /// Records to insert; --seconds and --warm-up do not count
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    records: u64,

    /// Rows of a transaction
    #[arg(long, value_name = "N", default_value_t = 100)]
    rows: u32,
}

struct Small<'a> {
    store: &'a StoreArgs,
    work: CommitWork,
    records: u64,
    rows: u32,
}

impl Update {
    pub(crate) fn run(&self) -> Result<String> {
        let (store, records, rows) = (&self.store, self.records, self.rows);
        store.run(&COMMIT_TABLES, &Small { store, work: CommitWork::Update, records, rows })
    }
}

impl Insert {
    pub(crate) fn run(&self) -> Result<String> {
        let (store, records, rows) = (&self.store, self.records, self.rows);
        store.run(&COMMIT_TABLES, &Small { store, work: CommitWork::Insert, records, rows })
    }
}

impl Job for Small<'_> {
    type Report = CommitReport;

    fn run<K: Kv>(&self, kv: &K) -> Result<CommitReport> {
        let options = CommitOptions {
            work: self.work,
            records: self.records,
            rows_per_tx: self.rows,
            clients: self.store.threads,
            seconds: self.store.seconds,
            warm_up_seconds: self.store.warm_up,
            durability: self.store.durability(),
            ..CommitOptions::default()
        };
        run_commit(kv, &options, &Silent)
    }
}
