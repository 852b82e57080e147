//! `qpair-peers tpcc`.

use clap::Args;
use qpair::Result;
use qpair_bench::Silent;
use qpair_bench::kv::Kv;
use qpair_bench::tpcc::{Scale, TPCC_TABLES, TpccOptions, TpccReport, run_tpcc};

use super::store::{Job, StoreArgs};

#[derive(Args, Debug)]
pub(crate) struct Tpcc {
    #[command(flatten)]
    store: StoreArgs,

    /// Warehouses
    #[arg(long, value_name = "N", default_value_t = 1)]
    warehouses: u32,

    /// Items of the catalogue [default: those of the standard]
    #[arg(long, value_name = "N")]
    items: Option<u32>,

    /// Customers of a district [default: those of the standard]
    #[arg(long, value_name = "N")]
    customers: Option<u16>,

    /// Check the twelve conditions of consistency afterwards
    #[arg(long)]
    check: bool,

    /// Seed of the data and the inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Tpcc {
    pub(crate) fn run(&self) -> Result<String> {
        self.store.run(&TPCC_TABLES, self)
    }
}

impl Job for Tpcc {
    type Report = TpccReport;

    fn run<K: Kv>(&self, kv: &K) -> Result<TpccReport> {
        let standard = Scale::standard(self.warehouses);
        let scale = Scale {
            items: self.items.unwrap_or(standard.items),
            customers: self.customers.unwrap_or(standard.customers),
            ..standard
        };
        let options = TpccOptions {
            scale,
            terminals: self.store.threads,
            choose_for: None,
            seconds: self.store.seconds,
            warm_up_seconds: self.store.warm_up,
            rate_per_s: None,
            durability: self.store.durability(),
            // As qpair bench does: a store that fits into memory is there when the run begins.
            read_first: true,
            check: self.check,
            seed: self.seed,
        };
        run_tpcc(kv, &options, &Silent)
    }
}
