//! Runs the tasks of a workload for a given time, and counts.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use qpair::task::{JoinHandle, TaskTable};
use qpair::unstable::WorkerCycles;
use qpair::{Error, ErrorKind, Result, Store};

use crate::clock::Stretch;
use crate::loops;
use crate::progress::Progress;
use crate::run::{RunOptions, interrupted, watch};
use crate::span::Span;
use crate::workload::Workload;

/// The results of a run.
pub(crate) struct Measured {
    pub(crate) wall_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) ops: u64,
    pub(crate) histogram: Histogram<u64>,
    pub(crate) by_second: Vec<u64>,
    pub(crate) device: qpair_block::ChannelStatistics,
    pub(crate) cycles: WorkerCycles,
    /// Mean latency of the timed reads in microseconds.
    pub(crate) device_read_us: f64,
}

/// The common tally of the tasks of one worker.
pub(crate) struct Tally {
    histogram: Histogram<u64>,
    by_second: Vec<u64>,
    ops: u64,
}

/// The state that the tasks of a run share.
pub(crate) struct Window {
    pub(crate) span: Span,
    /// The number of records inserted so far by all tasks, and so the next record to insert.
    pub(crate) next: AtomicU64,
}

fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 100_000_000_000, 2)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("creating a histogram: {error}")))
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
    let warm_up_s = if inserting { 0.0 } else { options.warm_up_seconds };
    let seconds = (!inserting).then_some(options.seconds);
    let window = Arc::new(Window {
        span: Span::begin_now(warm_up_s, seconds, options.rate_per_s)?,
        next: AtomicU64::new(0),
    });
    let span = &window.span;
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
        while span.now_ns() < ns && !progress.stop() {
            let left = ns.saturating_sub(span.now_ns());
            std::thread::sleep(Duration::from_nanos(left.min(20_000_000)));
        }
    };
    sleep_until(span.from_ns);
    let reads_before = store.metrics()?.device_read_us;
    let before = store.statistics()?;
    let stretch = Stretch::begin();
    if inserting {
        progress.begin("inserting in random order", options.records);
        let over = || window.next.load(Ordering::Relaxed) >= options.records;
        watch(progress, &window.next, &span.stop, &over);
    } else {
        progress.begin(
            &format!("{workload} over {}", store.device_info().interface),
            options.seconds.ceil() as u64 * 10,
        );
        while span.now_ns() < span.to_ns && !progress.stop() {
            progress.at(span.now_ns().saturating_sub(span.from_ns) / 100_000_000);
            let left = span.to_ns.saturating_sub(span.now_ns());
            std::thread::sleep(Duration::from_nanos(left.min(20_000_000)));
        }
    }
    let (mut wall, mut cpu) = stretch.end();
    let mut after = store.statistics()?;
    span.stop.store(true, Ordering::Relaxed);
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
        after = store.statistics()?;
    }
    progress.end();
    if progress.stop() {
        return Err(interrupted());
    }
    let reads = store.metrics()?.device_read_us;
    let timed = reads.count() - reads_before.count();
    let device = qpair_block::ChannelStatistics {
        reads: after.device.reads - before.device.reads,
        writes: after.device.writes - before.device.writes,
        read_bytes: after.device.read_bytes - before.device.read_bytes,
        written_bytes: after.device.written_bytes - before.device.written_bytes,
        system_calls: after.device.system_calls - before.device.system_calls,
        ..after.device
    };
    Ok(Measured {
        wall_s: wall.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
        ops: total.ops,
        histogram: total.histogram,
        by_second: total.by_second,
        device,
        cycles: after.cycles.since(&before.cycles),
        device_read_us: (reads.sum_us() - reads_before.sum_us()) as f64 / timed.max(1) as f64,
    })
}

/// Runs the tasks of one worker, and collects their counts.
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
    /// Counts operations that began at `began_ns` and end now, and sets `began_ns` to now. Returns
    /// `false` when it is time to stop.
    #[inline]
    pub(crate) fn count(&self, tally: &RefCell<Tally>, began_ns: &mut u64, ops: u64) -> bool {
        let ended_ns = self.span.now_ns();
        let took_ns = ended_ns - std::mem::replace(began_ns, ended_ns);
        if self.span.measures(ended_ns) {
            let mut tally = tally.borrow_mut();
            tally.ops += ops;
            tally.histogram.saturating_record(took_ns);
            let second = ((ended_ns - self.span.from_ns) / 1_000_000_000) as usize;
            if tally.by_second.len() <= second {
                tally.by_second.resize(second + 1, 0);
            }
            tally.by_second[second] += ops;
        }
        !self.span.is_over(ended_ns)
    }
}
