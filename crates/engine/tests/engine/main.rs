//! The tests of a store's promises, one module for each subject. All are in one program, because
//! each program would be linked separately.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod backup;
mod check;
mod closing;
mod common;
mod compact;
#[cfg(all(feature = "lz4", feature = "zstd"))]
mod compression;
mod concurrency;
mod damage;
mod delete_range;
mod deleted_ranges;
mod dropped_futures;
mod dropped_tables;
mod durable_reads;
mod encryption;
mod expiry;
mod extents;
mod faults;
mod full_device;
mod growth;
mod history;
mod isolation;
mod large_transactions;
mod large_transactions_attack;
mod layers;
mod lock_timeouts;
mod log_device;
mod log_device_faults;
mod long_keys;
mod long_keys_model;
mod long_transactions;
mod metrics;
mod misuse;
mod model;
mod panics;
mod prefetch;
mod put_back;
mod readers;
mod reads;
mod recovery;
mod renamed_tables;
mod repair;
mod repair_after_crash;
mod sorted_load;
mod stalls;
mod stepped;
mod stripes;
mod tables;
mod transactions;
mod transactions_concurrent;
mod transactions_model;
mod unflushed_log;
mod warm;
