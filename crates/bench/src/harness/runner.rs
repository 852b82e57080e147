//! Runs clients for a given time, and collects their counts.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use qpair::Result;
use rustix::time::{ClockId, clock_gettime};

use super::choice::{best, levels};
use super::client::{Client, complete};
use super::measured::Measured;
use super::plan::Plan;
use super::tally::{self, Tally};
use super::window::Window;
use crate::kv::System;
use crate::progress::Progress;

/// The length of a tick of the progress of a run with a time limit, in nanoseconds.
const TICK_NS: u64 = 100_000_000;

/// Runs clients over a system; `make` makes the client with a given number.
pub(crate) fn measure<S, C, M>(
    system: &S,
    plan: &Plan,
    make: M,
    progress: &dyn Progress,
) -> Result<Measured>
where
    S: System,
    C: Client + 'static,
    M: Fn(usize, S::Session) -> C + Send + Sync + 'static,
{
    plan.check()?;
    let window = Arc::new(Window::begin_now(plan)?);
    let clients = {
        let window = window.clone();
        system.start(plan.clients, move |number, session| {
            let (client, window) = (make(number, session), window.clone());
            async move { window.control.run(run_client(number, client, &window)).await }
        })?
    };
    let watched = watch(system, plan, &window, progress);
    let tallies = window.control.finish(clients, progress)?;
    let mut total = Tally::new(&window)?;
    for tally in tallies.into_iter().flatten() {
        total.add(&tally)?;
    }
    Ok(Measured { kinds: total.kinds, by_second: total.by_second, ..watched? })
}

/// Runs one client. The last client of a thread returns the thread's tally.
async fn run_client<C: Client>(
    number: usize,
    mut client: C,
    window: &Window,
) -> Result<Option<Tally>> {
    let tally = tally::of_this_thread(window)?;
    let mut began_ns = window.now_ns();
    while window.begin(number, &mut began_ns).await {
        let Some(request) = client.draw() else { break };
        let (done, conflicts) = complete(&mut client, &request).await?;
        let ended_ns = window.now_ns();
        tally.borrow_mut().count(window, done, conflicts, began_ns, ended_ns);
        if window.is_over(ended_ns) {
            break;
        }
        began_ns = ended_ns;
    }
    Ok(tally::taken_by_the_last(tally))
}

/// Returns the processor time of all threads of the process, user and system.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Returns the processor time of all threads of the process in the kernel, in seconds.
fn kernel_s() -> f64 {
    // This fails only for an unknown `who`.
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| {
        let time = usage.system_time();
        time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
    })
}

/// Waits until the run is over, and returns its times and the counts of the system. A run without a
/// time limit is over when its last client has ended.
fn watch<S: System>(
    system: &S,
    plan: &Plan,
    window: &Window,
    progress: &dyn Progress,
) -> Result<Measured> {
    let goes_on_until = |ns: u64| window.now_ns() < ns && !window.control.is_over(progress);
    let nap = |until_ns: u64| {
        let left = until_ns.saturating_sub(window.now_ns());
        std::thread::sleep(Duration::from_nanos(left.min(20_000_000)));
    };
    if window.from_ns > 0 {
        let levels = match plan.choose_for {
            Some(threads) if plan.rate_per_s.is_none() => levels(plan.clients, threads),
            _ => vec![plan.clients],
        };
        let slices = 2 * levels.len();
        let mut done = vec![0; levels.len()];
        progress.begin("warming up", window.from_ns / TICK_NS);
        for slice in 0..slices {
            let level = slice.min(slices - 1 - slice);
            if levels.len() > 1 {
                window.choice.admit(levels[level]);
            }
            let (before, until_ns) =
                (window.done(), window.from_ns * (slice as u64 + 1) / slices as u64);
            while goes_on_until(until_ns) {
                progress.at(window.now_ns() / TICK_NS);
                nap(until_ns);
            }
            done[level] += window.done() - before;
        }
        window.choice.make(best(&levels, &done).unwrap_or(plan.clients));
        progress.end();
    }
    let before = system.statistics()?;
    let (cpu_before, kernel_before_s) = (cpu_time(), kernel_s());
    let total = plan.seconds.map_or(plan.total, |seconds| (seconds * 10.0).ceil() as u64);
    progress.begin(&plan.phase, total);
    let (mut told_ns, mut told) = (window.now_ns(), window.done());
    while goes_on_until(window.to_ns) {
        let (now_ns, done) = (window.now_ns(), window.done());
        progress.at(match plan.seconds {
            Some(_) => now_ns.saturating_sub(window.from_ns) / TICK_NS,
            None => done,
        });
        if now_ns - told_ns > 500_000_000 {
            let rate = (done - told) as f64 * 1e9 / (now_ns - told_ns) as f64;
            progress.note(&format!("{} {}/s", plan.phase, rounded(rate)));
            (told_ns, told) = (now_ns, done);
        }
        nap(window.to_ns);
    }
    let cpu = cpu_time().saturating_sub(cpu_before);
    let kernel_s = kernel_s() - kernel_before_s;
    // The time in which requests count, whenever this thread woke up.
    let wall_ns = window.now_ns().min(window.to_ns).saturating_sub(window.from_ns);
    Ok(Measured {
        wall_s: Duration::from_nanos(wall_ns).as_secs_f64(),
        clients: window.choice.admitted(),
        cpu_s: cpu.as_secs_f64(),
        kernel_s,
        system: system.statistics()?.since(&before),
        ..Measured::default()
    })
}

fn rounded(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.1} K", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}
