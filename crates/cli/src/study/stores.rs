//! The stores of a study: each is created in its place when it is first needed, and removed at the
//! end.

use std::collections::HashMap;
use std::path::PathBuf;

use qpair_bench::tpcc::{Scale, TPCC_TABLES, TpccLatency, TpccOptions, run_tpcc};
use qpair_bench::{PartReport, RunOptions, StoreKv, StoreKvOptions, Workload, run, warm};
use qpair_drivers::Drivers;
use qpair_study::{
    Config, Effort, Lab, Measure, SOFT_DRIVE, StoreFigures, StoreUse, StoreWork, USER_SPACE,
    is_on_devices,
};

use super::place::Place;
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
    made: HashMap<Key, Made>,
    /// The operations per second when each task starts the next operation after the last.
    peaks: HashMap<Config, f64>,
}

struct Made {
    place: Place,
    used_bytes: u64,
}

/// The properties in which stores differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    work: StoreWork,
    page_bytes: u32,
    /// The series of a drive made of software, if the store is on one.
    soft: Option<String>,
}

impl Key {
    fn of(store: StoreUse, interface: &str) -> Self {
        let soft = interface.starts_with(SOFT_DRIVE).then(|| interface.to_owned());
        Self { work: store.work, page_bytes: store.page_bytes, soft }
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
    pub(crate) fn memory_bytes(&mut self, lab: &Lab, store: StoreUse) -> qpair::Result<u64> {
        self.make(lab, store, AUTO)?;
        let made = self.made.get(&Key::of(store, AUTO));
        let used = made.map_or(0, |made| made.used_bytes);
        Ok(used * 100 / u64::from(store.data_percent.max(1)))
    }

    /// Creates and fills a store, unless it exists already.
    fn make(&mut self, lab: &Lab, store: StoreUse, interface: &str) -> qpair::Result<()> {
        let key = Key::of(store, interface);
        if self.made.contains_key(&key) {
            return Ok(());
        }
        let interface = match &key.soft {
            Some(series) => series,
            None if interface == USER_SPACE => USER_SPACE,
            None => AUTO,
        };
        let failed = |error| qpair::Error::block(error, "making the place of a store");
        // From here on the place is removed, whatever happens.
        let place = match &key.soft {
            Some(series) => Place::soft(&self.drivers, series, store).map_err(failed)?,
            None if is_on_devices(&lab.devices) => {
                Place::slices(lab, interface, store).map_err(failed)?
            }
            None => Place::file(&self.folder, self.made.len()),
        };
        let mut made = Made { place, used_bytes: 0 };
        let filling = Config::new(interface, 0).depth(16);
        let path: PathBuf = made.place.spec(lab, &filling).map_err(failed)?.to_string().into();
        if made.place.must_be_formatted() {
            let empty = qpair::Options::new(&path).drivers(&self.drivers).format(true).force(true);
            empty.page_size(store.page_bytes as usize).open()?.close()?;
        }
        let asked = Asked {
            path: path.clone(),
            memory_bytes: FILLING_BYTES,
            config: &filling,
            store,
            rate_per_s: None,
            ramp_s: 0.0,
            run_s: 0.01,
        };
        self.measure(&asked)?;
        let there = qpair::Options::new(&path).drivers(&self.drivers).open()?;
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

    /// Forgets the stores on devices after a run that has written over them.
    pub(crate) fn spoil(&mut self) {
        self.made.retain(|_, made| !matches!(made.place, Place::Slices { .. }));
    }

    /// Runs a point of a store.
    pub(crate) fn run(
        &mut self,
        config: &Config,
        lab: &Lab,
        ramp_s: f64,
        run_s: f64,
    ) -> qpair::Result<Measure> {
        let Some(store) = config.store else {
            let what = "the point has no store";
            return Err(qpair::Error::new(qpair::ErrorKind::Invalid, what));
        };
        self.make(lab, store, &config.interface)?;
        let mut rate_per_s = None;
        if let Some(percent) = store.rate_percent {
            let closed =
                Config { store: Some(StoreUse { rate_percent: None, ..store }), ..config.clone() };
            let peak = match self.peaks.get(&closed) {
                Some(peak) => *peak,
                None => {
                    let peak = self.run(&closed, lab, ramp_s, PEAK_S)?.ios_per_s;
                    self.peaks.insert(closed, peak);
                    peak
                }
            };
            rate_per_s = Some(peak * f64::from(percent) / 100.0);
        }
        let Some(made) = self.made.get(&Key::of(store, &config.interface)) else {
            let what = "the store that was made just now has disappeared";
            return Err(qpair::Error::new(qpair::ErrorKind::NotFound, what));
        };
        let spec = made.place.spec(lab, config);
        let spec = spec.map_err(|error| qpair::Error::block(error, "finding a store"))?;
        self.measure(&Asked {
            path: spec.to_string().into(),
            memory_bytes: made.used_bytes * 100 / u64::from(store.data_percent.max(1)),
            config,
            store,
            rate_per_s,
            ramp_s,
            run_s,
        })
    }
}

/// The interface over which a store is filled, except over the user-space driver.
const AUTO: &str = "auto";

/// Returns the mode of a kernel's interface; that of other interfaces is not used.
fn mode(interface: &str) -> qpair::Result<qpair::Mode> {
    if interface == USER_SPACE || interface.starts_with(SOFT_DRIVE) {
        return Ok(qpair::Mode::default());
    }
    let invalid = |why| qpair::Error::new(qpair::ErrorKind::Invalid, format!("{interface}: {why}"));
    interface.parse().map_err(invalid)
}

/// Returns a part's share of the time in which the workers did not wait.
fn share(part: &str, parts: &[PartReport]) -> f64 {
    let of = |name| parts.iter().find(|part| part.part == name).map_or(0.0, |part| part.share);
    of(part) / (1.0 - of("waiting")).max(1e-9)
}
