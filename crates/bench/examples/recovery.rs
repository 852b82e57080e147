//! Measures how fast a store recovers: creates one, ends the process in the middle of its work, and
//! opens the store again.
//!
//! `recovery insert|update|closed PATH RECORDS MEMORY [CHANGES [VALUE_BYTES]]`: records of 8 and
//! 120 bytes. `insert`: records are inserted in random order. `update`: records are inserted, saved
//! by a checkpoint and then updated at random, 100 to a transaction. In both cases the process ends
//! without closing the store, so all changes are in the log and in no checkpoint. `closed`: records
//! are inserted, and the store is closed.

#![allow(clippy::print_stdout, reason = "a measurement tells what it measured")]

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use qpair::report::RecoveryProgress;
use qpair::{Durability, Error, ErrorKind, Options, Result, TransactionOptions};
use rustix::time::{ClockId, clock_gettime};

const PER_TX: u64 = 100;
const VALUE_BYTES: usize = 120;

/// The size of the work.
#[derive(Clone, Copy)]
struct Job {
    records: u64,
    changes: u64,
    value_bytes: usize,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let usage = || {
        let usage = "recovery insert|update|closed PATH RECORDS MEMORY [CHANGES [VALUE_BYTES]]";
        Error::new(ErrorKind::Invalid, usage)
    };
    let [_, work, path, records, memory, rest @ ..] = words.as_slice() else { return Err(usage()) };
    let records: u64 = records.parse().map_err(|_| usage())?;
    let changes = rest.first().map_or(Ok(records), |word| word.parse()).map_err(|_| usage())?;
    let value_bytes = rest.get(1).map_or(Ok(VALUE_BYTES), |word| word.parse());
    let job = Job { records, changes, value_bytes: value_bytes.map_err(|_| usage())?.max(8) };
    if rest.get(2).is_some_and(|word| word == "crash") {
        return crash(work, path, memory, job);
    }
    let mut child = Command::new(&words[0]);
    let numbers = [job.changes.to_string(), job.value_bytes.to_string()];
    child.args([work, path, &records.to_string(), memory]).args(numbers).arg("crash");
    let _ = child.status();
    // Touch the memory once: the kernel then only clears it, and a hypervisor need not find it
    // first.
    let memory_bytes = qpair_block::parse_bytes(memory).map_err(|_| usage())?;
    drop(std::hint::black_box(vec![1u8; memory_bytes as usize]));
    // The times when the log was read, and when its changes were redone.
    let told: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let tell = told.clone();
    let progress = RecoveryProgress::new(move |done, all| {
        if (done == 0 || done == all)
            && let Ok(mut told) = tell.lock()
        {
            told.push(Instant::now());
        }
    });
    let begun = (Instant::now(), processor_time());
    let store = options(path, memory)?.progress(progress).open()?;
    let (seconds, used) = (begun.0.elapsed().as_secs_f64(), processor_time() - begun.1);
    let Some(recovered) = store.report().recovered else {
        let used_ms = used.as_secs_f64() * 1e3;
        println!("open in {:.1} ms, {used_ms:.1} ms of processor", seconds * 1e3);
        return Ok(());
    };
    let bytes = recovered.bytes as f64;
    println!(
        "{} commits, {:.0} MB of log in {seconds:.2} s: {:.0} MB/s, {:.2} us of processor a row, {:.0} MB/s a core",
        recovered.commits,
        bytes / 1e6,
        bytes / 1e6 / seconds,
        used.as_secs_f64() * 1e6 / changes as f64,
        bytes / 1e6 / used.as_secs_f64()
    );
    let told = told.lock().map(|told| told.clone()).unwrap_or_default();
    if let (Some(read), Some(redone)) = (told.first(), told.last()) {
        let read_s = (*read - begun.0).as_secs_f64();
        let redone_s = (*redone - *read).as_secs_f64();
        println!(
            "    read {read_s:.2} s, redo {redone_s:.2} s, checkpoint {:.2} s",
            seconds - read_s - redone_s
        );
    }
    Ok(())
}

fn options(path: &str, memory: &str) -> Result<Options> {
    // There are no checkpoints except the requested ones.
    Options::new(path).memory(memory).map(|options| options.checkpoint_bytes(1 << 40))
}

/// Returns the processor time of all threads of the process, user and system.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn value(record: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![record as u8; bytes];
    value[..8].copy_from_slice(&record.to_le_bytes());
    value
}

/// Creates the store, does the work, and ends the process without closing the store.
fn crash(work: &str, path: &str, memory: &str, job: Job) -> Result<()> {
    let Job { records, changes, value_bytes } = job;
    if std::fs::metadata(path).is_ok_and(|file| file.is_file()) {
        std::fs::remove_file(path).map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))?;
    }
    let store = options(path, memory)?.open()?;
    let table = store.table("t")?;
    if work != "insert" {
        let row = move |record: u64| (record.to_be_bytes().to_vec(), value(record, value_bytes));
        table.bulk_load((0..records).map(move |record| Ok(row(record))))?;
        if work == "closed" {
            drop(table);
            return store.close();
        }
        store.checkpoint()?;
    }
    let transactions = changes / PER_TX;
    let clients = 64;
    let asynchronous =
        TransactionOptions { durability: Durability::Async, ..TransactionOptions::default() };
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let (tasks, table, options) = (store.task(), table.clone(), asynchronous.clone());
            store.spawn(move || async move {
                let mut last = None;
                for number in (client..transactions).step_by(clients as usize) {
                    let mut transaction = tasks.begin_with(&options);
                    for row in number * PER_TX..(number + 1) * PER_TX {
                        let record = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) % records;
                        let key = record.to_be_bytes();
                        transaction.put(&table, &key, &value(row, value_bytes)).await?;
                    }
                    last = Some(transaction.commit().await?);
                }
                match last {
                    Some(commit) => commit.durable().await,
                    None => Ok(()),
                }
            })
        })
        .collect();
    for task in tasks {
        task.join()??;
    }
    std::process::abort()
}
