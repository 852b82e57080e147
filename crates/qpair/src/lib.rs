//! A key-value store for one program: byte-string keys in order, in named tables, on a file,
//! several files or raw block devices, with as much memory as it is given and no more.
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
//! - [`Options`] opens a store: on which devices, over which [`Interface`] in which [`Mode`], with
//!   how much memory.
#![cfg_attr(
    feature = "drivers",
    doc = "- [`Drivers`] drive the devices that bypass the kernel; stores on one controller share them."
)]
//! - [`Store::transact`], [`Transaction`] and [`Snapshot`] are transactions for threads;
//!   [`task::TaskStore`] has those for tasks.
//! - [`Store`] and [`Table`] are an open store and its tables; [`task`] has the types for tasks on
//!   the store's workers.
//! - [`Follower`] reads a store that another process writes, one checkpoint after the other.
//! - [`metrics`] has the statistics of a store, [`report`] the reports that calls return, and
//!   [`inspect`] the tools for stores that are not open.
//! - [`completion`] has a queue of asynchronous calls with a descriptor, for event loops.
//! - [`interface`] has the details of the kernel's interfaces, and [`published`] the access to
//!   stores that other processes have open.
//! - [`Error`] has a kind for programs, and context and a remedy for people.
//!
//! docs/design/api.md lists the stable interface: everything except [`unstable`], [`inspect`] and
//! [`published`].
//!
//! # Features
//!
//! Without features the crate opens files and block devices through the kernel, and builds 23
//! crates; with `drivers` it builds 52.
//!
//! - `continuous-backup`: `continuous` backs an open store up to a folder all the time, and
//!   restores it to a point in time; with `s3` also to an object store.
//! - `drivers`: devices that the program drives itself, without the kernel: NVMe drives (`nvme:`),
//!   SCSI disks behind SAS and virtio controllers (`scsi:`), disks of other processes by vhost-user
//!   (`vhost-user:`), controllers of other processes by vfio-user, and emulated drives
//!   (`softnvme:`, `scsi:soft`). Without the feature these names are `Unsupported`.
//! - `encryption`: stores whose pages, logs and backups are encrypted: `Options::encryption_key`,
//!   `Options::replace_key`.
//! - `lz4`, `zstd`: tables whose values are compressed ([`Store::compressed_table`]).
//! - `metrics`: `metrics::record_metrics` passes the metrics of a store to the recorder of the
//!   `metrics` crate.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ask;
mod beside;
pub mod completion;
mod copy;
mod driven;
mod follow;
mod interfaces;
mod json;
mod members;
mod open;
mod options;
mod outcome;
mod publish;
#[cfg(feature = "metrics")]
mod recorder;
mod regular;
mod replace;
#[cfg(feature = "continuous-backup")]
mod restore;
#[cfg(feature = "continuous-backup")]
mod shipping;
mod tools;

pub use follow::Follower;
pub use options::Options;
#[cfg(feature = "encryption")]
pub use qpair_crypt::EncryptionKey;
#[cfg(feature = "drivers")]
pub use qpair_drivers::{Drivers, TimeoutPolicy, Waiting};
pub use qpair_engine::{
    Compression, Durability, Error, ErrorKind, Isolation, KEY_LEN_MAX, KeyBounds, PAGE_SIZE_MAX,
    PAGE_SIZE_MIN, Prefix, Range, Remedy, Result, Snapshot, Store, Table, TableOptions,
    Transaction, TransactionOptions, VALUE_LEN_MAX, WeakStore, WriteBatch,
};
pub use qpair_kernel::{Interface, Mode};

/// Asynchronous access to a store, from inside its own tasks ([`Store::spawn`]).
pub mod task {
    pub use qpair_engine::{
        BulkLoader, JoinHandle, TaskRange, TaskSnapshot, TaskStore, TaskTable, TaskTransaction,
        TaskTransactionRange, sleep, yield_now,
    };
}

/// The types that go with a [`Transaction`]: its ranges, its savepoints, its commit, and the
/// description of an open transaction.
pub mod transaction {
    pub use qpair_engine::{
        Commit, Savepoint, TransactionInfo, TransactionRange, TransactionState,
    };
}

/// Statistics of an open store, and the ways for a program to read them.
pub mod metrics {
    #[cfg(feature = "metrics")]
    pub use crate::recorder::record_metrics;
    pub use qpair_engine::{
        Histogram, Metrics, Observer, Sample, SampleValue, StoreStatistics, TableStatistics,
        to_prometheus,
    };

    /// Requests to the devices of a store.
    pub use qpair_block::ChannelStatistics;
}

/// Reports that operations on a whole store return: opening, checks, backups and compactions.
pub mod report {
    pub use crate::copy::CopyReport;
    pub use crate::outcome::{OpenReport, PassedOver};
    pub use qpair_block::Backing;
    pub use qpair_engine::{
        BackupReport, CheckReport, CompactReport, LogDeviceReport, Recovered, RecoveryProgress,
        StoreReport, TableCheck, WarmReport,
    };
}

/// Inspection of stores that are not open: dumping their logs, and repairing them.
pub mod inspect {
    pub use crate::tools::holds_store;
    pub use qpair_inspect::{
        KeyRange, LogDump, LogEntry, LogFileEnd, LogOperation, RepairReport, RepairStep,
        RepairedLog, RepairedTable,
    };
}

/// Continuous backup of an open store, and restore to a point in time.
#[cfg(feature = "continuous-backup")]
pub mod continuous {
    pub use crate::restore::RestoreReport;
    pub use crate::shipping::{Following, ask_to_follow};
    pub use qpair_backup::{
        At, Backup, BackupOptions, BackupStatus, Costs, Follower, Object, Objects, Point, Restore,
        Verification, now_ms, open_place, verify,
    };
    pub use qpair_engine::FeedBreak;
}

/// The switches of a [`Mode`].
pub mod interface {
    pub use qpair_kernel::{Polling, SubmissionThread, TaskRun};
}

/// Access to stores that other processes have open and publish ([`Options::publish`]): the paths of
/// their sockets, and requests for backups.
pub mod published {
    pub use crate::ask::ask_for_backup;
    pub use crate::publish::publish_path;
}

/// The parts of the lower layers that the project's own tools use. They may change in any release.
///
/// [`block`](unstable::block) is the device layer. A program needs it only to supply its own
/// devices, and then opens the store with the engine's [`StoreOptions`](unstable::StoreOptions).
pub mod unstable {
    pub use qpair_block as block;
    pub use qpair_engine::{LogPlace, StoreOptions, WorkerCycles};
    pub use qpair_kernel::probe;

    /// The features that the library was built with, for `qpair --version`.
    #[doc(hidden)]
    pub const FEATURES: &[&str] = &[
        #[cfg(feature = "drivers")]
        "drivers",
        #[cfg(feature = "metrics")]
        "metrics",
    ];
}

/// Compiles the example of the README.
#[doc = include_str!("../../../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
