//! A key-value store for one program: byte-string keys in order, in named tables, on a file, several files or raw block
//! devices, with as much memory as it is given and no more.
//!
//! ```
//! use qpair::Options;
//!
//! # fn main() -> qpair::Result<()> {
//! # let path = std::env::temp_dir().join(format!("qpair-doc-{}.qpair", std::process::id()));
//! # let _ = std::fs::remove_file(&path);
//! // Makes the store if there is none; `buffered` because /tmp may have no direct I/O.
//! let store = Options::new(&path).memory_bytes(64 << 20).buffered(true).open()?;
//! let users = store.table("users")?;
//!
//! // Blocking calls, from any thread.
//! users.put(b"ada", b"1815")?;
//! users.put(b"alan", b"1912")?;
//! assert_eq!(users.get(b"ada")?.as_deref(), Some(&b"1815"[..]));
//! for record in users.range(..)?.reverse() {
//!     let (key, value) = record?;
//!     println!("{} {}", key.escape_ascii(), value.escape_ascii());
//! }
//!
//! // Several changes at once, or none of them; run again if another transaction was in the way.
//! store.transact(|tx| {
//!     let born = tx.get(&users, b"alan")?.unwrap_or_default();
//!     tx.put(&users, b"turing", &born)?;
//!     tx.delete(&users, b"alan").map(|_| ())
//! })?;
//!
//! // The store as it is now, whatever is written from here on.
//! let snapshot = store.snapshot()?;
//! users.delete(b"ada")?;
//! assert_eq!(snapshot.get(&users, b"ada")?.as_deref(), Some(&b"1815"[..]));
//! assert_eq!(users.get(b"ada")?, None);
//! drop(snapshot);
//!
//! // Tasks, on the store's workers: thousands of them wait for the drive at once.
//! let task = users.task();
//! let found = store.spawn(move || async move { task.get(b"turing").await }).join()??;
//! assert_eq!(found.as_deref(), Some(&b"1912"[..]));
//!
//! // Each change survived power loss when its call returned. A store that is closed has nothing to recover when it is opened.
//! store.close()?;
//! # std::fs::remove_file(&path).ok();
//! # Ok(())
//! # }
//! ```
//!
//! - [`Options`] opens a store: on which devices, over which [`Interface`] in which [`Mode`], with how much
//!   memory.
//! - [`Store::transact`], [`Transaction`] and [`Snapshot`] for threads, [`TaskStore`] for tasks: transactions.
//! - [`Store`], [`Table`] and [`TaskTable`] are the engine's, [`block`] is the layer of devices below it.
//! - [`Error`] has a kind for programs, and context and a way out for people.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod ask;
mod interfaces;
mod json;
mod members;
mod open;
mod options;
mod publish;
#[cfg(feature = "metrics")]
mod recorder;
mod report;
mod tools;

pub use ask::ask_for_backup;
pub use options::Options;
pub use publish::publish_path;
pub use qpair_block as block;
pub use qpair_block::{format_bytes, parse_bytes};
pub use qpair_engine::{
    BackupReport, BulkLoader, CheckReport, Commit, CompactReport, Durability, Error, ErrorKind,
    Histogram, Isolation, JoinHandle, KEY_LEN_MAX, KeyBounds, LogDeviceReport, LogPlace, Metrics,
    Observer, PAGE_SIZE_MAX, PAGE_SIZE_MIN, Prefix, Range, Recovered, RecoveryProgress, Remedy,
    Result, Sample, SampleValue, Savepoint, Snapshot, Store, StoreOptions, StoreReport,
    StoreStatistics, Table, TableCheck, TableStatistics, TaskRange, TaskSnapshot, TaskStore,
    TaskTable, TaskTransaction, TaskTransactionRange, Transaction, TransactionInfo,
    TransactionOptions, TransactionRange, TransactionState, VALUE_LEN_MAX, WeakStore, WorkerCycles,
    WriteBatch, key_len_max, to_prometheus, yield_now,
};
pub use qpair_inspect::{
    KeyRange, LogDump, LogEntry, LogFileEnd, LogOperation, RepairReport, RepairStep, RepairedLog,
    RepairedTable,
};
pub use qpair_kernel::{Interface, Mode, Polling, SubmissionThread, TaskRun, probe};
#[cfg(feature = "metrics")]
pub use recorder::record_metrics;
pub use report::{OpenReport, PassedOver};
pub use tools::holds_store;

/// The README's example compiles.
#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
