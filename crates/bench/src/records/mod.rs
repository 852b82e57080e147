//! The table of the simple benchmarks, and its records.

pub(crate) mod dataset;
