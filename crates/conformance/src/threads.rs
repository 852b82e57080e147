//! Checks channels of one device on several threads.

use std::sync::mpsc;
use std::thread;

use crate::rig::{Rig, ensure, open};
use crate::{CheckResult, Pass};

/// Checks that each of two channels reads the data that the other has written.
pub(crate) fn two_threads(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let rounds = rig.options.rounds / 8;
    let block = rig.block();
    let blocks = rig.region() / u64::from(block);
    let (device, depth) = (rig.device.clone(), rig.depth());
    // The writer sends the offset and the data; the reader answers when it has read them.
    let player = |give: mpsc::Sender<(u64, Vec<u8>)>,
                  take: mpsc::Receiver<(u64, Vec<u8>)>,
                  mut rng: fastrand::Rng| {
        let mut line = open(&device, depth, 1, None)?;
        for _ in 0..rounds {
            let offset = rng.u64(0..blocks) * u64::from(block);
            let mut bytes = vec![0; block as usize];
            rng.fill(&mut bytes);
            if let Ok((offset, bytes)) = take.recv() {
                line.expect(offset, &bytes)?;
            }
            line.write(offset, &bytes)?;
            if give.send((offset, bytes)).is_err() {
                break;
            }
        }
        Ok::<_, String>(())
    };
    let (to_a, for_a) = mpsc::channel();
    let (to_b, for_b) = mpsc::channel();
    let mut line = rig.open(1, None)?;
    let first = rig.bytes(block);
    line.write(0, &first)?;
    to_a.send((0, first)).map_err(|e| e.to_string())?;
    let (rng_a, rng_b) = (rig.rng.fork(), rig.rng.fork());
    thread::scope(|scope| {
        let a = scope.spawn(|| player(to_b, for_a, rng_a));
        let b = scope.spawn(|| player(to_a, for_b, rng_b));
        let panicked = |_| Err("a thread panicked".to_owned());
        a.join().unwrap_or_else(panicked)?;
        b.join().unwrap_or_else(panicked)
    })?;
    Ok(Pass::Passed)
}

/// Checks threads that write and read their own parts at the same time.
pub(crate) fn busy_threads(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    const THREADS: u64 = 3;
    let block = rig.block();
    let share = rig.region() / THREADS / u64::from(block) * u64::from(block);
    if share == 0 {
        return Ok(Pass::Skipped("the region is too small to share".into()));
    }
    let len = (u64::from(rig.len_max()).min(share)) as u32;
    let (rounds, depth) = (rig.options.rounds / 8, rig.depth());
    let device = rig.device.clone();
    let worker = |start: u64, mut rng: fastrand::Rng| {
        let mut line = open(&device, depth, 1, None)?;
        let mut bytes = vec![0; len as usize];
        let places = (share - u64::from(len)) / u64::from(block);
        for _ in 0..rounds {
            let offset = start + rng.u64(0..=places) * u64::from(block);
            rng.fill(&mut bytes);
            line.write(offset, &bytes)?;
            line.expect(offset, &bytes)?;
        }
        ensure(line.channel.in_flight() == 0, || "something is still in flight".into())
    };
    let rngs: Vec<_> = (0..THREADS).map(|_| rig.rng.fork()).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .zip(rngs)
            .map(|(number, rng)| {
                scope.spawn({
                    let worker = &worker;
                    move || worker(number * share, rng)
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))?;
        }
        Ok::<_, String>(())
    })?;
    Ok(Pass::Passed)
}
