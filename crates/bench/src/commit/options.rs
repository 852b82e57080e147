//! Options of a run.

use std::fmt;

use crate::kv::Durability;

/// The kind of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitWork {
    /// Transactions replace uniformly random rows of a table that is filled first.
    Update,
    /// Transactions insert all rows in random order into an empty table.
    Insert,
}

impl fmt::Display for CommitWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Update => "update",
            Self::Insert => "insert",
        })
    }
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct CommitOptions {
    /// The kind of transactions.
    pub work: CommitWork,
    /// The number of records: those of the table, or those to insert.
    pub records: u64,
    /// The number of rows of a transaction.
    pub rows_per_tx: u32,
    /// The number of clients.
    pub clients: usize,
    /// Seconds to measure. Inserts run until all records are inserted.
    pub seconds: f64,
    /// Seconds to run before the measurement. Inserts have no warm-up.
    pub warm_up_seconds: f64,
    /// The durability that commits wait for.
    pub durability: Durability,
    /// The seed of the inputs.
    pub seed: u64,
}

impl Default for CommitOptions {
    fn default() -> Self {
        Self {
            work: CommitWork::Update,
            records: 100_000,
            rows_per_tx: 1,
            clients: 1,
            seconds: 10.0,
            warm_up_seconds: 1.0,
            durability: Durability::Sync,
            seed: 1,
        }
    }
}
