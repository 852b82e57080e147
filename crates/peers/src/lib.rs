//! RocksDB, WiredTiger and LMDB behind the trait over which the workloads of `qpair-bench` run.
//!
//! - [`engine`]: what the three have in common, blocking.
//! - [`rocksdb`], [`wiredtiger`], [`lmdb`]: the three. Their `unsafe` code begins with its
//!   argument, each in its module.
//! - [`Peer`]: any of them as a [`Kv`](qpair_bench::kv::Kv).
//! - [`memory_limit`]: a bound on the memory of the whole process, for the one that has none of its
//!   own.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]

pub mod engine;
mod error;
pub mod folder;
mod kv;
pub mod lmdb;
mod loader;
pub mod memory_limit;
pub mod rocksdb;
pub mod wiredtiger;

pub use error::{Error, Result};
pub use kv::{Peer, PeerSession};
pub use loader::TransactionLoader;
