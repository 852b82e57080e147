//! Options of a run.

use super::mix::YcsbWorkload;
use crate::kv::Durability;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct YcsbOptions {
    /// The workload.
    pub workload: YcsbWorkload,
    /// The number of records to load.
    pub records: u64,
    /// The number of fields of a record.
    pub fields: usize,
    /// The size of a field in bytes.
    pub field_bytes: usize,
    /// The number of clients.
    pub clients: usize,
    /// Seconds to measure; 0: load only.
    pub seconds: f64,
    /// The number of operations of all clients together, which replaces the time limit.
    pub operations: Option<u64>,
    /// Seconds to run before measuring; not used with a number of operations.
    pub warm_up_seconds: f64,
    /// The durability that commits wait for.
    pub durability: Durability,
    /// The seed of the inputs.
    pub seed: u64,
}

impl Default for YcsbOptions {
    fn default() -> Self {
        Self {
            workload: YcsbWorkload::A,
            records: 1_000_000,
            fields: 10,
            field_bytes: 100,
            clients: 64,
            seconds: 10.0,
            operations: None,
            warm_up_seconds: 2.0,
            durability: Durability::Group,
            seed: 1,
        }
    }
}
