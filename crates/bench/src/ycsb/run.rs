//! Loads a store if it is empty, runs a workload, and reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fastrand::Rng;
use qpair::{Error, ErrorKind, Result};

use crate::drive::{Errand, Plan, check_plan, drive, run_errand};
use crate::kv::{Begin, Durability, Kv, KvError, KvLoader, KvResult, KvSession};
use crate::progress::Progress;
use crate::report::{LatencyReport, PartReport, kernel_release};

use super::client::{Client, Common};
use super::keys::{KEY_BYTES, key_of_mixed, mixed, noise};
use super::mix::{Kind, YcsbWorkload};
use super::report::{YcsbKind, YcsbReport};
use super::zipfian::Zipfian;
use super::{META, USERS};

const LOADED: &[u8] = b"loaded";

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct YcsbOptions {
    /// The workload.
    pub workload: YcsbWorkload,
    /// The number of records to load.
    pub records: u64,
    /// The number of fields of a record.
    pub fields: usize,
    /// The size of a field in bytes.
    pub field_bytes: usize,
    /// The number of clients.
    pub clients: usize,
    /// Seconds to measure; 0: load only.
    pub seconds: f64,
    /// The number of operations of all clients together, which replaces the time limit.
    pub operations: Option<u64>,
    /// Seconds to run before measuring; not used with a number of operations.
    pub warm_up_seconds: f64,
    /// The durability that commits wait for.
    pub durability: Durability,
    /// The seed of the inputs.
    pub seed: u64,
}

impl Default for YcsbOptions {
    fn default() -> Self {
        Self {
            workload: YcsbWorkload::A,
            records: 1_000_000,
            fields: 10,
            field_bytes: 100,
            clients: 64,
            seconds: 10.0,
            operations: None,
            warm_up_seconds: 2.0,
            durability: Durability::Group,
            seed: 1,
        }
    }
}

/// The store's description of its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loaded {
    records: u64,
    value_bytes: u64,
    /// The number of records, including those that completed runs inserted.
    inserted: u64,
}

impl Loaded {
    async fn read<S: KvSession>(session: &mut S) -> KvResult<Option<Self>> {
        let mut record = Vec::new();
        session.begin(Begin::read_only()).await?;
        let found = session.get_into(META, LOADED, &mut record).await?;
        session.commit().await?;
        if !found {
            return Ok(None);
        }
        let word = |at: usize| -> KvResult<u64> {
            let bytes = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            let unknown = || {
                KvError::Other(
                    "the store's YCSB data has a layout that this version of qpair does not know"
                        .to_owned(),
                )
            };
            bytes.map(u64::from_le_bytes).ok_or_else(unknown)
        };
        Ok(Some(Self { records: word(0)?, value_bytes: word(8)?, inserted: word(16)? }))
    }

    async fn write<S: KvSession>(&self, session: &mut S) -> KvResult<()> {
        let mut record = [0; 24];
        record[..8].copy_from_slice(&self.records.to_le_bytes());
        record[8..16].copy_from_slice(&self.value_bytes.to_le_bytes());
        record[16..].copy_from_slice(&self.inserted.to_le_bytes());
        session.begin(Begin::read_write(Durability::Sync)).await?;
        session.put(META, LOADED, &record).await?;
        session.commit().await
    }
}

/// Runs a workload over a store that was opened with [`YCSB_TABLES`](super::YCSB_TABLES); an empty
/// store is loaded first.
///
/// # Errors
/// `Exists` if the store has other records than were requested; `Closed` if the run was
/// interrupted; errors of the store.
pub fn run_ycsb<K: Kv>(
    kv: &K,
    options: &YcsbOptions,
    progress: &dyn Progress,
) -> Result<YcsbReport> {
    let value_bytes = options.fields.saturating_mul(options.field_bytes);
    if options.records == 0 || value_bytes == 0 {
        return Err(Error::new(
            ErrorKind::Invalid,
            "the number of records, and of their fields, must be at least 1",
        ));
    }
    let (mut loaded, load_records_per_s) = prepare(kv, options, value_bytes, progress)?;
    let mut report = YcsbReport {
        store: kv.describe(),
        workload: options.workload.to_string(),
        records: loaded.inserted,
        record_bytes: KEY_BYTES + value_bytes,
        clients: options.clients,
        durability: options.durability.to_string(),
        load_records_per_s,
        kernel: kernel_release(),
        seconds: 0.0,
        ops: 0,
        ops_per_s: 0.0,
        missed: 0,
        kinds: Default::default(),
        ops_by_second: Vec::new(),
        commits_per_flush: None,
        log_bytes: None,
        device_reads_per_op: None,
        device_writes_per_op: None,
        cpu_us_per_op: 0.0,
        cycles: Vec::new(),
        store_bytes: kv.statistics()?.store_bytes,
    };
    if options.seconds > 0.0 || options.operations.is_some() {
        run(kv, options, &mut loaded, &mut report, progress)?;
    }
    Ok(report)
}

fn prepare<K: Kv>(
    kv: &K,
    options: &YcsbOptions,
    value_bytes: usize,
    progress: &dyn Progress,
) -> Result<(Loaded, Option<f64>)> {
    let found = kv
        .start(1, |_, mut session| async move { Loaded::read(&mut session).await })?
        .join()?
        .into_iter()
        .next()
        .flatten();
    if let Some(loaded) = found {
        if loaded.records != options.records || loaded.value_bytes != value_bytes as u64 {
            let Loaded { records, value_bytes: bytes, .. } = loaded;
            return Err(Error::with_hint(
                ErrorKind::Exists,
                format!(
                    "the store was loaded with {records} records of {bytes} bytes; {} of \
                     {value_bytes} were asked for",
                    options.records
                ),
                format!("give --records {records}, or another --store"),
            ));
        }
        return Ok((loaded, None));
    }
    let began = Instant::now();
    let records = options.records;
    let loaded = Loaded { records, value_bytes: value_bytes as u64, inserted: records };
    let seed = options.seed;
    let phase = ("loading (sorted load)", records);
    run_errand(kv, 1, phase, progress, move |session, errand| load(session, errand, loaded, seed))?;
    Ok((loaded, Some(records as f64 / began.elapsed().as_secs_f64())))
}

async fn load<S: KvSession>(
    mut session: S,
    errand: Arc<Errand>,
    loaded: Loaded,
    seed: u64,
) -> KvResult<()> {
    /// Records between two checks whether to stop.
    const RECORDS: usize = 256;
    // 8 bytes of memory a record, so that keys come in order.
    let mut order = Vec::new();
    order.try_reserve_exact(loaded.records as usize).map_err(|error| {
        KvError::Other(format!(
            "allocating memory to put {} records in order: {error}",
            loaded.records
        ))
    })?;
    order.extend((0..loaded.records).map(mixed));
    order.sort_unstable();
    let mut random = Rng::with_seed(seed);
    let mut value = vec![0; loaded.value_bytes as usize];
    let mut loader = session.loader(USERS).await?;
    for group in order.chunks(RECORDS) {
        for mixed in group {
            noise(&mut random, &mut value);
            if let Err(error) = loader.push(&key_of_mixed(*mixed), &value).await {
                loader.abandon().await;
                return Err(error);
            }
        }
        if let Err(error) = errand.advance(group.len() as u64) {
            loader.abandon().await;
            return Err(error);
        }
        qpair::task::yield_now().await;
    }
    loader.finish().await?;
    loaded.write(&mut session).await
}

fn run<K: Kv>(
    kv: &K,
    options: &YcsbOptions,
    loaded: &mut Loaded,
    report: &mut YcsbReport,
    progress: &dyn Progress,
) -> Result<()> {
    check_plan(options.clients, options.seconds.max(1.0))?;
    let clients = options.clients;
    let common = Arc::new(Common {
        workload: options.workload,
        durability: options.durability,
        fields: options.fields,
        field_bytes: options.field_bytes,
        clients,
        seed: options.seed,
        operations: options.operations.map(|operations| operations.div_ceil(clients as u64)),
        next: AtomicU64::new(loaded.inserted),
        missed: AtomicU64::new(0),
    });
    let latest = (options.workload == YcsbWorkload::D).then(|| Zipfian::new(loaded.inserted));
    let plan = Plan {
        clients,
        kinds: Kind::ALL.len(),
        warm_up_s: if options.operations.is_some() { 0.0 } else { options.warm_up_seconds },
        seconds: options.operations.is_none().then_some(options.seconds),
        rate_per_s: None,
        total: options.operations.unwrap_or(0),
        phase: format!("YCSB {}", options.workload),
    };
    let client = {
        let common = common.clone();
        move |number, session| Client::new(session, number, common.clone(), latest.clone())
    };
    let driven = drive(kv, &plan, client, progress)?;
    let inserted = common.next.load(Ordering::Relaxed);
    if inserted != loaded.inserted {
        loaded.inserted = inserted;
        let loaded = *loaded;
        kv.start(1, move |_, mut session| async move { loaded.write(&mut session).await })?
            .join()?;
    }
    let ops: u64 = driven.kinds.iter().map(|kind| kind.count).sum();
    let per_op = |count: u64| count as f64 / ops.max(1) as f64;
    for (kind, tally) in Kind::ALL.into_iter().zip(&driven.kinds) {
        if tally.count > 0 {
            let latency_us = LatencyReport::of(&tally.histogram);
            let (count, conflicts) = (tally.count, tally.conflicts);
            report.kinds.insert(kind.name(), YcsbKind { count, conflicts, latency_us });
        }
    }
    report.seconds = driven.wall_s;
    report.ops = ops;
    report.ops_per_s = ops as f64 / driven.wall_s;
    report.missed = common.missed.load(Ordering::Relaxed);
    report.commits_per_flush = driven.store.commits_per_flush();
    report.log_bytes = driven.store.log_bytes;
    report.device_reads_per_op = driven.store.device_reads.map(per_op);
    report.device_writes_per_op = driven.store.device_writes.map(per_op);
    report.cpu_us_per_op = driven.cpu_s * 1e6 / ops.max(1) as f64;
    report.cycles = PartReport::of(&driven.store.cycles, driven.wall_s, ops);
    report.store_bytes = driven.store.store_bytes;
    report.ops_by_second = driven.by_second;
    Ok(())
}
