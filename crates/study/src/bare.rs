//! Runs of single steps, without I/O: a system call, a search for completions, a switch between
//! threads.

use std::time::Instant;

use qpair_block::{ChannelOptions, DeviceSpec, Error, ErrorKind, Result};
use qpair_drivers::Drivers;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::lab::{Lab, SOFT_DRIVE};
use crate::measure::{Measure, digits};

/// Repeats a step for a time. `step` takes the step a hundred times, which hides the cost of
/// reading the clock.
fn repeat(round: u32, run_s: f64, mut step: impl FnMut()) -> Measure {
    let (clock, mut steps) = (Instant::now(), 0_u32);
    while clock.elapsed().as_secs_f64() < run_s {
        step();
        steps += 100;
    }
    Measure { round, ..of_steps(f64::from(steps), clock.elapsed().as_secs_f64()) }
}

/// Returns the results of a run that was busy with `steps` steps.
fn of_steps(steps: f64, seconds: f64) -> Measure {
    let each_us = digits(seconds * 1e6 / steps.max(1.0));
    Measure {
        seconds: digits(seconds),
        ios_per_s: digits(steps / seconds.max(1e-9)),
        p50_us: each_us,
        p99_us: each_us,
        cpu_us_per_io: each_us,
        ..Measure::default()
    }
}

/// Measures the cost of a system call that does nothing.
pub(crate) fn bare_call(round: u32, run_s: f64) -> Measure {
    let found = repeat(round, run_s, || {
        for _ in 0..100 {
            std::hint::black_box(rustix::process::getppid());
        }
    });
    Measure { system_calls_per_io: 1.0, ..found }
}

/// Measures the cost of looking for completions on a soft drive with no request in flight.
pub(crate) fn empty_poll(drivers: &Drivers, round: u32, run_s: f64) -> Result<Measure> {
    let spec = crate::lab::soft_drive(SOFT_DRIVE, 0);
    let Some(DeviceSpec::Driven { driver, name }) = spec else {
        return Err(Error::new(ErrorKind::Invalid, "the soft drive has no name"));
    };
    let device = drivers.open(driver, &name)?;
    let mut channel = device.open_channel(&ChannelOptions::default())?;
    let mut completions = Vec::new();
    Ok(repeat(round, run_s, || {
        for _ in 0..100 {
            std::hint::black_box(channel.poll(&mut completions));
        }
    }))
}

/// Measures the switch between two threads on one core: each wakes the other and sleeps.
pub(crate) fn thread_switch(lab: &Lab, round: u32, run_s: f64) -> Result<Measure> {
    let failed = |what: &str, cause: std::io::Error| Error::os(cause, what.to_owned());
    let cpu = lab.cpus.first().copied().unwrap_or_default();
    let confine = move || {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).map_err(std::io::Error::from)
    };
    let (to_other, from_one) = std::sync::mpsc::sync_channel::<bool>(0);
    let (to_one, from_other) = std::sync::mpsc::sync_channel::<()>(0);
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().spawn_scoped(scope, move || {
            confine()?;
            while from_one.recv() == Ok(true) && to_one.send(()).is_ok() {}
            Ok::<(), std::io::Error>(())
        });
        let other = other.map_err(|cause| Error::thread(cause, "switching threads"))?;
        let one = std::thread::Builder::new().spawn_scoped(scope, move || {
            confine()?;
            let (clock, mut switches) = (Instant::now(), 0_u32);
            while clock.elapsed().as_secs_f64() < run_s {
                if to_other.send(true).is_err() || from_other.recv().is_err() {
                    break;
                }
                switches += 2;
            }
            Ok::<(u32, f64), std::io::Error>((switches, clock.elapsed().as_secs_f64()))
        });
        let one = one.map_err(|cause| Error::thread(cause, "switching threads"))?;
        let ended = || Error::new(ErrorKind::Io, "a thread that switches has panicked");
        let found = one.join().map_err(|_| ended())?;
        let other = other.join().map_err(|_| ended())?;
        other.map_err(|cause| failed("confining a thread to one core", cause))?;
        let (switches, seconds) =
            found.map_err(|cause| failed("confining a thread to one core", cause))?;
        Ok(Measure { round, ..of_steps(f64::from(switches), seconds) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_costs_more_than_a_call_and_a_call_more_than_nothing() {
        let lab = Lab { cpus: crate::lab::cpus().unwrap(), ..crate::synthetic::lab(1, 1, &[]) };
        let call = bare_call(3, 0.02);
        let switch = thread_switch(&lab, 4, 0.02).unwrap();
        assert!(call.round == 3 && switch.round == 4);
        assert!(
            call.cpu_us_per_io > 0.0 && switch.cpu_us_per_io > call.cpu_us_per_io,
            "{switch:?}"
        );
        let poll = empty_poll(&Drivers::new(), 0, 0.02).unwrap();
        assert!(poll.cpu_us_per_io > 0.0 && poll.cpu_us_per_io < switch.cpu_us_per_io, "{poll:?}");
    }
}
