//! Checks sleeping and wake-ups. No check asserts how long a sleep took, only that it ended for the
//! right reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use qpair_block::{Request, WaitOptions, WakeEvent};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::rig::{Line, Rig, check_timeout, ensure};
use crate::{CheckResult, Pass};

/// Waits for one completion, and does not linger.
const ONE: WaitOptions = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };

fn submit_reads(rig: &mut Rig, line: &mut Line, count: u32) -> Result<(), String> {
    for tag in 0..u64::from(count) {
        let (offset, len) = rig.range();
        let buffer = line.lease()?;
        line.submit(Request::read(offset, len, buffer, tag))?;
    }
    Ok(())
}

pub(crate) fn wait_times_out_idle(rig: &mut Rig) -> CheckResult {
    for wake in [None, Some(Arc::new(WakeEvent::new().map_err(|e| e.to_string())?))] {
        let mut line = rig.open(1, wake)?;
        for timeout in [Duration::ZERO, Duration::from_micros(50), Duration::from_millis(2)] {
            let options = WaitOptions { timeout: Some(timeout), ..ONE };
            let count = line.channel.wait(&mut line.completions, options);
            ensure(count == 0 && line.completions.is_empty(), || {
                format!("{count} completions of nothing")
            })?;
        }
    }
    Ok(Pass::Passed)
}

/// Checks that a wait without time-out returns when there are completions, and that it rings the
/// doorbell itself.
pub(crate) fn wait_returns_completions(rig: &mut Rig) -> CheckResult {
    let depth = rig.depth();
    let mut line = rig.open(depth, None)?;
    for _ in 0..rig.options.rounds / 8 {
        let count = rig.rng.u32(1..=depth);
        submit_reads(rig, &mut line, count)?;
        while line.channel.in_flight() > 0 {
            let before = line.channel.in_flight();
            let taken = line.channel.wait(&mut line.completions, ONE) as u32;
            ensure(taken >= 1, || format!("a wait for one of {before} ended with none"))?;
            let after = line.channel.in_flight();
            ensure(after == before - taken, || format!("{before} - {taken} = {after} in flight"))?;
        }
        let found = line.completions.len() as u32;
        ensure(found == count, || format!("{found} completions of {count}"))?;
        line.completions.clear();
    }
    Ok(Pass::Passed)
}

pub(crate) fn wait_wants_and_lingers(rig: &mut Rig) -> CheckResult {
    let depth = rig.depth();
    let mut line = rig.open(depth, None)?;
    let lingers = [Duration::ZERO, Duration::from_micros(20), Duration::from_secs(3600)];
    for round in 0..rig.options.rounds as usize / 8 {
        submit_reads(rig, &mut line, depth)?;
        let linger = lingers[round % lingers.len()];
        // A number above that of the requests in flight is capped.
        let want = rig.rng.u32(1..=2 * depth);
        let taken =
            line.channel.wait(&mut line.completions, WaitOptions { want, linger, timeout: None });
        // Without a time-out and with the long linger, only enough completions end the wait.
        let least = if linger == lingers[2] { want.min(depth) as usize } else { 1 };
        ensure(taken >= least, || format!("wanted {least}, got {taken}"))?;
        line.drain()?;
        let found = line.completions.len();
        ensure(found == depth as usize, || format!("{found} completions of {depth}"))?;
        line.completions.clear();
    }
    Ok(Pass::Passed)
}

pub(crate) fn wait_ends_on_wake(rig: &mut Rig) -> CheckResult {
    let wake = Arc::new(WakeEvent::new().map_err(|e| e.to_string())?);
    let mut line = rig.open(1, Some(wake.clone()))?;
    let timeout = Some(Duration::from_secs(10));
    for pause in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(3)] {
        let work = AtomicBool::new(false);
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(pause);
                work.store(true, Ordering::SeqCst);
                wake.wake();
            });
            while !work.load(Ordering::SeqCst) {
                wake.prepare();
                if !work.load(Ordering::SeqCst) {
                    line.channel.wait(&mut line.completions, WaitOptions { timeout, ..ONE });
                }
                wake.awake();
                check_timeout(start, "the wake")?;
            }
            Ok::<_, String>(())
        })?;
        ensure(start.elapsed() < Duration::from_secs(9), || "only the time-out ended it".into())?;
    }
    // A signal that was set before ends the wait as well.
    wake.signal();
    line.channel.wait(&mut line.completions, ONE);
    Ok(Pass::Passed)
}

/// Checks that a wake-up during I/O ends the wait early and has no other effect.
pub(crate) fn wake_loses_no_completion(rig: &mut Rig) -> CheckResult {
    let depth = rig.depth();
    let wake = Arc::new(WakeEvent::new().map_err(|e| e.to_string())?);
    let mut line = rig.open(depth, Some(wake.clone()))?;
    for _ in 0..rig.options.rounds / 8 {
        submit_reads(rig, &mut line, depth)?;
        wake.signal();
        let start = Instant::now();
        while line.channel.in_flight() > 0 {
            let options = WaitOptions { want: depth, linger: Duration::from_secs(1), ..ONE };
            line.channel.wait(&mut line.completions, options);
            wake.clear();
            check_timeout(start, "completions after a wake")?;
        }
        let found = line.completions.len();
        ensure(found == depth as usize, || format!("{found} completions of {depth}"))?;
        line.completions.clear();
    }
    Ok(Pass::Passed)
}

/// Checks that the descriptor is readable whenever completions can be polled, many times in a row.
pub(crate) fn completion_fd(rig: &mut Rig) -> CheckResult {
    let depth = rig.depth();
    let mut line = rig.open(depth, None)?;
    let fd = line.channel.completion_fd().map_err(|e| format!("completion_fd: {e}"))?;
    // Duplicate the descriptor, because a borrow would block the use of the channel. The duplicate
    // refers to the same open file.
    let fd = match fd.map(|fd| fd.try_clone_to_owned()) {
        Some(fd) => Some(fd.map_err(|e| e.to_string())?),
        None => None,
    };
    // Also poll the descriptor as a member of an epoll set: some descriptors wake a thread that
    // polls them, but not a set that contains them.
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| e.to_string())?;
    if let Some(fd) = &fd {
        epoll::add(&set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .map_err(|e| e.to_string())?;
    }
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    for _ in 0..rig.options.rounds / 8 {
        // Use a single request as well as many: among many, one request that wakes the thread hides
        // others that do not.
        let count = if rig.rng.bool() { 1 } else { depth };
        submit_reads(rig, &mut line, count)?;
        line.channel.kick();
        let start = Instant::now();
        let by_set = rig.rng.bool();
        while line.channel.in_flight() > 0 {
            if let Some(fd) = &fd {
                let polled = if by_set { &set } else { fd };
                let mut fds = [PollFd::new(polled, PollFlags::IN)];
                let ready = poll(&mut fds, Some(&second)).map_err(|e| e.to_string())?;
                ensure(ready == 1, || {
                    format!("not readable with {} in flight", line.channel.in_flight())
                })?;
            }
            line.channel.poll(&mut line.completions);
            check_timeout(start, "completions by descriptor")?;
        }
        let found = line.completions.len();
        ensure(found == count as usize, || format!("{found} completions of {count}"))?;
        line.completions.clear();
        // A caller that has taken all completions and polls once more can sleep.
        let start = Instant::now();
        while let Some(fd) = &fd {
            line.channel.poll(&mut line.completions);
            let mut fds = [PollFd::new(fd, PollFlags::IN)];
            if poll(&mut fds, Some(&Timespec::default())).map_err(|e| e.to_string())? == 0 {
                break;
            }
            check_timeout(start, "a descriptor that is readable with nothing in flight")?;
        }
    }
    match fd {
        Some(_) => Ok(Pass::Passed),
        None => Ok(Pass::Skipped("completions never need waiting for; polling found them".into())),
    }
}
