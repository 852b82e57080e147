//! The stores of a study: each is created in its folder when it is first needed, and removed at the
//! end.

use std::collections::HashMap;
use std::path::PathBuf;

use qpair_bench::tpcc::{Scale, TPCC_TABLES, TpccLatency, TpccOptions, run_tpcc};
use qpair_bench::{PartReport, RunOptions, StoreKv, StoreKvOptions, Workload, run, warm};
use qpair_block::DeviceSpec;
use qpair_drivers::Drivers;
use qpair_study::{Config, Effort, Lab, Measure, StoreFigures, StoreUse, StoreWork};

use crate::interrupt::Interrupt;

/// The memory for pages while a store is filled, in bytes.
const FILLING_BYTES: u64 = 256 << 20;

/// The number of seconds in which the peak is measured, before operations arrive at a fraction of
/// it.
const PEAK_S: f64 = 0.3;

pub(crate) struct Stores {
    folder: PathBuf,
    drivers: Drivers,
    effort: Effort,
    interrupt: Interrupt,
    made: HashMap<(StoreWork, u32), Made>,
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
            peaks: HashMap::new(),
        }
    }

    fn records(&self) -> u64 {
        match self.effort {
            Effort::Quick => 250_000,
            Effort::Usual | Effort::Full => 1_000_000,
        }
    }

    pub(crate) fn scale(&self) -> Scale {
        match self.effort {
            Effort::Quick => Scale { warehouses: 1, items: 20_000, customers: 600 },
            Effort::Usual => Scale { warehouses: 2, items: 50_000, customers: 1500 },
            Effort::Full => Scale { warehouses: 4, items: 100_000, customers: 3000 },
        }
    }

    /// Returns the memory of a store's point, in bytes, and makes the store if it is not there.
    pub(crate) fn memory_bytes(&mut self, store: StoreUse) -> qpair::Result<u64> {
        self.make(store)?;
        let made = self.made.get(&(store.work, store.page_bytes));
        let used = made.map_or(0, |made| made.used_bytes);
        Ok(used * 100 / u64::from(store.data_percent.max(1)))
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

    /// Runs a point of a store.
    pub(crate) fn run(
        &mut self,
        config: &Config,
        ramp_s: f64,
        run_s: f64,
    ) -> qpair::Result<Measure> {
        let Some(store) = config.store else {
            let what = "the point has no store";
            return Err(qpair::Error::new(qpair::ErrorKind::Invalid, what));
        };
        self.make(store)?;
        let mut rate_per_s = None;
        if let Some(percent) = store.rate_percent {
            let closed =
                Config { store: Some(StoreUse { rate_percent: None, ..store }), ..config.clone() };
            let peak = match self.peaks.get(&closed) {
                Some(peak) => *peak,
                None => {
                    let peak = self.run(&closed, ramp_s, PEAK_S)?.ios_per_s;
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
