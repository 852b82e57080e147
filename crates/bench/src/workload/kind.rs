//! The kinds of operations.

use std::fmt;

/// The kind of operations of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Uniformly random point lookups.
    Lookup,
    /// Uniformly random replacements of records.
    Update,
    /// Range scans of 100 records from uniformly random keys; an operation is one record.
    Scan,
    /// Insertion of all records in random order into an empty store.
    Insert,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lookup => "lookup",
            Self::Update => "update",
            Self::Scan => "scan",
            Self::Insert => "insert",
        })
    }
}
