//! Runs the tasks of a workload for a while, and counts.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use qpair::{Error, ErrorKind, JoinHandle, Result, Store, TaskTable};

use crate::arrivals::Arrivals;
use crate::clock::Stretch;
use crate::loops;
use crate::progress::Progress;
use crate::run::{RunOptions, interrupted, watch};
use crate::workload::Workload;

/// What a run counted.
pub(crate) struct Measured {
    pub(crate) wall_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) ops: u64,
    pub(crate) histogram: Histogram<u64>,
    pub(crate) by_second: Vec<u64>,
    pub(crate) device: qpair_block::ChannelStatistics,
}

/// What the tasks of one worker count together.
pub(crate) struct Tally {
    histogram: Histogram<u64>,
    by_second: Vec<u64>,
    ops: u64,
}

/// When a run measures, in nanoseconds since its base; tasks read it at every operation.
pub(crate) struct Window {
    base: Instant,
    from_ns: u64,
    to_ns: u64,
    stop: Arc<AtomicBool>,
    /// Records inserted so far, all tasks: what each inserts next.
    pub(crate) next: AtomicU64,
    arrivals: Option<Arrivals>,
}

fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 100_000_000_000, 2)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("making a histogram: {error}")))
}

/// Runs a workload's tasks on all workers.
pub(crate) fn measure(
    workload: Workload,
    store: &Store,
    table: &TaskTable,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<Measured> {
    let inserting = workload == Workload::Insert;
    let warm_up = Duration::from_secs_f64(if inserting { 0.0 } else { options.warm_up_seconds });
    let run_for = if inserting {
        Duration::from_secs(365 * 86400)
    } else {
        Duration::from_secs_f64(options.seconds)
    };
    let window = Arc::new(Window {
        base: Instant::now(),
        from_ns: warm_up.as_nanos() as u64,
        to_ns: (warm_up + run_for).as_nanos() as u64,
        stop: Arc::new(AtomicBool::new(false)),
        next: AtomicU64::new(0),
        arrivals: Arrivals::of(options.rate_per_s, 1)?,
    });
    let workers: Vec<JoinHandle<Result<Tally>>> = (0..store.workers())
        .map(|worker| {
            let (table, window, records, tasks) =
                (table.clone(), window.clone(), options.records, options.tasks);
            let spawner = store.clone();
            store.spawn_on(worker, move || {
                work(workload, spawner, worker, table, window, records, tasks)
            })
        })
        .collect();
    let sleep_until = |ns: u64| {
        while (window.base.elapsed().as_nanos() as u64) < ns && !progress.stop() {
            let left = ns.saturating_sub(window.base.elapsed().as_nanos() as u64);
            std::thread::sleep(Duration::from_nanos(left.min(20_000_000)));
        }
    };
    sleep_until(window.from_ns);
    let before = store.statistics()?.device;
    let stretch = Stretch::begin();
    if inserting {
        progress.begin("inserting in random order", options.records);
        let over = || window.next.load(Ordering::Relaxed) >= options.records;
        watch(progress, &window.next, &window.stop, &over);
    } else {
        progress.begin(
            &format!("{workload} over {}", store.device_info().interface),
            options.seconds.ceil() as u64 * 10,
        );
        while (window.base.elapsed().as_nanos() as u64) < window.to_ns && !progress.stop() {
            progress.at((window.base.elapsed().as_nanos() as u64
                - window.from_ns.min(window.base.elapsed().as_nanos() as u64))
                / 100_000_000);
            let left = window.to_ns.saturating_sub(window.base.elapsed().as_nanos() as u64);
            std::thread::sleep(Duration::from_nanos(left.min(20_000_000)));
        }
    }
    let (mut wall, mut cpu) = stretch.end();
    let mut after = store.statistics()?.device;
    window.stop.store(true, Ordering::Relaxed);
    let mut total = Tally { histogram: new_histogram()?, by_second: Vec::new(), ops: 0 };
    for worker in workers {
        let tally = worker.join()??;
        total.ops += tally.ops;
        total.histogram.add(&tally.histogram).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("adding histograms: {error}"))
        })?;
        for (second, ops) in tally.by_second.into_iter().enumerate() {
            if total.by_second.len() <= second {
                total.by_second.resize(second + 1, 0);
            }
            total.by_second[second] += ops;
        }
    }
    if inserting {
        // The last inserts count too.
        (wall, cpu) = stretch.end();
        after = store.statistics()?.device;
    }
    progress.end();
    if progress.stop() {
        return Err(interrupted());
    }
    let device = qpair_block::ChannelStatistics {
        reads: after.reads - before.reads,
        writes: after.writes - before.writes,
        system_calls: after.system_calls - before.system_calls,
        ..after
    };
    Ok(Measured {
        wall_s: wall.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
        ops: total.ops,
        histogram: total.histogram,
        by_second: total.by_second,
        device,
    })
}

/// Runs the tasks of one worker, and gathers what they counted.
async fn work(
    workload: Workload,
    store: Store,
    worker: usize,
    table: TaskTable,
    window: Arc<Window>,
    records: u64,
    tasks: usize,
) -> Result<Tally> {
    // Tasks of a worker share one tally without locks: they are all on this thread.
    thread_local! {
        static TALLY: RefCell<Option<Rc<RefCell<Tally>>>> = const { RefCell::new(None) };
    }
    let shared =
        Rc::new(RefCell::new(Tally { histogram: new_histogram()?, by_second: vec![], ops: 0 }));
    TALLY.with(|tally| *tally.borrow_mut() = Some(shared.clone()));
    let handles: Vec<_> = (0..tasks)
        .map(|task| {
            let (table, window) = (table.clone(), window.clone());
            let seed = (worker * 1_000_003 + task) as u64;
            store.spawn_on(worker, move || {
                let tally = TALLY.with(|tally| tally.borrow().clone());
                async move {
                    let Some(tally) = tally else { return Err(interrupted()) };
                    match workload {
                        Workload::Lookup => {
                            loops::lookups(&table, &window, records, seed, &tally).await
                        }
                        Workload::Update => {
                            loops::updates(&table, &window, records, seed, &tally).await
                        }
                        Workload::Scan => {
                            loops::scans(&table, &window, records, seed, &tally).await
                        }
                        Workload::Insert => loops::inserts(&table, &window, records, &tally).await,
                    }
                }
            })
        })
        .collect();
    for handle in handles {
        handle.await??;
    }
    TALLY.with(|tally| *tally.borrow_mut() = None);
    Rc::try_unwrap(shared).map(RefCell::into_inner).map_err(|_| interrupted())
}

impl Window {
    pub(crate) fn now_ns(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    /// When the next operation begins: when the one before ended, or when it is due. `false`: the run is over before.
    #[inline]
    pub(crate) async fn begin(&self, began_ns: &mut u64) -> bool {
        let Some(arrivals) = &self.arrivals else { return true };
        match arrivals.next(|| self.now_ns(), |now_ns| self.is_over(now_ns)).await {
            Some(due_ns) => *began_ns = due_ns,
            None => return false,
        }
        true
    }

    fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.to_ns || self.stop.load(Ordering::Relaxed)
    }

    /// Counts operations that began at this time and end now, where the next begins; `false` when it is time to stop.
    #[inline]
    pub(crate) fn count(&self, tally: &RefCell<Tally>, began_ns: &mut u64, ops: u64) -> bool {
        let ended_ns = self.now_ns();
        let took_ns = ended_ns - std::mem::replace(began_ns, ended_ns);
        if ended_ns >= self.from_ns && ended_ns < self.to_ns {
            let mut tally = tally.borrow_mut();
            tally.ops += ops;
            tally.histogram.saturating_record(took_ns);
            let second = ((ended_ns - self.from_ns) / 1_000_000_000) as usize;
            if tally.by_second.len() <= second {
                tally.by_second.resize(second + 1, 0);
            }
            tally.by_second[second] += ops;
        }
        !self.is_over(ended_ns)
    }
}
