//! Runs many seeds, several at a time. Each runs on a thread of its own, and shares no state with
//! the others.

use qpair_block::locks::Mutex;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, mpsc};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::lives::Run;
use super::plan::Plan;
use super::summary::Counts;

pub(crate) struct Report {
    pub(crate) seed: u64,
    /// A hash of all that happened, or a description of the fault.
    pub(crate) outcome: Result<u64, String>,
    pub(crate) counts: Counts,
    pub(crate) log: Vec<String>,
}

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The panics on this thread since they were last taken, caught by a worker or not.
pub(crate) fn take_panics() -> Vec<String> {
    PANICS.with(RefCell::take)
}

/// Installs a panic hook that stores the messages of simulated threads instead of printing them.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let simulated = std::thread::current().name() == Some(THREAD);
            let kept = simulated
                && PANICS.try_with(|panics| panics.borrow_mut().push(info.to_string())).is_ok();
            if !kept {
                before(info);
            }
        }));
    });
}

const THREAD: &str = "simulation";

/// The maximum processor time of the program while a seed runs. Most seeds take some hundredths of
/// a second.
const LONGEST: Duration = Duration::from_secs(240);
/// The maximum real time of a seed, which may wait long for the processor on a busy machine.
const LONGEST_WAIT: Duration = Duration::from_secs(1200);

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Receives a thread's result, unless the thread exceeds its time.
fn receive<T>(receiver: &mpsc::Receiver<T>) -> Result<T, mpsc::RecvTimeoutError> {
    let (begun, cpu_begun) = (Instant::now(), cpu_time());
    loop {
        match receiver.recv_timeout(Duration::from_secs(1)) {
            Err(mpsc::RecvTimeoutError::Timeout)
                if begun.elapsed() < LONGEST_WAIT
                    && cpu_time().saturating_sub(cpu_begun) < LONGEST => {}
            received => return received,
        }
    }
}

pub(crate) fn run_seed(seed: u64, plan: Plan) -> Report {
    keep_panics();
    let work = move || {
        let mut counts = Counts { runs: 1, ..Counts::default() };
        let (mut log, mut outcome) = (Vec::new(), Err("it never began".to_owned()));
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let mut run = match Run::new(seed, plan) {
                Ok(run) => run,
                Err(error) => {
                    outcome = Err(error);
                    return;
                }
            };
            let result = catch_unwind(AssertUnwindSafe(|| run.run()));
            if result.is_err() {
                // Abandon the workers while their devices still have a clock.
                qpair_engine::abandon_stepped();
            }
            outcome = result.unwrap_or_else(|_| Err("a panic".to_owned()));
            counts += run.counts;
            log = std::mem::take(&mut run.log);
        }));
        qpair_engine::abandon_stepped();
        if let Some(panic) = take_panics().first() {
            outcome = Err(format!("a panic: {panic}"));
        } else if ran.is_err() {
            outcome = Err("a panic".to_owned());
        }
        Report { seed, outcome, counts, log }
    };
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
        // The receiver is gone if it took too long.
        let _ = sender.send(work());
    });
    let outcome = match thread.map(|_| receive(&receiver)) {
        Ok(Ok(report)) => return report,
        Ok(Err(mpsc::RecvTimeoutError::Timeout)) => {
            // The thread continues until the program ends.
            let seconds = LONGEST.as_secs();
            format!("no end after {seconds} s of processor time: it goes round for ever, or waits")
        }
        Ok(Err(mpsc::RecvTimeoutError::Disconnected)) => "its thread panicked".to_owned(),
        Err(error) => format!("starting a thread: {error}"),
    };
    Report { seed, outcome: Err(outcome), counts: Counts::default(), log: Vec::new() }
}

/// Runs one seed with a planted bug. The bug counts as caught only if the seed succeeds without it.
fn run_planted(seed: u64, plan: Plan) -> Report {
    let report = run_seed(seed, plan);
    if plan.planted.is_none() || report.outcome.is_ok() {
        return report;
    }
    match run_seed(seed, Plan { planted: None, ..plan }) {
        without if without.outcome.is_err() => Report { outcome: Ok(0), ..report },
        _ => report,
    }
}

/// Runs `runs` seeds from `first` on, and calls `done` with each report.
pub(crate) fn run_seeds(
    first: u64,
    runs: u64,
    threads: usize,
    plan: Plan,
    done: impl FnMut(Report) -> bool + Send,
) {
    let next = AtomicU64::new(0);
    let done = Mutex::new(done);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        break;
                    }
                    let report = run_planted(first.wrapping_add(number), plan);
                    if !done.lock()(report) {
                        next.store(runs, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}
