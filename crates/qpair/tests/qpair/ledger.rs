//! Writers whose commits can be counted: checks the content of a store after it has lost its drive
//! at any moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair::Store;
use qpair::unstable::StoreOptions;

pub(crate) const WRITERS: u64 = 4;
/// The number of rows that a writer changes in each transaction.
const ROWS: u64 = 3;

/// The number of transactions that a writer has begun, and the number that were acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) begun: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
}

pub(crate) fn options(format: bool, log_flushed: bool) -> StoreOptions {
    StoreOptions {
        memory_bytes: 1 << 20,
        workers: 2,
        page_size: 4096,
        format,
        log_flushed,
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: 1 << 20,
        ..StoreOptions::default()
    }
}

fn row(writer: u64, row: u64) -> Vec<u8> {
    format!("row {writer} {row}").into_bytes()
}

fn history(writer: u64, number: u64) -> Vec<u8> {
    format!("history {writer} {number:08}").into_bytes()
}

/// Returns the number, followed by bytes that are derived from it.
fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + (number * 37 % 900) as usize, number as u8);
    value
}

/// Commits transactions until the power fails.
pub(crate) fn work(store: &Store, id: u64, writer: &Writer, limit: u64) {
    let table = store.table("t").unwrap();
    for _ in 0..limit {
        let number = writer.acknowledged.load(Ordering::Relaxed) + 1;
        writer.begun.store(number, Ordering::Relaxed);
        let committed = store.transact(|tx| {
            for index in 0..ROWS {
                tx.put(&table, &row(id, index), &value(number))?;
            }
            tx.put(&table, &history(id, number), &value(number))
        });
        if committed.is_err() {
            return;
        }
        writer.acknowledged.store(number, Ordering::Relaxed);
    }
}

/// Returns how far each writer got, according to the store. Returns `Err` for an impossible state.
pub(crate) fn judge(store: &Store, writers: &[Writer]) -> qpair::Result<Result<Vec<u64>, String>> {
    let table = store.table("t")?;
    let mut found: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for record in table.range(..)? {
        let (key, value) = record?;
        found.insert(key, value);
    }
    let mut reached = Vec::new();
    for (id, writer) in (0..).zip(writers) {
        let number_of = |value: &Vec<u8>| u64::from_le_bytes(value[..8].try_into().unwrap());
        let number = found.get(&row(id, 0)).map_or(0, number_of);
        let acknowledged = writer.acknowledged.load(Ordering::Relaxed);
        let begun = writer.begun.load(Ordering::Relaxed);
        if !(acknowledged..=begun).contains(&number) {
            return Ok(Err(format!(
                "writer {id}: {number} is there, {acknowledged} was acknowledged, {begun} begun"
            )));
        }
        let mut expected: Vec<_> = (1..=number).map(|n| (history(id, n), value(n))).collect();
        if number > 0 {
            expected.extend((0..ROWS).map(|index| (row(id, index), value(number))));
        }
        for (key, value) in expected {
            let key_text = String::from_utf8_lossy(&key).into_owned();
            if found.remove(&key).as_ref() != Some(&value) {
                return Ok(Err(format!("writer {id} at {number}: {key_text} is not as it was")));
            }
        }
        reached.push(number);
    }
    let rest: Vec<_> = found.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    if !rest.is_empty() {
        return Ok(Err(format!("nobody committed {rest:?}")));
    }
    Ok(Ok(reached))
}
