//! Points of a storage engine: they measure a workload of a store and not of a device.
//!
//! This crate has no engine. A caller that has one provides a [`crate::StoreRunner`].

use std::fmt;

use qpair_block::format_bytes;
use serde::{Deserialize, Serialize};

/// The workload of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreWork {
    /// Random lookups of records of 128 bytes.
    Lookup,
    /// TPC-C's mix of transactions.
    Tpcc,
}

/// The workload of a store, with its settings. [`crate::Config::threads`] is the number of workers,
/// and [`crate::Config::depth`] the number of tasks of each worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoreUse {
    /// The workload.
    pub work: StoreWork,
    /// The page size in bytes.
    pub page_bytes: u32,
    /// The amount of data in percent of the memory.
    pub data_percent: u32,
    /// The arrival rate, in percent of the peak rate, of operations that arrive at random times;
    /// `None`: each task runs one operation after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_percent: Option<u32>,
    /// Whether eviction finds the parent of a page by a search from the root.
    #[serde(default)]
    pub parents_from_root: bool,
}

impl StoreUse {
    /// Returns a store with pages of 4 KiB and ten times as much data as memory.
    #[must_use]
    pub fn new(work: StoreWork) -> Self {
        Self {
            work,
            page_bytes: 4096,
            data_percent: 1000,
            rate_percent: None,
            parents_from_root: false,
        }
    }
}

impl fmt::Display for StoreUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = match self.work {
            StoreWork::Lookup => "lookups",
            StoreWork::Tpcc => "TPC-C",
        };
        let times = f64::from(self.data_percent) / 100.0;
        let page = format_bytes(self.page_bytes.into());
        write!(f, "a store, {work}, pages of {page}, data {times} times the memory")?;
        if let Some(percent) = self.rate_percent {
            write!(f, ", arriving at {percent} % of the peak")?;
        }
        if self.parents_from_root {
            f.write_str(", parents looked for from the root")?;
        }
        Ok(())
    }
}

/// The figures that only runs of a store have. An operation is a lookup or a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreFigures {
    /// Mean latency of an operation in microseconds.
    pub mean_us: f64,
    /// Reads of the device for each operation.
    pub reads_per_op: f64,
    /// Writes of the device for each operation, including the log.
    pub writes_per_op: f64,
    /// Bytes read and written for each operation.
    pub device_bytes_per_op: f64,
    /// Mean latency of a page read in microseconds.
    pub device_read_us: f64,
    /// The share of the workers' working time that was spent on eviction.
    pub eviction_share: f64,
    /// The share of the workers' working time that was spent on submitting; `None` in studies of
    /// older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission_share: Option<f64>,
}
