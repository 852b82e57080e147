//! `qpair bench tpcc`.

use clap::Args;
use qpair_bench::StoreKvReport;
use qpair_bench::kv::Durability;
use qpair_bench::tpcc::{
    CheckReport, Scale, TPCC_TABLES, TpccOptions, TpccReport, loaded_scale, run_tpcc,
};

use super::store::{Lines, RunArgs, arrivals, note_chosen, table};
use crate::failure::{Exit, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::parse::number::{TASKS_MAX, parse_count, parse_rate};
use crate::parse::store::parse_durability;
use crate::show::bar::Bar;
use crate::show::text::{count, counted};

/// The approximate size of a warehouse in a store, in bytes, including the data that a run adds.
const WAREHOUSE_BYTES: u64 = 100 << 20;

/// Run TPC-C: five types of transactions over nine tables, without think time
#[derive(Args, Debug)]
#[command(after_help = "\
All five transactions run in the standard's mix. tx/s counts all types; tpmC counts new orders committed per minute, \
without think time, not audited. Each worker runs --tasks terminals; each terminal does one transaction after the \
other. A transaction with a conflict is tried again; its latency includes all attempts. A missing store is created \
and loaded, about 85 MB per warehouse. A store that fits into memory is read into it before the run.

Exit codes: 0 done; 1 a condition of --check does not hold; 2 wrong use; 3 an error; \
130 interrupted.

Examples:
  qpair bench tpcc --store t.qpair --warehouses 25 --memory 300MiB --workers 2
  qpair bench tpcc --store t.qpair --warehouses 5 --memory 4GiB --no-log --seconds 30 --json
  qpair bench tpcc --store t.qpair --warehouses 25 --load-only --check")]
pub(crate) struct Tpcc {
    #[command(flatten)]
    run: RunArgs,

    /// Warehouses [default: as in the store; 1 for a new one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    warehouses: Option<u32>,

    /// Terminals of each worker [default: the fewest, up to 64, that are as fast as more: tried in
    /// the warm-up; all at a --rate; fewer where memory is little]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize, TASKS_MAX>)]
    tasks: Option<usize>,

    /// Transactions that arrive per second, at random times; latency counts from the arrival
    /// [default: each terminal does one after the other]
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    rate: Option<f64>,

    /// Durability that commits wait for: sync, group or async
    #[arg(long, value_name = "WHEN", default_value = "group", value_parser = parse_durability)]
    durability: Durability,

    /// Check the standard's twelve consistency conditions after the run
    #[arg(long)]
    check: bool,

    /// Load the store, check it if --check is given, and run nothing
    #[arg(long)]
    load_only: bool,

    /// Items [default: the standard's 100000]
    #[arg(long, value_name = "N", hide = true, default_value_t = 100_000)]
    items: u32,

    /// Customers of a district [default: the standard's 3000]
    #[arg(long, value_name = "N", hide = true, default_value_t = 3000)]
    customers: u16,
}

impl Tpcc {
    pub(crate) fn run(self) -> Result<Exit> {
        let interrupt = Interrupt::install()?;
        let kv = self.run.open(&TPCC_TABLES)?;
        let bar = Bar::new(interrupt.clone());
        let asked = |warehouses| Scale { warehouses, items: self.items, customers: self.customers };
        let scale = match self.warehouses {
            Some(warehouses) => asked(warehouses),
            None => loaded_scale(&kv)?.unwrap_or_else(|| asked(1)),
        };
        let is_in_memory =
            u64::from(scale.warehouses) * WAREHOUSE_BYTES <= self.run.on.memory_bytes();
        let tasks = self.run.on.tasks(self.tasks, 64);
        let mut ran_on = self.run.begin(&kv, tasks, &bar)?;
        let options = TpccOptions {
            scale,
            terminals: ran_on.workers.saturating_mul(tasks),
            choose_for: self.tasks.is_none().then_some(ran_on.workers),
            seconds: if self.load_only { 0.0 } else { self.run.seconds },
            warm_up_seconds: self.run.warm.warm_up,
            rate_per_s: self.rate,
            durability: self.durability,
            // If the data does not fit, memory fills during the run.
            read_first: is_in_memory,
            check: self.check,
            seed: self.run.seed,
        };
        let outcome = run_tpcc(&kv, &options, &bar);
        let unfinished = interrupt.is_requested() && loaded_scale(&kv).is_err();
        kv.close()?;
        if interrupt.is_requested() {
            let exit = interrupted("the store was closed");
            if unfinished {
                let store = self.run.store.display();
                eprintln!(
                    "  hint: its load did not come to its end: remove {store} before it is loaded again"
                );
            }
            return exit;
        }
        let report = outcome?;
        let chose =
            options.choose_for.is_some() && self.rate.is_none() && options.warm_up_seconds > 0.0;
        note_chosen(&mut ran_on, report.terminals, chose);
        self.run.print(&report, &ran_on, text)?;
        let holds = report.check.as_ref().is_none_or(CheckReport::holds);
        Ok(if holds { Exit::Done } else { Exit::Negative })
    }
}

fn text(report: &TpccReport, ran_on: &StoreKvReport) -> Vec<String> {
    let mut lines = Lines::of(ran_on, &report.durability);
    lines.add_store(&counted(report.warehouses.into(), "warehouse"), report.store_bytes, ran_on);
    lines.add_loaded(report.load_records_per_s);
    let mut text = if report.seconds > 0.0 {
        let (tx, tpmc) = (count(report.tx_per_s as u64), count(report.tpmc as u64));
        if let Some(rate) = report.rate_per_s {
            lines.add("arrivals", arrivals(rate, report.tx_per_s));
        }
        lines.add("transactions", format!("{tx} /s of all types over {:.1} s", report.seconds));
        lines.add("tpmC", format!("{tpmc} ({})", report.tpmc_note));
        lines.add_device("transaction", report.device_reads_per_tx, report.device_writes_per_tx);
        lines.add_log(report.log_bytes_per_tx, report.commits_per_flush);
        lines
            .add("CPU", format!("{:.2} us per transaction, user and system", report.cpu_us_per_tx));
        lines.add_seconds(&report.tx_by_second, "transactions");
        let mut text = lines.with_parts(&report.cycles, "transaction");
        text.push(String::new());
        text.extend(types(report));
        text
    } else {
        lines.into_text()
    };
    if let Some(check) = &report.check {
        text.push(String::new());
        text.extend(conditions(check));
    }
    text
}

fn types(report: &TpccReport) -> Vec<String> {
    let header = [
        "type",
        "count",
        "mean us",
        "p50 us",
        "p95 us",
        "p99 us",
        "max us",
        "rolled back",
        "conflicts",
    ];
    let order = ["new_order", "payment", "order_status", "delivery", "stock_level"];
    let rows: Vec<Vec<String>> = order
        .iter()
        .filter_map(|name| {
            let (kind, latency) = (report.types.get(name)?, report.latency_us.get(name)?);
            let us = |us: f64| format!("{us:.0}");
            let mut row = vec![(*name).to_owned(), count(kind.count)];
            row.extend([latency.mean, latency.p50, latency.p95, latency.p99, latency.max].map(us));
            row.extend([kind.rolled_back, kind.conflicts].map(count));
            Some(row)
        })
        .collect();
    table(&header, &rows)
}

fn conditions(check: &CheckReport) -> Vec<String> {
    if check.holds() {
        let looked_at = check.conditions.iter().map(|condition| condition.looked_at).sum();
        return vec![format!(
            "all twelve consistency conditions hold ({} looked at)",
            count(looked_at)
        )];
    }
    let mut lines = Vec::new();
    for condition in check.conditions.iter().filter(|condition| condition.broken > 0) {
        lines.push(format!(
            "condition {} does not hold, {} times: {}",
            condition.number,
            count(condition.broken),
            condition.says
        ));
        lines.extend(condition.examples.iter().map(|example| format!("  {example}")));
    }
    lines
}
