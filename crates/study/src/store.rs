//! Points of a storage engine: a workload of a store in place of a device's.
//!
//! A study has no engine. A caller that has one hands in a [`StoreRunner`].

use std::fmt;

use qpair_block::{Result, format_bytes};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::measure::Measure;

/// What a store is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreWork {
    /// Records of 128 bytes, looked up at random.
    Lookup,
    /// TPC-C's mix of transactions.
    Tpcc,
}

/// A store and its workload. [`Config::threads`] are its workers, [`Config::depth`] the tasks of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoreUse {
    /// What it is asked for.
    pub work: StoreWork,
    /// Bytes of its pages.
    pub page_bytes: u32,
    /// Its data, in percent of its memory.
    pub data_percent: u32,
    /// Operations arrive at random times, so many of 100 that it does when each task does one after the other; `None`: they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_percent: Option<u32>,
    /// Parents of pages that leave memory are looked for from the root.
    #[serde(default)]
    pub parents_from_root: bool,
}

impl StoreUse {
    /// Pages of 4 KiB, ten times as many as fit into memory.
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

    /// As a point: an interface, and so many workers, each of which has a core.
    #[must_use]
    pub fn on(self, interface: &str, workers: u32) -> Config {
        let tasks = match self.work {
            StoreWork::Lookup => 128,
            StoreWork::Tpcc => 32,
        };
        Config {
            store: Some(self),
            ..Config::new(interface, workers)
                .threads(workers)
                .depth(tasks)
                .block_bytes(self.page_bytes)
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

/// What a store's run has beside what every run has. An operation is a lookup or a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreFigures {
    /// Mean latency of an operation, microseconds.
    pub mean_us: f64,
    /// Reads of the device, of an operation.
    pub reads_per_op: f64,
    /// Writes of the device, the log's among them, of an operation.
    pub writes_per_op: f64,
    /// Bytes read and written, of an operation.
    pub device_bytes_per_op: f64,
    /// Mean latency of a read of a page, microseconds.
    pub device_read_us: f64,
    /// Eviction's share of the time in which workers did not wait.
    pub eviction_share: f64,
}

/// Runs what is asked of a store.
pub trait StoreRunner {
    /// Runs a point, which has a [`Config::store`], for so many seconds after so many that do not count.
    ///
    /// # Errors
    /// What the store says.
    fn run(&mut self, config: &Config, ramp_s: f64, run_s: f64) -> Result<Measure>;
}
