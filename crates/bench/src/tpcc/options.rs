//! Options of a run.

use super::scale::Scale;
use crate::kv::Durability;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct TpccOptions {
    /// The size of the database.
    pub scale: Scale,
    /// The number of terminals.
    pub terminals: usize,
    /// Seconds to measure; 0: load only.
    pub seconds: f64,
    /// Seconds to run before the measurement.
    pub warm_up_seconds: f64,
    /// The mean number of transactions that arrive a second, at random times; `None`: each terminal
    /// runs one transaction after the other.
    pub rate_per_s: Option<f64>,
    /// The durability that commits wait for.
    pub durability: Durability,
    /// Whether all tables are read once before the run, for a store that fits into memory.
    pub read_first: bool,
    /// Whether the twelve conditions are checked afterwards.
    pub check: bool,
    /// The seed of the data and the inputs.
    pub seed: u64,
}

impl Default for TpccOptions {
    fn default() -> Self {
        Self {
            scale: Scale::standard(1),
            terminals: 64,
            seconds: 10.0,
            warm_up_seconds: 2.0,
            rate_per_s: None,
            durability: Durability::Group,
            read_first: false,
            check: false,
            seed: 1,
        }
    }
}
