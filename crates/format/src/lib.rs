//! What a store's bytes mean: pages, logs, checkpoints, superblocks. See docs/design/page-format.md and docs/design/log-format.md.
//!
//! Bytes in, meaning out: nothing here does I/O, waits, or knows what a transaction is. The engine, the tools that look at stores it does not
//! have open, and the fuzzers stand on it. What reads bytes never panics on any of them.
//!
//! - [`page`]: leaves and inner pages of the B+-trees; [`large`]: values too large for a leaf.
//! - [`log`]: records, chunks and segments of the write-ahead log, and how they are read in order.
//! - [`image`] and [`bitmap`]: what a checkpoint leaves beside the trees.
//! - [`catalog`]: which tree a table is.
//! - [`superblock`]: what the members of a store say of it.
//! - [`place`] and [`swip`]: where a page is, on the device or in memory.
//! - [`Error`]: what can go wrong with a store.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod bitmap;
pub mod catalog;
pub mod error;
pub mod head;
pub mod image;
pub mod large;
pub mod log;
pub mod page;
pub mod place;
pub mod superblock;
pub mod swip;

pub use error::{Error, ErrorKind, Remedy, Result, SALVAGE};
