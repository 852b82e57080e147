//! Workloads over stores and devices, with measurements of their cost.
//!
//! - [`run`]: one workload over one store: [`Workload::Lookup`], [`Workload::Update`],
//!   [`Workload::Scan`], [`Workload::Insert`].
//! - [`ceiling`]: the random reads per second of the device without any other load.
//! - [`kv`]: a transactional key-value store, for workloads that run over several.
//! - [`StoreKv`]: a qpair store behind that trait.
//! - [`tpcc`], [`ycsb`], [`commit`]: TPC-C, YCSB and small commits over such a store.
//! - [`demo`]: a store ten times larger than its memory over every interface of this machine.
//!
//! All of them are clients of one harness. Modules import downward only:
//!
//! ```text
//!  demo
//!  workload, commit, tpcc, ycsb   benchmarks: their clients, options and reports
//!  store_kv, device, records      a store, a device alone; the table of workload and commit
//!  harness                        clients for a given time, and what they did
//!  kv, report                     systems under test, their sessions; parts of reports
//!  progress
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod commit;
mod demo;
mod device;
mod harness;
pub mod kv;
mod progress;
mod records;
mod report;
mod store_kv;
pub mod tpcc;
mod workload;
pub mod ycsb;

#[cfg(test)]
mod tests;

pub use demo::{DemoOptions, DemoReport, DemoRow, demo};
pub use device::{Ceiling, CeilingOptions, ceiling};
pub use progress::{Progress, Silent};
pub use report::{LatencyReport, PartReport};
pub use store_kv::{StoreKv, StoreKvOptions, StoreKvReport, StoreSession, Warmed, warm};
pub use workload::{Report, RunOptions, Workload, run};
