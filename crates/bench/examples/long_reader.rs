//! Measures the cost of a long-running reader, and checks that it can read its snapshot. Rows are
//! updated at random as fast as possible; a snapshot taken before reads all rows at the end.
//!
//! `long_reader PATH ROWS MEMORY SECONDS [VERSIONS [HISTORY]]`: rows of 8 and 100 bytes. The
//! updates run for SECONDS without a snapshot, then for SECONDS with one, then while the snapshot
//! reads all rows. VERSIONS: memory for older values; HISTORY: bytes of the device for older
//! values.

#![allow(clippy::print_stdout, reason = "a measurement tells what it measured")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use qpair::{Durability, Error, ErrorKind, Options, Result, Store, Table};

const VALUE_BYTES: usize = 100;
const CLIENTS: u64 = 64;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let usage = || {
        let usage = "long_reader PATH ROWS MEMORY SECONDS [VERSIONS [HISTORY]]";
        Error::new(ErrorKind::Invalid, usage)
    };
    let [_, path, rows, memory, seconds, rest @ ..] = words.as_slice() else { return Err(usage()) };
    let (rows, seconds): (u64, u64) =
        rows.parse().ok().zip(seconds.parse().ok()).ok_or_else(usage)?;
    let bytes = |at: usize, otherwise: u64| match rest.get(at) {
        Some(word) => qpair_block::parse_bytes(word).map_err(|_| usage()),
        None => Ok(otherwise),
    };
    if std::fs::metadata(path).is_ok_and(|file| file.is_file()) {
        std::fs::remove_file(path).map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?;
    }
    let store = Options::new(path)
        .memory(memory)?
        .versions_bytes_max(bytes(0, 256 << 20)?)
        .history_bytes_max(bytes(1, 1 << 30)?)
        .durability(Durability::Async)
        .open()?;
    let table = store.table("t")?;
    table.bulk_load((0..rows).map(|row| Ok((row.to_be_bytes().to_vec(), value(row, 0)))))?;
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let clients = update(&store, &table, rows, &done, &over);
    let span = Duration::from_secs(seconds);
    sleep(Duration::from_secs(2));
    let alone = rate_of(&done, || sleep(span)).1;
    println!("{alone:.0} updates/s without a snapshot");
    let snapshot = store.snapshot()?;
    let before: Result<Vec<_>> = (0..1000)
        .map(|n| snapshot.get(&table, &key(n, rows)).map(Option::unwrap_or_default))
        .collect();
    let before = before?;
    for _ in 0..seconds.div_ceil(5) {
        let now = rate_of(&done, || sleep(Duration::from_secs(seconds.min(5)))).1;
        let metrics = store.metrics()?;
        println!(
            "{now:.0} updates/s beside one, {:.2} of those without; older values: {} MB in memory, {} MB on the device, file {} MB",
            now / alone,
            metrics.versions_bytes / 1_000_000,
            metrics.history_bytes / 1_000_000,
            (metrics.used_bytes + metrics.free_bytes) / 1_000_000,
        );
    }
    let begun = Instant::now();
    let same: Result<usize> = (0..1000u64).try_fold(0, |same, n| {
        let value = snapshot.get(&table, &key(n, rows))?.unwrap_or_default();
        Ok(same + usize::from(value == before[n as usize]))
    });
    match same {
        Err(error) => println!("the snapshot is lost: {error}"),
        Ok(same) => {
            let us = begun.elapsed().as_secs_f64() * 1e6 / 1000.0;
            println!(
                "1,000 rows read by key, one after the other: {us:.0} us each, {same} as before"
            );
            let (read, now) = rate_of(&done, || count(snapshot.range(&table, ..)?));
            match read {
                Err(error) => println!("the snapshot is lost while it is read: {error}"),
                Ok((count, s)) => println!(
                    "{count} of {rows} rows read in {s:.1} s, {:.0} a second, beside {now:.0} updates/s",
                    count as f64 / s
                ),
            }
            let (read, now) = rate_of(&done, || count(table.range(..)?));
            let (count, s) = read?;
            println!(
                "as they are now: {count} rows read in {s:.1} s, {:.0} a second, beside {now:.0} updates/s",
                count as f64 / s
            );
        }
    }
    drop(snapshot);
    over.store(true, Ordering::Relaxed);
    clients.into_iter().try_for_each(|client| client.join()?)?;
    drop(table);
    store.close()
}

/// Returns the number of records, and the seconds that reading them took.
fn count<T>(records: impl Iterator<Item = Result<T>>) -> Result<(u64, f64)> {
    let (begun, mut count) = (Instant::now(), 0);
    for record in records {
        record?;
        count += 1;
    }
    Ok((count, begun.elapsed().as_secs_f64()))
}

fn key(n: u64, rows: u64) -> [u8; 8] {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % rows).to_be_bytes()
}

fn value(row: u64, number: u64) -> Vec<u8> {
    let mut value = vec![row as u8; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Returns the result of `act`, and the updates a second while it ran.
fn rate_of<T>(done: &AtomicU64, act: impl FnOnce() -> T) -> (T, f64) {
    let (begun, before) = (Instant::now(), done.load(Ordering::Relaxed));
    let outcome = act();
    let updates = done.load(Ordering::Relaxed) - before;
    (outcome, updates as f64 / begun.elapsed().as_secs_f64())
}

fn update(
    store: &Store,
    table: &Table,
    rows: u64,
    done: &Arc<AtomicU64>,
    over: &Arc<AtomicBool>,
) -> Vec<qpair::task::JoinHandle<Result<()>>> {
    (0..CLIENTS)
        .map(|client| {
            let (table, done, over) = (table.task(), done.clone(), over.clone());
            store.spawn(move || async move {
                let mut random = fastrand::Rng::with_seed(client);
                while !over.load(Ordering::Relaxed) {
                    let row = random.u64(0..rows);
                    table.put(&row.to_be_bytes(), &value(row, random.u64(..))).await?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        })
        .collect()
}
