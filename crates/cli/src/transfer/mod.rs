//! Exports and imports: tables as a stream, in formats of this store and of others.
//!
//! ```text
//! tables -> WriteFormat: json, binary, mdb -> output
//! input -> ReadDump: json, binary, mdb, rocksdb, redb -> Section -> load -> tables
//! ```
//!
//! A dump is a sequence of tables. Each table of it is loaded as `qpair load` loads one: a
//! [`Section`] is the reader of its records. The formats are described in
//! `docs/reference/export.md`.

mod binary;
mod format;
mod json;
mod mdb;
mod rocksdb;
mod section;
mod tally;

pub(crate) use format::{ReadFormat, WriteFormat, open};
pub(crate) use section::{Head, Section, Shared};
pub(crate) use tally::Tally;
