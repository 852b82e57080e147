//! From lines of input to records in a table.
//!
//! ```text
//! Input -> Lines -> DelimitedReader, CsvReader, JsonReader -> Gather -> Round -> puts or sorted
//! bytes             records of one format                    a thread   batches   tasks of the store
//! ```
//!
//! One thread reads and parses ahead while the store's workers put the round before. A round's
//! records are dealt out to lanes by their keys, each lane is one task, and rounds run one after
//! the other: so of records with the same key the last one of the input wins, whatever runs in
//! parallel.

mod columns;
mod csv_reader;
mod delimited;
mod format;
mod gather;
mod input;
mod json;
mod lines;
mod progress;
mod puts;
mod record;
mod round;
mod sorted;
mod write;

pub(crate) use columns::Columns;
pub(crate) use format::{Format, Layout, parse_delimiter};
pub(crate) use gather::{Gather, Limits, begin};
pub(crate) use input::Input;
pub(crate) use progress::Progress;
pub(crate) use puts::{Loaded, put_all};
#[cfg(test)]
pub(crate) use record::Record;
pub(crate) use sorted::load_sorted;
pub(crate) use write::write_record;
