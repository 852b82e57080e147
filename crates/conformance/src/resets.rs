//! Checks resets of the device while requests are in flight.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Request};

use crate::rig::{Line, Rig, check_timeout, ensure, open};
use crate::{CheckResult, Pass};

const RESETS: u32 = 4;

/// Checks that requests that are in flight when a reset begins have completed once when it ends,
/// and that acknowledged data is kept.
pub(crate) fn reset(rig: &mut Rig) -> CheckResult {
    match rig.device.reset() {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Ok(Pass::Skipped("the device cannot be reset".into()));
        }
        Err(error) => return Err(format!("reset of an idle device: {error}")),
    }
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let (device, depth, block) = (rig.device.clone(), rig.depth(), rig.block());
    let depth = depth.min((rig.region() / u64::from(block)) as u32);
    // The current round, and the round in which the last reset ended.
    let (begun, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    let is_over = AtomicBool::new(false);
    let rounds = || -> Result<(), String> {
        let mut line = open(&device, depth, depth, None)?;
        for round in 1..=RESETS {
            for tag in 0..u64::from(depth) {
                let mut buffer = line.lease()?;
                buffer.copy_from(0, &vec![round as u8; block as usize]);
                line.submit(Request::write(tag * u64::from(block), block, buffer, tag))?;
            }
            line.channel.kick();
            begun.store(round, Ordering::Release);
            // A reset that does not wait ends before this thread checks.
            thread::sleep(Duration::from_millis(2));
            await_reset(&mut line, depth, || ended.load(Ordering::Acquire) == round)?;
            for tag in 0..u64::from(depth) {
                line.expect(tag * u64::from(block), &vec![round as u8; block as usize])?;
            }
        }
        Ok(())
    };
    let resets = || -> Result<(), String> {
        for round in 1..=RESETS {
            while begun.load(Ordering::Acquire) < round {
                if is_over.load(Ordering::Acquire) {
                    return Ok(());
                }
                thread::yield_now();
            }
            device.reset().map_err(|error: Error| format!("reset {round}: {error}"))?;
            ended.store(round, Ordering::Release);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let resetting = scope.spawn(resets);
        let done = rounds();
        is_over.store(true, Ordering::Release);
        let reset = resetting.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()));
        reset.and(done)
    })?;
    Ok(Pass::Passed)
}

/// Polls until a reset is over, and checks that all requests have completed by then.
fn await_reset(line: &mut Line, depth: u32, is_over: impl Fn() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !is_over() {
        line.channel.poll(&mut line.completions);
        check_timeout(start, "a reset")?;
    }
    let in_flight = line.channel.in_flight();
    ensure(in_flight == 0, || format!("{in_flight} requests in flight after the reset"))?;
    let mut tags: Vec<u64> = line.completions.iter().map(|done| done.tag).collect();
    tags.sort_unstable();
    ensure(tags == (0..u64::from(depth)).collect::<Vec<_>>(), || format!("tags {tags:?}"))?;
    line.completions.drain(..).try_for_each(|done| {
        done.result.map_err(|error| format!("a write under way during a reset: {error}"))
    })
}
