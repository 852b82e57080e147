//! `qpair-peers ycsb`.

use clap::Args;
use qpair::Result;
use qpair_bench::Silent;
use qpair_bench::kv::Kv;
use qpair_bench::ycsb::{YCSB_TABLES, YcsbOptions, YcsbReport, YcsbWorkload, run_ycsb};

use super::store::{Job, StoreArgs};

#[derive(Args, Debug)]
pub(crate) struct Ycsb {
    #[command(flatten)]
    store: StoreArgs,

    /// The workload: A to F
    #[arg(long, value_name = "LETTER")]
    workload: YcsbWorkload,

    /// Records that are loaded
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,

    /// Operations to do, instead of --seconds
    #[arg(long, value_name = "N")]
    operations: Option<u64>,

    /// Seed of the inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Ycsb {
    pub(crate) fn run(&self) -> Result<String> {
        self.store.run(&YCSB_TABLES, self)
    }
}

impl Job for Ycsb {
    type Report = YcsbReport;

    fn run<K: Kv>(&self, kv: &K) -> Result<YcsbReport> {
        let options = YcsbOptions {
            workload: self.workload,
            records: self.records,
            clients: self.store.threads,
            seconds: self.store.seconds,
            operations: self.operations,
            warm_up_seconds: self.store.warm_up,
            durability: self.store.durability(),
            seed: self.seed,
            ..YcsbOptions::default()
        };
        run_ycsb(kv, &options, &Silent)
    }
}
