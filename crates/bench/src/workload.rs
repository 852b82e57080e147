//! The workloads.

use std::fmt;
use std::str::FromStr;

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

impl Workload {
    /// Whether the workload's operations commit changes.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Update | Self::Insert)
    }
}

/// Records of one scan.
pub(crate) const SCAN_RECORDS: u64 = 100;

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

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Lookup, Self::Update, Self::Scan, Self::Insert]
            .into_iter()
            .find(|workload| workload.to_string() == text)
            .ok_or_else(|| {
                format!("'{text}' is not a workload: choose lookup, update, scan or insert")
            })
    }
}
