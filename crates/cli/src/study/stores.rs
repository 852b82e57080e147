//! The points of a study that need more than its own crate: those of stores, of other storage
//! engines, of the engine's tasks, and of the floor of a drive.
//!
//! Each store is created in its folder when it is first needed, and removed at the end.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use qpair_bench::tpcc::{Scale, TPCC_TABLES, TpccLatency, TpccOptions, run_tpcc};
use qpair_bench::{PartReport, RunOptions, StoreKv, StoreKvOptions, Workload, run, warm};
use qpair_block::{DeviceSpec, Error, ErrorKind, Result};
use qpair_drivers::Drivers;
use qpair_floor::{Load, Options as FloorOptions, Way, Which, Workload as FloorWorkload};
use qpair_study::{
    Config, Effort, FLOOR, Lab, Measure, Outside, SOFT_FLOOR, StoreFigures, StoreUse, StoreWork,
    TASK_SWITCH, Watcher,
};

use crate::interrupt::Interrupt;

/// The memory for pages while a store is filled, in bytes.
const FILLING_BYTES: u64 = 256 << 20;

/// The minimum duration of a run of a store, and of its warm-up, in seconds: a transaction takes
/// many reads.
const SHORTEST_S: (f64, f64) = (0.2, 0.3);

/// The number of seconds in which the peak is measured, before operations arrive at a fraction of
/// it.
const PEAK_S: f64 = 0.3;

pub(crate) struct Stores {
    folder: PathBuf,
    drivers: Drivers,
    effort: Effort,
    interrupt: Interrupt,
    made: HashMap<(StoreWork, u32), Made>,
    /// The folders of stores of other engines, by engine and size of pages.
    of_peers: HashMap<(String, u32), OfPeer>,
    /// The operations per second when each task starts the next operation after the last.
    peaks: HashMap<Config, f64>,
}

struct Made {
    path: PathBuf,
    used_bytes: u64,
}

impl Drop for Made {
    fn drop(&mut self) {
        // The error is ignored: the file's name says which process made it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The folder of a store of another engine.
struct OfPeer(PathBuf);

impl Drop for OfPeer {
    fn drop(&mut self) {
        // The error is ignored: the folder's name says which process made it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The settings of a point: the store, and the duration.
struct Asked<'a> {
    /// The specifier that selects the store's channels.
    path: PathBuf,
    memory_bytes: u64,
    config: &'a Config,
    store: StoreUse,
    rate_per_s: Option<f64>,
    ramp_s: f64,
    run_s: f64,
}

impl Stores {
    pub(crate) fn new(lab: &Lab, interrupt: Interrupt) -> Self {
        Self {
            folder: lab.folder.clone(),
            drivers: lab.drivers.clone(),
            effort: lab.effort,
            interrupt,
            made: HashMap::new(),
            of_peers: HashMap::new(),
            peaks: HashMap::new(),
        }
    }

    fn records(&self) -> u64 {
        match self.effort {
            Effort::Quick => 250_000,
            Effort::Usual | Effort::Full => 1_000_000,
        }
    }

    fn scale(&self) -> Scale {
        match self.effort {
            Effort::Quick => Scale { warehouses: 1, items: 20_000, customers: 600 },
            Effort::Usual => Scale { warehouses: 2, items: 50_000, customers: 1500 },
            Effort::Full => Scale { warehouses: 4, items: 100_000, customers: 3000 },
        }
    }

    /// Creates and fills a store, unless it exists already.
    fn make(&mut self, store: StoreUse) -> qpair::Result<()> {
        let key = (store.work, store.page_bytes);
        if self.made.contains_key(&key) {
            return Ok(());
        }
        let number = self.made.len();
        let name = format!("qpair-study-{}-{number}.qpair", std::process::id());
        // From here on the file is removed, whatever happens.
        let mut made = Made { path: self.folder.join(name), used_bytes: 0 };
        let filling = Config::new("auto", 0).depth(16);
        let asked = Asked {
            path: made.path.clone(),
            memory_bytes: FILLING_BYTES,
            config: &filling,
            store,
            rate_per_s: None,
            ramp_s: 0.0,
            run_s: 0.01,
        };
        self.measure(&asked)?;
        let there = qpair::Options::new(&made.path).drivers(&self.drivers).open()?;
        let report = there.report();
        made.used_bytes = (report.pages - report.free_pages) * report.page_size as u64;
        there.close()?;
        self.made.insert(key, made);
        Ok(())
    }

    fn measure(&self, asked: &Asked<'_>) -> qpair::Result<Measure> {
        match asked.store.work {
            StoreWork::Lookup => self.lookups(asked),
            StoreWork::Tpcc => self.tpcc(asked),
        }
    }

    fn lookups(&self, asked: &Asked<'_>) -> qpair::Result<Measure> {
        let options = RunOptions {
            store: asked.path.clone(),
            drivers: self.drivers.clone(),
            records: self.records(),
            memory_bytes: asked.memory_bytes,
            io: mode(&asked.config.interface)?,
            workers: asked.config.threads as usize,
            tasks: asked.config.depth as usize,
            seconds: asked.run_s,
            warm: true,
            warm_up_seconds: asked.ramp_s,
            page_size: asked.store.page_bytes as usize,
            rate_per_s: asked.rate_per_s,
            cycles: true,
            parent_hints: !asked.store.parents_from_root,
            ..RunOptions::default()
        };
        let found = run(Workload::Lookup, &options, &self.interrupt)?;
        let writes_per_op = found.device_writes_per_s / found.ops_per_s.max(1e-9);
        let figures = StoreFigures {
            mean_us: found.latency_us.mean,
            reads_per_op: found.reads_per_op,
            writes_per_op,
            device_bytes_per_op: found.device_bytes_per_op,
            device_read_us: found.device_read_us,
            eviction_share: share("eviction", &found.cycles),
            submission_share: Some(share("submission", &found.cycles)),
        };
        Ok(Measure {
            seconds: found.seconds,
            ios_per_s: found.ops_per_s,
            bytes_per_s: found.ops_per_s * found.device_bytes_per_op,
            p50_us: found.latency_us.p50,
            p99_us: found.latency_us.p99,
            cpu_us_per_io: found.cpu_us_per_op,
            kernel_share: found.kernel_share,
            system_calls_per_io: found.system_calls_per_op,
            store: Some(figures),
            ..Measure::default()
        })
    }

    fn tpcc(&self, asked: &Asked<'_>) -> qpair::Result<Measure> {
        let options = StoreKvOptions {
            store: asked.path.clone(),
            drivers: self.drivers.clone(),
            memory_bytes: asked.memory_bytes,
            io: mode(&asked.config.interface)?,
            workers: asked.config.threads as usize,
            page_size: asked.store.page_bytes as usize,
            cycles: true,
            parent_hints: !asked.store.parents_from_root,
            ..StoreKvOptions::default()
        };
        let kv = StoreKv::open(&options, &TPCC_TABLES)?;
        // Fill memory first. Otherwise eviction would begin during a short run.
        warm(kv.store(), &self.interrupt)?;
        let workers = kv.store().workers();
        let options = TpccOptions {
            scale: self.scale(),
            terminals: workers * asked.config.depth as usize,
            seconds: asked.run_s,
            warm_up_seconds: asked.ramp_s,
            rate_per_s: asked.rate_per_s,
            ..TpccOptions::default()
        };
        let outcome = run_tpcc(&kv, &options, &self.interrupt);
        kv.close()?;
        let found = outcome?;
        let count: u64 = found.types.values().map(|kind| kind.count).sum();
        // The mean over all types, weighted by their frequency.
        let mean = |of: fn(&TpccLatency) -> f64| {
            let weighed = found.latency_us.iter().filter_map(|(name, latency)| {
                Some(of(latency) * found.types.get(name)?.count as f64)
            });
            weighed.sum::<f64>() / count.max(1) as f64
        };
        let figures = StoreFigures {
            mean_us: mean(|latency| latency.mean),
            reads_per_op: found.device_reads_per_tx.unwrap_or(0.0),
            writes_per_op: found.device_writes_per_tx.unwrap_or(0.0),
            device_bytes_per_op: found.device_bytes_per_tx.unwrap_or(0.0),
            device_read_us: found.device_read_us.unwrap_or(0.0),
            eviction_share: share("eviction", &found.cycles),
            submission_share: Some(share("submission", &found.cycles)),
        };
        Ok(Measure {
            seconds: found.seconds,
            ios_per_s: found.tx_per_s,
            bytes_per_s: found.tx_per_s * figures.device_bytes_per_op,
            p50_us: mean(|latency| latency.p50),
            p99_us: mean(|latency| latency.p99),
            cpu_us_per_io: found.cpu_us_per_tx,
            store: Some(figures),
            ..Measure::default()
        })
    }

    fn run_point(&mut self, config: &Config, ramp_s: f64, run_s: f64) -> qpair::Result<Measure> {
        let Some(store) = config.store else {
            let what = "the point has no store";
            return Err(qpair::Error::new(qpair::ErrorKind::Invalid, what));
        };
        self.make(store)?;
        if PEERS.contains(&config.interface.as_str()) {
            return self.peer(config, store, ramp_s, run_s);
        }
        let mut rate_per_s = None;
        if let Some(percent) = store.rate_percent {
            let closed =
                Config { store: Some(StoreUse { rate_percent: None, ..store }), ..config.clone() };
            let peak = match self.peaks.get(&closed) {
                Some(peak) => *peak,
                None => {
                    let peak = self.run_point(&closed, ramp_s, PEAK_S)?.ios_per_s;
                    self.peaks.insert(closed, peak);
                    peak
                }
            };
            rate_per_s = Some(peak * f64::from(percent) / 100.0);
        }
        let Some(made) = self.made.get(&(store.work, store.page_bytes)) else {
            let what = "the store that was made just now has disappeared";
            return Err(qpair::Error::new(qpair::ErrorKind::NotFound, what));
        };
        self.measure(&Asked {
            path: config.channels.over(DeviceSpec::File(made.path.clone())).to_string().into(),
            memory_bytes: made.used_bytes * 100 / u64::from(store.data_percent.max(1)),
            config,
            store,
            rate_per_s,
            ramp_s,
            run_s,
        })
    }
}

fn mode(interface: &str) -> qpair::Result<qpair::Mode> {
    let invalid = |why| qpair::Error::new(qpair::ErrorKind::Invalid, format!("{interface}: {why}"));
    interface.parse().map_err(invalid)
}

/// Returns a part's share of the time in which the workers did not wait.
fn share(part: &str, parts: &[PartReport]) -> f64 {
    let of = |name| parts.iter().find(|part| part.part == name).map_or(0.0, |part| part.share);
    of(part) / (1.0 - of("waiting")).max(1e-9)
}

/// The other engines, by their names in `qpair-peers`.
const PEERS: [&str; 2] = ["rocksdb", "wiredtiger"];

impl Stores {
    /// Runs TPC-C over another engine, with as much memory as this engine has for the same data.
    fn peer(
        &mut self,
        config: &Config,
        store: StoreUse,
        ramp_s: f64,
        run_s: f64,
    ) -> qpair::Result<Measure> {
        let failed = |what: String| qpair::Error::new(qpair::ErrorKind::Io, what);
        if store.work != StoreWork::Tpcc {
            return Err(failed("qpair-peers runs TPC-C only".to_owned()));
        }
        let used = self.made.get(&(store.work, store.page_bytes)).map_or(0, |made| made.used_bytes);
        let memory = used * 100 / u64::from(store.data_percent.max(1));
        let (number, scale) = (self.of_peers.len(), self.scale());
        let folder = self.of_peers.entry((config.interface.clone(), store.page_bytes));
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

    /// Measures the switch between two tasks of one worker, each of which gives way to the other.
    fn task_switch(&self, run_s: f64) -> qpair::Result<Measure> {
        let options = qpair::Options::new("ram:size=64MiB").drivers(&self.drivers).workers(1);
        let store = options.create(true).memory_bytes(16 << 20).open()?;
        let task = || {
            store.spawn(move || async move {
                let (clock, mut switches) = (Instant::now(), 0_u64);
                while clock.elapsed().as_secs_f64() < run_s {
                    // Hundred switches hide the cost of reading the clock.
                    for _ in 0..100 {
                        qpair::task::yield_now().await;
                    }
                    switches += 100;
                }
                (switches, clock.elapsed().as_secs_f64())
            })
        };
        let tasks = [task(), task()];
        let mut all = (0, 0.0_f64);
        for found in tasks {
            let (switches, seconds) = found.join()?;
            all = (all.0 + switches, all.1.max(seconds));
        }
        store.close()?;
        let each_us = all.1 * 1e6 / (all.0 as f64).max(1.0);
        Ok(Measure {
            seconds: all.1,
            ios_per_s: all.0 as f64 / all.1.max(1e-9),
            p50_us: each_us,
            p99_us: each_us,
            cpu_us_per_io: each_us,
            ..Measure::default()
        })
    }

    /// Runs prebuilt commands on a soft drive, or on the first device, by this program's driver.
    fn floor(&self, config: &Config, lab: &Lab, ramp_s: f64, run_s: f64) -> Result<Measure> {
        let invalid = |what: &str| Error::new(ErrorKind::Invalid, format!("{config}: {what}"));
        let spec = match config.interface.as_str() {
            SOFT_FLOOR => "softnvme:size=256MiB".to_owned(),
            _ => {
                let own = lab.devices.first().and_then(|device| device.own_driver_spec.clone());
                own.ok_or_else(|| invalid("the first device has no user-space driver"))?
            }
        };
        let workload = FloorWorkload {
            block_bytes: config.block_bytes,
            write: config.writes(),
            random: !config.sequential,
        };
        let options = FloorOptions {
            drive: Which::User(DeviceSpec::parse(&spec)?),
            drivers: self.drivers.clone(),
            loads: vec![Load { workload, depth: config.depth, jobs: config.threads }],
            time: Duration::from_secs_f64(ramp_s.max(run_s)),
            repeat: 1,
            seed: 1,
            allow_writes: lab.devices.first().is_some_and(|device| device.may_write),
        };
        let report = qpair_floor::run(&options, &Quiet(&self.interrupt))?;
        let point =
            report.points.first().ok_or_else(|| invalid("the drive does not take this load"))?;
        let turns = point.ways.iter().find(|turns| turns.way == Way::Floor);
        let turn = turns.and_then(|turns| turns.turns.first());
        let turn = turn.ok_or_else(|| invalid("the floor was not measured"))?;
        let [p50_us, _, p99_us, _] = turn.percentiles_us;
        Ok(Measure {
            seconds: turn.seconds,
            ios_per_s: turn.ios_per_s,
            bytes_per_s: turn.bytes_per_s,
            p50_us,
            p99_us,
            // The threads poll all the time.
            cpu_us_per_io: f64::from(config.threads) * 1e6 / turn.ios_per_s.max(1e-9),
            ..Measure::default()
        })
    }
}

/// A watcher that shows nothing, because the study shows its own progress.
struct Quiet<'a>(&'a Interrupt);

impl Watcher for Quiet<'_> {
    fn at(&self, _: u64, _: u64, _: &str) {}

    fn stop(&self) -> bool {
        self.0.is_requested()
    }
}

impl Outside for Stores {
    fn run(&mut self, config: &Config, lab: &Lab, ramp_s: f64, run_s: f64) -> Result<Measure> {
        if config.interface.starts_with(FLOOR) {
            return self.floor(config, lab, ramp_s, run_s);
        }
        let found = match config.interface.as_str() {
            TASK_SWITCH => self.task_switch(run_s),
            _ => self.run_point(config, ramp_s.max(SHORTEST_S.0), run_s.max(SHORTEST_S.1)),
        };
        found.map_err(|error| Error::new(ErrorKind::Io, format!("running a store: {error}")))
    }
}
