//! The meaning of a store's bytes: pages, logs, checkpoints, superblocks. See
//! docs/design/page-format.md and docs/design/log-format.md.
//!
//! This crate only encodes and decodes: nothing here does I/O, waits, or knows what a transaction
//! is. The engine, the tools that inspect stores that are not open, and the fuzzers are built on
//! it. Decoding never panics, whatever the bytes are.
//!
//! - [`page`]: leaves and inner pages of the B+-trees; [`large`]: values too large for a leaf.
//! - [`log`]: records, chunks and segments of the write-ahead log, and how they are read in order.
//! - [`image`] and [`bitmap`]: the pages that a checkpoint writes beside the trees.
//! - [`catalog`]: the tree of each table.
//! - [`codec`]: how a tree keeps values; [`values`]: those that are compressed; [`expiry`]: those
//!   that expire, and their index; [`group`]: records with long keys.
//! - [`superblock`]: the description of the store on each of its members.
//! - [`place`] and [`swip`]: the address of a page, on the device or in memory.
//! - [`shown`]: keys and values in messages, cut off where they are long.
//! - [`Error`]: the errors of a store.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod bitmap;
pub mod catalog;
pub mod codec;
pub mod error;
pub mod expiry;
pub mod group;
pub mod head;
pub mod image;
pub mod large;
pub mod log;
pub mod page;
pub mod place;
pub mod shown;
pub mod superblock;
pub mod swip;
pub mod values;

pub use error::{Error, ErrorKind, Remedy, Result, SALVAGE};
