//! Measures lookups and updates of a table of text, for encrypted and compressed stores. Prints
//! operations a second, microseconds of processor time and device reads for each.
//!
//! `text_rows STORE get|put MEMORY SECONDS [KEYFILE]`: the table is `default`, one worker with 64
//! tasks runs. Updates put the value of one row in the place of another, without waiting for the
//! log.

#![allow(clippy::print_stdout, reason = "a measurement tells what it measured")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use qpair::{Durability, EncryptionKey, Error, ErrorKind, Options, Result};

const TASKS: u64 = 64;
const WARM_UP: Duration = Duration::from_secs(2);
/// The number of rows of which one is taken for the values of updates.
const VALUES_EACH: usize = 32;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let usage = || {
        let usage = "text_rows STORE get|put MEMORY SECONDS [KEYFILE]";
        Error::new(ErrorKind::Invalid, usage)
    };
    let [_, path, operation, memory, seconds, rest @ ..] = words.as_slice() else {
        return Err(usage());
    };
    let is_put = match operation.as_str() {
        "get" => false,
        "put" => true,
        _ => return Err(usage()),
    };
    let seconds = Duration::from_secs(seconds.parse().map_err(|_| usage())?);
    let options = Options::new(path).memory(memory)?.workers(1).create(false);
    let options = match rest.first() {
        Some(file) => options.encryption_key(&EncryptionKey::from_file(file)?),
        None => options,
    };
    let store = options.durability(Durability::Async).open()?;
    let table = store.table("default")?;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for record in table.range(..)? {
        let (key, value) = record?;
        if keys.len().is_multiple_of(VALUES_EACH) {
            values.push(value);
        }
        keys.push(key);
    }
    let (keys, values) = (Arc::new(keys), Arc::new(values));
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (table, done, over) = (table.task(), done.clone(), over.clone());
            let (keys, values) = (keys.clone(), values.clone());
            store.spawn(move || async move {
                let (mut random, mut value) = (fastrand::Rng::with_seed(task), Vec::new());
                while !over.load(Ordering::Relaxed) {
                    let key = &keys[random.usize(..keys.len())];
                    if is_put {
                        table.put(key, &values[random.usize(..values.len())]).await?;
                    } else {
                        value.clear();
                        table.get_into(key, &mut value).await?;
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    sleep(WARM_UP);
    let now = || -> Result<(u64, Duration, u64, Instant)> {
        let reads = store.metrics()?.device_reads;
        Ok((done.load(Ordering::Relaxed), processor_time()?, reads, Instant::now()))
    };
    let before = now()?;
    sleep(seconds);
    let after = now()?;
    over.store(true, Ordering::Relaxed);
    tasks.into_iter().try_for_each(|task| task.join()?)?;
    let operations = (after.0 - before.0) as f64;
    println!(
        "{:.0} operations/s, {:.2} us of processor, {:.3} reads",
        operations / (after.3 - before.3).as_secs_f64(),
        (after.1 - before.1).as_secs_f64() * 1e6 / operations,
        (after.2 - before.2) as f64 / operations,
    );
    drop(table);
    store.close()
}

/// Returns the processor time of this process, with the kernel's part.
fn processor_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(|error| {
        Error::new(ErrorKind::Io, format!("reading the processor time: {error}"))
    })?;
    let time = |time: nix::sys::time::TimeVal| {
        Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000)
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}
