//! The table of the lookup and commit benchmarks: records whose keys and values derive from their
//! numbers.

mod dataset;
mod fill;

pub use dataset::TABLES;
pub(crate) use dataset::{
    RECORDS, STORE_BYTES_PER_RECORD, Shuffle, VALUE_BYTES, is_value_of, key, value,
};
pub(crate) use fill::prepare;
