//! Loads a store if it is empty, runs the mix, checks, and reports.

use std::collections::BTreeMap;

use qpair::{Error, ErrorKind, Result};

use crate::drive::{Driven, Plan, check_plan, drive, run_errand};
use crate::kv::{Begin, Direction, Durability, KeyRange, Kv, KvSession, TableId};
use crate::progress::Progress;
use crate::report::{PartReport, kernel_release};

use super::inputs::Type;
use super::load::{self, LoadFigures};
use super::report::{TpccLatency, TpccReport, TpccType};
use super::scale::{Loaded, Scale};
use super::transactions::{Common, Terminal};
use super::{CheckReport, TPCC_TABLES, keys};

/// The reservation that is shown wherever `tpmc` is shown.
pub(crate) const TPMC_NOTE: &str = "no think time, not audited";

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct TpccOptions {
    /// The size of the database.
    pub scale: Scale,
    /// The number of terminals.
    pub terminals: usize,
    /// Seconds to measure; 0: load only.
    pub seconds: f64,
    /// Seconds to run before the measurement.
    pub warm_up_seconds: f64,
    /// The mean number of transactions that arrive a second, at random times; `None`: each terminal
    /// runs one transaction after the other.
    pub rate_per_s: Option<f64>,
    /// The durability that commits wait for.
    pub durability: Durability,
    /// Whether all tables are read once before the run, for a store that fits into memory.
    pub read_first: bool,
    /// Whether the twelve conditions are checked afterwards.
    pub check: bool,
    /// The seed of the data and the inputs.
    pub seed: u64,
}

impl Default for TpccOptions {
    fn default() -> Self {
        Self {
            scale: Scale::standard(1),
            terminals: 64,
            seconds: 10.0,
            warm_up_seconds: 2.0,
            rate_per_s: None,
            durability: Durability::Group,
            read_first: false,
            check: false,
            seed: 1,
        }
    }
}

/// Returns the size of the database that the store was loaded with; `None` if it was not loaded.
///
/// # Errors
/// `Exists` if a load is incomplete; errors of the store.
pub fn loaded_scale<K: Kv>(kv: &K) -> Result<Option<Scale>> {
    Ok(load::loaded(kv)?.map(|loaded| loaded.scale))
}

/// Runs TPC-C over a store that was opened with [`TPCC_TABLES`]; an empty store is loaded first.
///
/// # Errors
/// `Exists` if the store has another number of warehouses or an incomplete load; `Closed` if the
/// run was interrupted; errors of the store. A violated condition is not an error; it is in the
/// report.
pub fn run_tpcc<K: Kv>(
    kv: &K,
    options: &TpccOptions,
    progress: &dyn Progress,
) -> Result<TpccReport> {
    let scale = options.scale;
    if scale.warehouses == 0 || scale.items == 0 || scale.customers == 0 {
        return Err(Error::new(ErrorKind::Invalid, "a database needs at least one warehouse"));
    }
    // One item more is asked for by new orders that are rolled back.
    if scale.warehouses > keys::WAREHOUSE_MAX || scale.items >= keys::NUMBER_MAX {
        let (warehouses, items) = (keys::WAREHOUSE_MAX, keys::NUMBER_MAX - 1);
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("keys have room for {warehouses} warehouses and {items} items"),
        ));
    }
    let (loaded, load) = prepare(kv, options, progress)?;
    if options.read_first && options.seconds > 0.0 {
        read_all(kv, progress)?;
    }
    let driven = match options.seconds > 0.0 {
        true => Some(run(kv, options, loaded, progress)?),
        false => None,
    };
    let check = match options.check {
        true => Some(super::check(kv, progress)?),
        false => None,
    };
    report(kv, options, driven, load, check)
}

/// Loads the store if it is empty, and gives this run its number.
fn prepare<K: Kv>(
    kv: &K,
    options: &TpccOptions,
    progress: &dyn Progress,
) -> Result<(Loaded, Option<LoadFigures>)> {
    let (mut loaded, figures) = match load::loaded(kv)? {
        Some(loaded) if loaded.scale != options.scale => return Err(other_scale(&loaded, options)),
        Some(loaded) => (loaded, None),
        None => {
            let loaded = Loaded { scale: options.scale, seed: options.seed, runs: 0 };
            (loaded, Some(load::load(kv, loaded, progress)?))
        }
    };
    if options.seconds > 0.0 {
        loaded.runs += 1;
        kv.start(1, move |_, mut session| async move { loaded.write(&mut session).await })?
            .join()?;
    }
    Ok((loaded, figures))
}

fn other_scale(loaded: &Loaded, options: &TpccOptions) -> Error {
    let (has, wanted) = (loaded.scale, options.scale);
    let cardinalities = match has.warehouses == wanted.warehouses {
        true => ", but other numbers of items and customers",
        false => "",
    };
    Error::with_hint(
        ErrorKind::Exists,
        format!(
            "the store was loaded with {} warehouses{cardinalities}; {} were asked for",
            has.warehouses, wanted.warehouses
        ),
        format!("give --warehouses {}, or another --store", has.warehouses),
    )
}

/// Reads all tables into memory.
fn read_all<K: Kv>(kv: &K, progress: &dyn Progress) -> Result<()> {
    /// Rows between two checks whether to stop.
    const ROWS: usize = 4096;
    let phase = ("reading the store into memory", TPCC_TABLES.len() as u64);
    run_errand(kv, 4, phase, progress, |mut session, errand| async move {
        loop {
            let table = errand.take();
            if table >= TPCC_TABLES.len() {
                return Ok(());
            }
            let table = TableId(table as u8);
            let mut from = Vec::new();
            let mut rows = ROWS;
            while rows == ROWS {
                rows = 0;
                let mut last = Vec::new();
                session.begin(Begin::read_only()).await?;
                let range = KeyRange { from: &from, to: &[] };
                session
                    .scan(table, range, Direction::Forward, ROWS, |key, _| {
                        rows += 1;
                        if rows == ROWS {
                            last.extend_from_slice(key);
                            last.push(0);
                        }
                        std::ops::ControlFlow::Continue(())
                    })
                    .await?;
                session.commit().await?;
                errand.advance(0)?;
                from = last;
                qpair::task::yield_now().await;
            }
            errand.advance(1)?;
        }
    })?;
    Ok(())
}

fn run<K: Kv>(
    kv: &K,
    options: &TpccOptions,
    loaded: Loaded,
    progress: &dyn Progress,
) -> Result<Driven> {
    check_plan(options.terminals, options.seconds)?;
    let common = Common {
        scale: loaded.scale,
        durability: options.durability,
        run: loaded.runs,
        seed: options.seed,
    };
    let plan = Plan {
        clients: options.terminals,
        kinds: Type::ALL.len(),
        warm_up_s: options.warm_up_seconds,
        seconds: Some(options.seconds),
        rate_per_s: options.rate_per_s,
        total: 0,
        phase: format!("TPC-C, {} warehouses", loaded.scale.warehouses),
    };
    let terminal = move |number, session| Terminal::new(session, number, common);
    drive(kv, &plan, terminal, progress)
}

fn report<K: Kv>(
    kv: &K,
    options: &TpccOptions,
    driven: Option<Driven>,
    load: Option<LoadFigures>,
    check: Option<CheckReport>,
) -> Result<TpccReport> {
    let mut report = TpccReport {
        store: kv.describe(),
        warehouses: options.scale.warehouses,
        terminals: options.terminals,
        durability: options.durability.to_string(),
        seconds: 0.0,
        rate_per_s: options.rate_per_s,
        tx_per_s: 0.0,
        tpmc: 0.0,
        tpmc_note: TPMC_NOTE,
        types: BTreeMap::new(),
        latency_us: BTreeMap::new(),
        tx_by_second: Vec::new(),
        commits_per_flush: None,
        log_bytes: None,
        log_bytes_per_tx: None,
        device_reads_per_tx: None,
        device_writes_per_tx: None,
        device_bytes_per_tx: None,
        device_read_us: None,
        device_reads_per_s: None,
        device_writes_per_s: None,
        cpu_us_per_tx: 0.0,
        cycles: Vec::new(),
        store_bytes: kv.statistics()?.store_bytes,
        load_seconds: load.map(|load| load.seconds),
        load_records_per_s: load.map(|load| load.records as f64 / load.seconds),
        check,
        kernel: kernel_release(),
    };
    let Some(driven) = driven else { return Ok(report) };
    let transactions: u64 = driven.kinds.iter().map(|kind| kind.count).sum();
    let per_s = |count: u64| count as f64 / driven.wall_s;
    let per_tx = |count: u64| count as f64 / transactions.max(1) as f64;
    for (kind, tally) in Type::ALL.into_iter().zip(&driven.kinds) {
        let (count, rolled_back) = (tally.count, tally.rolled_back);
        let (conflicts, retried) = (tally.conflicts, tally.retried);
        report.types.insert(kind.name(), TpccType { count, rolled_back, conflicts, retried });
        report.latency_us.insert(kind.name(), TpccLatency::of(&tally.histogram));
    }
    let new_orders = &driven.kinds[Type::NewOrder as usize];
    report.seconds = driven.wall_s;
    report.tx_per_s = per_s(transactions);
    report.tpmc = 60.0 * per_s(new_orders.count - new_orders.rolled_back);
    report.commits_per_flush = driven.store.commits_per_flush();
    report.log_bytes = driven.store.log_bytes;
    report.log_bytes_per_tx = driven.store.log_bytes.map(per_tx);
    report.device_reads_per_tx = driven.store.device_reads.map(per_tx);
    report.device_writes_per_tx = driven.store.device_writes.map(per_tx);
    report.device_bytes_per_tx = driven.store.device_bytes.map(per_tx);
    report.device_read_us =
        driven.store.device_reads_timed.map(|(reads, us)| us as f64 / reads.max(1) as f64);
    report.device_reads_per_s = driven.store.device_reads.map(per_s);
    report.device_writes_per_s = driven.store.device_writes.map(per_s);
    report.cpu_us_per_tx = driven.cpu_s * 1e6 / transactions.max(1) as f64;
    report.cycles = PartReport::of(&driven.store.cycles, driven.wall_s, transactions);
    report.tx_by_second = driven.by_second;
    Ok(report)
}
