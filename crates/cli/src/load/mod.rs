//! Loads lines of input as records into a table.
//!
//! ```text
//! Input -> Lines -> DelimitedReader, CsvReader, JsonReader -> Gather -> Round -> puts or sorted
//! bytes             records of one format                    a thread   batches   tasks of the store
//! ```
//!
//! One thread reads and parses the next round while the store's workers put the previous one. A
//! round's records are distributed to lanes by key. Each lane is one task, and rounds run one after
//! the other. Of several records with the same key, the last one in the input therefore wins.

mod columns;
mod csv_reader;
mod delimited;
mod fill;
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
pub(crate) use fill::{Fill, finish};
pub(crate) use format::{Format, Layout, parse_delimiter};
pub(crate) use gather::{Hints, begin, failure};
pub(crate) use input::Input;
pub(crate) use json::parse_json;
pub(crate) use lines::Lines;
pub(crate) use progress::Progress;
pub(crate) use puts::Loaded;
pub(crate) use record::{ReadError, ReadRecord, Record, only};
pub(crate) use write::write_record;
