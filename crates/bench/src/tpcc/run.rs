//! Loads a store if it is empty, runs the mix, checks, and reports.

use qpair::{Error, ErrorKind, Result};

use super::check::{CheckReport, check};
use super::inputs::Type;
use super::keys;
use super::load::{self, LoadFigures};
use super::report::{TpccLatency, TpccReport, TpccType};
use super::scale::{Loaded, Scale};
use super::scan::Scanner;
use super::schema::TPCC_TABLES;
use super::transactions::{Common, Terminal};
use crate::harness::{Measured, Plan, measure, once, per, run_job};
use crate::kv::{Durability, KeyRange, Kv, TableId, durability_name};
use crate::progress::Progress;
use crate::report::kernel_release;

/// The reservation that is shown wherever `tpmc` is shown.
pub(crate) const TPMC_NOTE: &str = "no think time, not audited";

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct TpccOptions {
    /// The size of the database.
    pub scale: Scale,
    pub terminals: usize,
    /// The number of workers among which the terminals are distributed, if the warm-up chooses how
    /// many of them run; `None`: all run.
    pub choose_for: Option<usize>,
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
            choose_for: None,
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
    // New orders that are rolled back ask for one item beyond the last.
    if scale.warehouses > keys::WAREHOUSE_MAX || scale.items >= keys::NUMBER_MAX {
        let (warehouses, items) = (keys::WAREHOUSE_MAX, keys::NUMBER_MAX - 1);
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("keys have room for {warehouses} warehouses and {items} items"),
        ));
    }
    let (loaded, load) = prepare(kv, options, progress)?;
    if options.read_first && options.seconds > 0.0 {
        read_all(kv, &loaded.scale, progress)?;
    }
    let measured = match options.seconds > 0.0 {
        true => run(kv, options, loaded, progress)?,
        false => Measured::default(),
    };
    let check = options.check.then(|| check(kv, progress)).transpose()?;
    report(kv, options, measured, load, check)
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
        once(kv, move |mut session| async move { loaded.write(&mut session).await })?;
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
fn read_all<K: Kv>(kv: &K, scale: &Scale, progress: &dyn Progress) -> Result<()> {
    let phase = ("reading the store into memory", load::records(scale));
    run_job(kv, 4, phase, progress, |session, job| async move {
        let mut scanner = Scanner::begin(session, job.clone()).await?;
        while let Some(table) = (0..TPCC_TABLES.len() as u8).nth(job.take()) {
            scanner.rows(TableId(table), KeyRange::ALL, None, |_, _| ()).await?;
        }
        scanner.finish().await
    })?;
    Ok(())
}

fn run<K: Kv>(
    kv: &K,
    options: &TpccOptions,
    loaded: Loaded,
    progress: &dyn Progress,
) -> Result<Measured> {
    let common = Common {
        scale: loaded.scale,
        durability: options.durability,
        run: loaded.runs,
        seed: options.seed,
    };
    let plan = Plan {
        clients: options.terminals,
        choose_for: options.choose_for,
        kinds: Type::ALL.len(),
        warm_up_s: options.warm_up_seconds,
        seconds: Some(options.seconds),
        rate_per_s: options.rate_per_s,
        phase: format!("TPC-C, {} warehouses", loaded.scale.warehouses),
        ..Plan::default()
    };
    let terminal = move |number, session| Terminal::new(session, number, common);
    measure(kv, &plan, terminal, progress)
}

fn report<K: Kv>(
    kv: &K,
    options: &TpccOptions,
    measured: Measured,
    load: Option<LoadFigures>,
    check: Option<CheckReport>,
) -> Result<TpccReport> {
    let transactions = measured.requests();
    let (per_s, per_tx) = (|count| measured.per_s(count), |count| per(transactions, count));
    let store = &measured.system;
    let kinds = || Type::ALL.into_iter().map(Type::name).zip(&measured.kinds);
    let new_orders = measured.kinds.get(Type::NewOrder as usize);
    let committed = new_orders.map_or(0, |tally| tally.count() - tally.rolled_back);
    Ok(TpccReport {
        store: kv.describe(),
        warehouses: options.scale.warehouses,
        terminals: measured.clients,
        durability: durability_name(options.durability).to_owned(),
        seconds: measured.wall_s,
        rate_per_s: options.rate_per_s,
        tx_per_s: per_s(transactions),
        tpmc: 60.0 * per_s(committed),
        tpmc_note: TPMC_NOTE,
        types: kinds().map(|(name, tally)| (name, TpccType::of(tally))).collect(),
        latency_us: kinds()
            .map(|(name, tally)| (name, TpccLatency::of(&tally.histogram)))
            .collect(),
        commits_per_flush: store.commits_per_flush(),
        log_bytes: store.log_bytes,
        log_bytes_per_tx: store.log_bytes.map(per_tx),
        device_reads_per_tx: store.device_reads.map(per_tx),
        device_writes_per_tx: store.device_writes.map(per_tx),
        device_bytes_per_tx: store.device_bytes.map(per_tx),
        device_read_us: measured.device_read_us(),
        device_reads_per_s: store.device_reads.map(per_s),
        device_writes_per_s: store.device_writes.map(per_s),
        cpu_us_per_tx: measured.cpu_us_per(transactions),
        cycles: measured.parts(transactions),
        store_bytes: kv.statistics()?.store_bytes,
        load_seconds: load.map(|load| load.seconds),
        load_records_per_s: load.map(|load| load.records as f64 / load.seconds),
        check,
        kernel: kernel_release(),
        tx_by_second: measured.by_second,
    })
}
