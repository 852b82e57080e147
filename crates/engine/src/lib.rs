//! The storage engine: a buffer pool, B+-trees and tasks on workers, over any block device.
//!
//! - [`Store`]: a store on one or several devices, with named [`Table`]s.
//! - [`Table`]: an ordered map of byte strings; blocking calls for any thread, [`TaskTable`] for
//!   tasks.
//! - [`Transaction`] and [`TaskTransaction`]: several changes of several tables at once, isolated
//!   from others; [`Snapshot`]: the store as of one point.
//! - Tasks are futures that run on the store's workers ([`Store::spawn`]). While a task waits for a
//!   page, others run on its worker.
//!
//! The engine depends on the block layer's traits only, not on the devices below them. Its design
//! is in docs/design/: page-format.md, buffer-pool.md, tasks.md and transactions.md.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod canary;
mod checkpoint;
mod incarnation;
mod large;
mod log;
mod log_device;
mod metrics;
mod oracle;
mod overflow;
mod panics;
mod pool;
mod readers;
mod shared;
mod space;
mod store;
mod sync;
mod task;
mod tree;
mod tx;

#[doc(hidden)]
pub use canary::Canary;
pub use log::Durability;
#[doc(hidden)]
pub use log::FeedBreak;
pub use metrics::{Histogram, Metrics, Sample, SampleValue, WorkerCycles, to_prometheus};
pub use qpair_format::page::{KEY_LEN_MAX, PAGE_SIZE_MAX, PAGE_SIZE_MIN, VALUE_LEN_MAX};
pub use qpair_format::values::Compression;
pub use qpair_format::{Error, ErrorKind, Remedy, Result};
pub use qpair_members::{
    Encryption, LogPlace, SUPERBLOCK_OFFSETS, find_content, find_foreign, is_being_made,
    is_superblock, write_key_slots,
};
pub use shared::Recovered;
#[doc(hidden)]
pub use shared::WallClock;
pub use store::{
    BackupReport, BulkLoader, CheckReport, Commit, CompactReport, LogDeviceReport, Observer, Range,
    RecoveryProgress, Snapshot, Store, StoreOptions, StoreReport, StoreStatistics, Table,
    TableCheck, TableOptions, TableStatistics, TaskRange, TaskSnapshot, TaskStore, TaskTable,
    TaskTransaction, TaskTransactionRange, Transaction, TransactionRange, WarmReport, WeakStore,
    WriteBatch, new_member_bytes_min,
};
#[doc(hidden)]
pub use store::{CatalogChange, ChangeFeed, Changes, FeedBegin, Next};
pub use task::{JoinHandle, sleep, yield_now};
#[doc(hidden)]
pub use task::{Runtime, Step, abandon_stepped, is_stepped_here};
pub use tx::{
    Isolation, KeyBounds, Prefix, Savepoint, TransactionInfo, TransactionOptions, TransactionState,
};
