//! Fills the table if it is empty, runs the clients, and reports.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use qpair::{Error, ErrorKind, Result};

use super::client::{CommitClient, CommitOptions, CommitWork, Common};
use super::report::{CommitReport, slowest_over_median};
use crate::harness::{Plan, measure, per};
use crate::kv::{Kv, durability_name};
use crate::progress::Progress;
use crate::records::{Shuffle, prepare};
use crate::report::{LatencyReport, kernel_release};

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
    if options.records == 0 || options.rows_per_tx == 0 || options.clients == 0 {
        let context = "records, rows of a transaction, and clients are at least 1";
        return Err(Error::new(ErrorKind::Invalid, context));
    }
    let inserts = options.work == CommitWork::Insert;
    let load_records_per_s = prepare(kv, "the store", options.records, inserts, progress)?;
    let (shuffle, next) = (Shuffle::new(options.records), AtomicU64::new(0));
    let common = Arc::new(Common { options: *options, shuffle, next });
    let plan = Plan {
        clients: options.clients,
        kinds: 1,
        warm_up_s: if inserts { 0.0 } else { options.warm_up_seconds },
        seconds: (!inserts).then_some(options.seconds),
        total: options.records,
        phase: match options.work {
            CommitWork::Update => format!("updates, {} clients", options.clients),
            CommitWork::Insert => "inserts in random order".to_owned(),
        },
        ..Plan::default()
    };
    let client = move |number, session| CommitClient::new(session, number, common.clone());
    let measured = measure(kv, &plan, client, progress)?;
    let tally = &measured.kinds[0];
    let commits = tally.count();
    let per_commit = |count| per(commits, count);
    let store = &measured.system;
    Ok(CommitReport {
        store: kv.describe(),
        work: options.work.to_string(),
        records: options.records,
        rows_per_tx: options.rows_per_tx,
        clients: options.clients,
        durability: durability_name(options.durability).to_owned(),
        seconds: measured.wall_s,
        commits,
        commits_per_s: measured.per_s(commits),
        rows_per_s: measured.per_s(measured.weight()),
        conflicts: tally.conflicts,
        latency_us: LatencyReport::of(&tally.histogram),
        commits_per_flush: store.commits_per_flush(),
        log_bytes_per_commit: store.log_bytes.map(per_commit),
        device_writes_per_commit: store.device_writes.map(per_commit),
        device_reads_per_commit: store.device_reads.map(per_commit),
        cpu_us_per_commit: measured.cpu_us_per(commits),
        cycles: measured.parts(commits),
        store_bytes: store.store_bytes,
        slowest_second_over_median: slowest_over_median(&measured.by_second, measured.wall_s),
        rows_by_second: measured.by_second,
        load_records_per_s,
        baseline: None,
        p50_over_baseline: None,
        kernel: kernel_release(),
    })
}
