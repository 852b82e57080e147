//! Clients of a key-value store that run one operation after the other for a given time, and their
//! counts.
//!
//! Always holds:
//! - An operation counts if it ends while the run measures. Its latency is the time from its
//!   beginning, or from the time it was due, to its end, with all its attempts.
//! - The clients of a thread count into one tally without locks.
//! - The first error of a client stops all clients, and the run returns it.

pub(crate) mod arrivals;
pub(crate) mod clock;
pub(crate) mod filler;
mod job;
mod tally;
pub(crate) mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use qpair::{Error, ErrorKind, Result};

use crate::harness::clock::Stretch;
use crate::harness::window::Span;
use crate::kv::{Clients, Kv, KvResult, KvStatistics};
use crate::progress::Progress;
use crate::workload::run::interrupted;
pub(crate) use job::{Errand, run_errand};
pub(crate) use tally::{KindTally, Tally};

/// The operations of one client.
pub(crate) trait Operate {
    /// Runs one operation; returns `None` if there is nothing left to do.
    async fn operate(&mut self) -> KvResult<Option<Done>>;
}

/// A finished operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// The kind of the operation, from 0.
    pub(crate) kind: usize,
    /// The amount that the operation adds to the throughput: 1, or its rows.
    pub(crate) weight: u32,
    /// Attempts that ended with a conflict.
    pub(crate) conflicts: u32,
    /// Whether the operation ended without a commit, as the workload intended.
    pub(crate) rolled_back: bool,
}

/// The clients and duration of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The number of concurrent clients.
    pub(crate) clients: usize,
    /// The number of kinds of operations.
    pub(crate) kinds: usize,
    /// Seconds before the measurement.
    pub(crate) warm_up_s: f64,
    /// Seconds measured; `None`: until the clients have nothing left to do.
    pub(crate) seconds: Option<f64>,
    /// The mean number of operations that arrive a second, at random times; `None`: each client
    /// runs one operation after the other.
    pub(crate) rate_per_s: Option<f64>,
    /// The weight of all operations, for the progress of a run without a time limit.
    pub(crate) total: u64,
    /// The name of the phase for progress messages.
    pub(crate) phase: String,
}

/// The counts of a run.
pub(crate) struct Driven {
    pub(crate) wall_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) kinds: Vec<KindTally>,
    /// The weight of the operations of each second.
    pub(crate) by_second: Vec<u64>,
    /// The counts of the store during the run. `store_bytes` is the size at the end.
    pub(crate) store: KvStatistics,
}

/// A live counter in a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Live(AtomicU64);

const LIVE_LINES: usize = 16;

struct Window {
    span: Span,
    running: AtomicUsize,
    live: [Live; LIVE_LINES],
}

impl Window {
    fn done(&self) -> u64 {
        self.live.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }
}

/// Marks a client as finished when dropped, whether it succeeded or failed.
struct Running(Arc<Window>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs clients over a store; `make` makes the client with a given number.
pub(crate) fn drive<K, C, M>(
    kv: &K,
    plan: &Plan,
    make: M,
    progress: &dyn Progress,
) -> Result<Driven>
where
    K: Kv,
    C: Operate + 'static,
    M: Fn(usize, K::Session) -> C + Send + Sync + 'static,
{
    let window = Arc::new(Window {
        span: Span::begin_now(plan.warm_up_s, plan.seconds, plan.rate_per_s)?,
        running: AtomicUsize::new(plan.clients),
        live: Default::default(),
    });
    let kinds = plan.kinds;
    let clients = {
        let window = window.clone();
        kv.start(plan.clients, move |number, session| {
            run_client(make(number, session), number, kinds, window.clone())
        })
        .map_err(Error::from)?
    };
    let outcome = watch(kv, plan, &window, progress);
    window.span.stop.store(true, Ordering::Relaxed);
    finish(kv, clients, outcome, plan, progress)
}

/// The measurements at the ends of the measured time.
struct Watched {
    stretch: Stretch,
    before: KvStatistics,
    at_end: Option<(Duration, Duration, KvStatistics)>,
}

fn watch<K: Kv>(
    kv: &K,
    plan: &Plan,
    window: &Window,
    progress: &dyn Progress,
) -> KvResult<Watched> {
    let span = &window.span;
    let over = || {
        progress.stop()
            || span.stop.load(Ordering::Relaxed)
            || window.running.load(Ordering::Relaxed) == 0
    };
    let nap = |until_ns: u64| {
        let left = until_ns.saturating_sub(span.now_ns());
        std::thread::sleep(Duration::from_nanos(left.min(20_000_000)));
    };
    if span.from_ns > 0 {
        progress.begin("warming up", span.from_ns / 100_000_000);
        while span.now_ns() < span.from_ns && !over() {
            progress.at(span.now_ns() / 100_000_000);
            nap(span.from_ns);
        }
        progress.end();
    }
    let before = kv.statistics()?;
    let stretch = Stretch::begin();
    let total = plan.seconds.map_or(plan.total, |seconds| (seconds * 10.0).ceil() as u64);
    progress.begin(&plan.phase, total);
    let (mut told_ns, mut told) = (span.now_ns(), window.done());
    while span.now_ns() < span.to_ns && !over() {
        let (now_ns, done) = (span.now_ns(), window.done());
        progress.at(match plan.seconds {
            Some(_) => now_ns.saturating_sub(span.from_ns) / 100_000_000,
            None => done,
        });
        if now_ns - told_ns > 500_000_000 {
            let rate = (done - told) as f64 * 1e9 / (now_ns - told_ns) as f64;
            progress.note(&format!("{} {}/s", plan.phase, rounded(rate)));
            (told_ns, told) = (now_ns, done);
        }
        nap(span.to_ns);
    }
    let at_end = match plan.seconds {
        Some(_) => {
            let (wall, cpu) = stretch.end();
            Some((wall, cpu, kv.statistics()?))
        }
        // The last operations count too.
        None => None,
    };
    Ok(Watched { stretch, before, at_end })
}

fn finish<K: Kv>(
    kv: &K,
    clients: Clients<Option<Tally>>,
    outcome: KvResult<Watched>,
    plan: &Plan,
    progress: &dyn Progress,
) -> Result<Driven> {
    let tallies = clients.join().map_err(Error::from);
    progress.end();
    let tallies = tallies?;
    let Watched { stretch, before, at_end } = outcome.map_err(Error::from)?;
    if progress.stop() {
        return Err(interrupted());
    }
    let (wall, cpu, after) = match at_end {
        Some(end) => end,
        None => {
            let (wall, cpu) = stretch.end();
            (wall, cpu, kv.statistics().map_err(Error::from)?)
        }
    };
    let mut total = Tally::new(plan.kinds)?;
    for tally in tallies.into_iter().flatten() {
        total.add(&tally)?;
    }
    Ok(Driven {
        wall_s: wall.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
        kinds: total.kinds,
        by_second: total.by_second,
        store: since(&before, &after),
    })
}

fn since(before: &KvStatistics, after: &KvStatistics) -> KvStatistics {
    let less =
        |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before.unwrap_or(0)));
    KvStatistics {
        device_reads: less(after.device_reads, before.device_reads),
        device_writes: less(after.device_writes, before.device_writes),
        device_bytes: less(after.device_bytes, before.device_bytes),
        device_reads_timed: after
            .device_reads_timed
            .zip(before.device_reads_timed)
            .map(|(after, before)| (after.0 - before.0, after.1 - before.1)),
        log_flushes: less(after.log_flushes, before.log_flushes),
        log_commits: less(after.log_commits, before.log_commits),
        log_bytes: less(after.log_bytes, before.log_bytes),
        store_bytes: after.store_bytes,
        cycles: after.cycles.since(&before.cycles),
    }
}

fn rounded(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.1} K", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// Runs one client. The last client of a thread returns the thread's tally.
async fn run_client<C: Operate>(
    mut client: C,
    number: usize,
    kinds: usize,
    window: Arc<Window>,
) -> KvResult<Option<Tally>> {
    let _running = Running(window.clone());
    let live = &window.live[number % LIVE_LINES].0;
    let tally = tally::of_this_thread(kinds)?;
    let span = &window.span;
    let mut began_ns = span.now_ns();
    while span.begin(&mut began_ns).await {
        let done = match client.operate().await {
            Ok(Some(done)) => done,
            Ok(None) => break,
            Err(error) => {
                span.stop.store(true, Ordering::Relaxed);
                return Err(error);
            }
        };
        let ended_ns = span.now_ns();
        if span.measures(ended_ns) {
            tally.borrow_mut().count(&done, ended_ns - began_ns, ended_ns - span.from_ns);
        }
        live.fetch_add(u64::from(done.weight), Ordering::Relaxed);
        if span.is_over(ended_ns) {
            break;
        }
        began_ns = ended_ns;
    }
    drop(client);
    Ok(tally::taken_by_the_last(tally))
}

/// Returns an error if a plan has no clients or no time.
pub(crate) fn check_plan(clients: usize, seconds: f64) -> Result<()> {
    if clients == 0 || seconds <= 0.0 {
        return Err(Error::new(
            ErrorKind::Invalid,
            "a run needs at least one client, and more than 0 seconds",
        ));
    }
    Ok(())
}
