//! Filling the table.

use std::ops::ControlFlow;
use std::time::Instant;

use qpair::{Error, ErrorKind, Result};

use super::dataset::{RECORDS, VALUE_BYTES, key, value};
use crate::harness::{Filler, once, run_job};
use crate::kv::{Begin, Direction, KeyRange, Kv, KvSession};
use crate::progress::Progress;

/// Fills the table with this number of records if it is empty, and returns the records per second.
/// With `inserts`, the table must be empty and stays empty. `name` is the name of the store in
/// errors.
///
/// # Errors
/// `Exists` if the table has another number of records.
pub(crate) fn prepare<K: Kv>(
    kv: &K,
    name: &str,
    records: u64,
    inserts: bool,
    progress: &dyn Progress,
) -> Result<Option<f64>> {
    let (context, hint) = match (once(kv, count)?, inserts) {
        (0, true) => return Ok(None),
        (0, false) => return fill(kv, records, progress).map(Some),
        (there, false) if there == records => return Ok(None),
        (there, true) => (
            format!("{name} has {there} records already"),
            "inserts go into a new store: remove it, or name another",
        ),
        (there, false) => (
            format!("{name} holds {there} records, not {records}"),
            "name another store, or the number of records it has",
        ),
    };
    Err(Error::with_hint(ErrorKind::Exists, context, hint))
}

/// Returns the number of records in the table, computed from its last key.
async fn count<S: KvSession>(mut session: S) -> Result<u64> {
    let mut there = 0;
    session.begin(Begin::read_only()).await?;
    session
        .scan(RECORDS, KeyRange::ALL, Direction::Backward, 1, |key, _| {
            there = key.try_into().map(u64::from_be_bytes).map_or(0, |last| last + 1);
            ControlFlow::Break(())
        })
        .await?;
    session.commit().await?;
    Ok(there)
}

/// Fills the table, and returns the records per second.
fn fill<K: Kv>(kv: &K, records: u64, progress: &dyn Progress) -> Result<f64> {
    let began = Instant::now();
    let phase = ("filling (sorted load)", records);
    run_job(kv, 1, phase, progress, move |mut session, job| async move {
        let mut filler = Filler::begin(&mut session, RECORDS, &job).await?;
        let mut row = [0; VALUE_BYTES];
        let outcome = async {
            for record in 0..records {
                value(record, 0, &mut row);
                filler.push(&key(record), &row).await?;
            }
            Ok(())
        }
        .await;
        filler.end(outcome).await
    })?;
    Ok(records as f64 / began.elapsed().as_secs_f64())
}
