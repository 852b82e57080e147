//! Loads a store if it is empty, runs a workload, and reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair::{Error, ErrorKind, Result};

use super::client::{Common, YcsbClient, YcsbOptions};
use super::keys::KEY_BYTES;
use super::loading::{Loaded, prepare};
use super::mix::{Kind, YcsbWorkload};
use super::report::{YcsbKind, YcsbReport};
use super::zipfian::Zipfian;
use crate::harness::{Measured, Plan, measure, once, per};
use crate::kv::{Kv, durability_name};
use crate::progress::Progress;
use crate::report::kernel_release;

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
    let (loaded, load_records_per_s) =
        prepare(kv, options.records, value_bytes, options.seed, progress)?;
    let (measured, missed) = match options.seconds > 0.0 || options.operations.is_some() {
        true => run(kv, options, loaded, progress)?,
        false => Default::default(),
    };
    let ops = measured.requests();
    let store = &measured.system;
    let per_op = |count| per(ops, count);
    let ran = Kind::ALL.into_iter().zip(&measured.kinds).filter(|(_, tally)| tally.count() > 0);
    Ok(YcsbReport {
        store: kv.describe(),
        workload: options.workload.to_string(),
        records: loaded.inserted,
        record_bytes: KEY_BYTES + value_bytes,
        clients: measured.clients,
        durability: durability_name(options.durability).to_owned(),
        seconds: measured.wall_s,
        ops,
        ops_per_s: measured.per_s(ops),
        missed,
        kinds: ran.map(|(kind, tally)| (kind.name(), YcsbKind::of(tally))).collect(),
        commits_per_flush: store.commits_per_flush(),
        log_bytes: store.log_bytes,
        device_reads_per_op: store.device_reads.map(per_op),
        device_writes_per_op: store.device_writes.map(per_op),
        cpu_us_per_op: measured.cpu_us_per(ops),
        cycles: measured.parts(ops),
        store_bytes: kv.statistics()?.store_bytes,
        ops_by_second: measured.by_second,
        load_records_per_s,
        kernel: kernel_release(),
    })
}

/// Runs the clients, and returns also the number of reads of records that did not exist.
fn run<K: Kv>(
    kv: &K,
    options: &YcsbOptions,
    mut loaded: Loaded,
    progress: &dyn Progress,
) -> Result<(Measured, u64)> {
    let clients = options.clients;
    let common = Arc::new(Common {
        options: *options,
        operations: options.operations.map(|operations| operations.div_ceil(clients as u64)),
        next: AtomicU64::new(loaded.inserted),
        missed: AtomicU64::new(0),
    });
    let latest = (options.workload == YcsbWorkload::D).then(|| Zipfian::new(loaded.inserted));
    let plan = Plan {
        clients,
        choose_for: options.choose_for,
        kinds: Kind::ALL.len(),
        warm_up_s: if options.operations.is_some() { 0.0 } else { options.warm_up_seconds },
        seconds: options.operations.is_none().then_some(options.seconds),
        total: options.operations.unwrap_or(0),
        phase: format!("YCSB {}", options.workload),
        ..Plan::default()
    };
    let client = {
        let common = common.clone();
        move |number, session| YcsbClient::new(session, number, common.clone(), latest.clone())
    };
    let measured = measure(kv, &plan, client, progress)?;
    let inserted = common.next.load(Ordering::Relaxed);
    if inserted != loaded.inserted {
        loaded.inserted = inserted;
        once(kv, move |mut session| async move { loaded.write(&mut session).await })?;
    }
    Ok((measured, common.missed.load(Ordering::Relaxed)))
}
