//! Fills the table if it is empty, runs the clients, and reports.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use qpair::{Error, ErrorKind, Result};

use crate::dataset::{self, Shuffle, VALUE_BYTES};
use crate::drive::{Errand, Plan, check_plan, drive, run_errand};
use crate::kv::{Begin, Direction, Durability, KeyRange, Kv, KvLoader, KvResult, KvSession};
use crate::progress::Progress;
use crate::report::{LatencyReport, PartReport, kernel_release};

use super::ROWS;
use super::client::{Client, Common};
use super::report::{CommitReport, slowest_over_median};

/// The kind of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitWork {
    /// Transactions replace uniformly random rows of a table that is filled first.
    Update,
    /// Transactions insert all rows in random order into an empty table.
    Insert,
}

impl fmt::Display for CommitWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Update => "update",
            Self::Insert => "insert",
        })
    }
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct CommitOptions {
    /// The kind of transactions.
    pub work: CommitWork,
    /// The number of records: those of the table, or those to insert.
    pub records: u64,
    /// The number of rows of a transaction.
    pub rows_per_tx: u32,
    /// The number of clients.
    pub clients: usize,
    /// Seconds to measure. Inserts run until all records are inserted.
    pub seconds: f64,
    /// Seconds to run before the measurement. Inserts have no warm-up.
    pub warm_up_seconds: f64,
    /// The durability that commits wait for.
    pub durability: Durability,
    /// The seed of the inputs.
    pub seed: u64,
}

impl Default for CommitOptions {
    fn default() -> Self {
        Self {
            work: CommitWork::Update,
            records: 100_000,
            rows_per_tx: 1,
            clients: 1,
            seconds: 10.0,
            warm_up_seconds: 1.0,
            durability: Durability::Sync,
            seed: 1,
        }
    }
}

/// Runs small transactions over a store that was opened with
/// [`COMMIT_TABLES`](super::COMMIT_TABLES).
///
/// # Errors
/// `Exists` if the table has another number of records, or any records in the case of inserts;
/// `Closed` if the run was interrupted; errors of the store.
pub fn run_commit<K: Kv>(
    kv: &K,
    options: &CommitOptions,
    progress: &dyn Progress,
) -> Result<CommitReport> {
    check_plan(options.clients, options.seconds)?;
    if options.records == 0 || options.rows_per_tx == 0 {
        return Err(Error::new(
            ErrorKind::Invalid,
            "the number of records, and of rows of a transaction, must be at least 1",
        ));
    }
    let there = records_there(kv)?;
    let inserting = options.work == CommitWork::Insert;
    let load_records_per_s = match (there, inserting) {
        (0, true) => None,
        (0, false) => Some(fill(kv, options.records, progress)?),
        (there, false) if there == options.records => None,
        (there, _) => return Err(other_records(there, options)),
    };
    let common = Arc::new(Common {
        work: options.work,
        durability: options.durability,
        records: options.records,
        rows: options.rows_per_tx,
        seed: options.seed,
        shuffle: Shuffle::new(options.records),
        next: AtomicU64::new(0),
    });
    let plan = Plan {
        clients: options.clients,
        kinds: 1,
        warm_up_s: if inserting { 0.0 } else { options.warm_up_seconds },
        seconds: (!inserting).then_some(options.seconds),
        rate_per_s: None,
        total: options.records,
        phase: match options.work {
            CommitWork::Update => format!("updates, {} clients", options.clients),
            CommitWork::Insert => "inserts in random order".to_owned(),
        },
    };
    let client = move |number, session| Client::new(session, number, common.clone());
    let driven = drive(kv, &plan, client, progress)?;
    let Some(tally) = driven.kinds.first() else {
        return Err(Error::new(ErrorKind::Invalid, "nothing was counted"));
    };
    let per_commit = |count: u64| count as f64 / tally.count.max(1) as f64;
    Ok(CommitReport {
        store: kv.describe(),
        work: options.work.to_string(),
        records: options.records,
        rows_per_tx: options.rows_per_tx,
        clients: options.clients,
        durability: options.durability.to_string(),
        seconds: driven.wall_s,
        commits: tally.count,
        commits_per_s: tally.count as f64 / driven.wall_s,
        rows_per_s: tally.weight as f64 / driven.wall_s,
        conflicts: tally.conflicts,
        latency_us: LatencyReport::of(&tally.histogram),
        commits_per_flush: driven.store.commits_per_flush(),
        log_bytes_per_commit: driven.store.log_bytes.map(per_commit),
        device_writes_per_commit: driven.store.device_writes.map(per_commit),
        device_reads_per_commit: driven.store.device_reads.map(per_commit),
        cpu_us_per_commit: driven.cpu_s * 1e6 / tally.count.max(1) as f64,
        cycles: PartReport::of(&driven.store.cycles, driven.wall_s, tally.count),
        store_bytes: driven.store.store_bytes,
        slowest_second_over_median: slowest_over_median(&driven.by_second, driven.wall_s),
        rows_by_second: driven.by_second,
        load_records_per_s,
        baseline: None,
        p50_over_baseline: None,
        kernel: kernel_release(),
    })
}

fn other_records(there: u64, options: &CommitOptions) -> Error {
    match options.work {
        CommitWork::Insert => Error::with_hint(
            ErrorKind::Exists,
            format!("the store has {there} records already"),
            "inserts go into a new store: remove it, or name another",
        ),
        CommitWork::Update => Error::with_hint(
            ErrorKind::Exists,
            format!("the store holds {there} records, not {}", options.records),
            "name another store, or the number of records it has",
        ),
    }
}

/// Returns the number of records in the table, computed from its last key.
fn records_there<K: Kv>(kv: &K) -> Result<u64> {
    let counts = kv
        .start(1, |_, mut session| async move {
            let mut there = 0;
            session.begin(Begin::read_only()).await?;
            session
                .scan(ROWS, KeyRange::ALL, Direction::Backward, 1, |key, _| {
                    there = key.try_into().map(u64::from_be_bytes).map_or(0, |last| last + 1);
                    std::ops::ControlFlow::Break(())
                })
                .await?;
            session.commit().await?;
            Ok(there)
        })?
        .join()?;
    Ok(counts.into_iter().sum())
}

/// Fills the table, and returns the records per second.
fn fill<K: Kv>(kv: &K, records: u64, progress: &dyn Progress) -> Result<f64> {
    let began = Instant::now();
    let phase = ("filling (sorted load)", records);
    run_errand(kv, 1, phase, progress, move |session, errand| load(session, errand, records))?;
    Ok(records as f64 / began.elapsed().as_secs_f64())
}

async fn load<S: KvSession>(mut session: S, errand: Arc<Errand>, records: u64) -> KvResult<()> {
    /// Records between two checks whether to stop.
    const RECORDS: u64 = 1024;
    let mut value = [0; VALUE_BYTES];
    let mut loader = session.loader(ROWS).await?;
    for record in 0..records {
        dataset::value(record, 0, &mut value);
        if let Err(error) = loader.push(&dataset::key(record), &value).await {
            loader.abandon().await;
            return Err(error);
        }
        if record % RECORDS == RECORDS - 1 {
            if let Err(error) = errand.advance(RECORDS) {
                loader.abandon().await;
                return Err(error);
            }
            qpair::task::yield_now().await;
        }
    }
    loader.finish().await
}
