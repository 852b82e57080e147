//! The other storage engines of a study, which the program `qpair-peers` runs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use qpair_study::{Config, Lab, Measure, StoreUse, StoreWork};

use super::stores::Stores;

/// The other engines, by their names in `qpair-peers`.
const PEERS: [&str; 2] = ["rocksdb", "wiredtiger"];

/// The stores of other engines, by engine and size of pages.
pub(crate) struct Peers {
    folder: PathBuf,
    made: HashMap<(String, u32), OfPeer>,
}

/// The folder of a store of another engine.
struct OfPeer(PathBuf);

impl Drop for OfPeer {
    fn drop(&mut self) {
        // The error is ignored: the folder's name says which process made it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Peers {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, made: HashMap::new() }
    }

    /// Whether a point is of another engine.
    pub(crate) fn are_of(config: &Config) -> bool {
        PEERS.contains(&config.interface.as_str())
    }

    /// Runs TPC-C over another engine, with as much memory as this engine has for the same data.
    pub(crate) fn run(
        &mut self,
        own: &mut Stores,
        config: &Config,
        lab: &Lab,
        store: StoreUse,
        ramp_s: f64,
        run_s: f64,
    ) -> qpair::Result<Measure> {
        let failed = |what: String| qpair::Error::new(qpair::ErrorKind::Io, what);
        if store.work != StoreWork::Tpcc {
            return Err(failed("qpair-peers runs TPC-C only".to_owned()));
        }
        let memory = own.memory_bytes(lab, store)?;
        let (number, scale) = (self.made.len(), own.scale());
        let folder = self.made.entry((config.interface.clone(), store.page_bytes));
        let folder = folder.or_insert_with(|| {
            let name = format!("qpair-study-{}-{number}.peer", std::process::id());
            OfPeer(self.folder.join(name))
        });
        let output = Command::new("qpair-peers")
            .args(["tpcc", "--durability", "async", "--engine", &config.interface])
            .arg("--store")
            .arg(&folder.0)
            .args(["--memory", &memory.to_string(), "--page-size", &store.page_bytes.to_string()])
            .args(["--threads", &config.threads.to_string()])
            .args(["--warehouses", &scale.warehouses.to_string()])
            .args(["--items", &scale.items.to_string()])
            .args(["--customers", &scale.customers.to_string()])
            .args(["--warm-up", &ramp_s.to_string(), "--seconds", &run_s.to_string()])
            .output()
            .map_err(|cause| failed(format!("running qpair-peers: {cause}")))?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let Some(tx_per_s) = report["tx_per_s"].as_f64() else {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!("qpair-peers failed: {}", said.trim())));
        };
        Ok(Measure { seconds: run_s, ios_per_s: tx_per_s, ..Measure::default() })
    }
}
