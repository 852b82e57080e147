//! Finds the targets: asks unit 0 of each possible target, many at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{Arena, ArenaOptions, Error, ErrorKind, Result};
use qpair_pci::Phase;
use qpair_scsi::host::{Data, HostQueue, Outcome, QueueOptions, Report};
use qpair_scsi_wire::Command;

use crate::host::Inner;
use crate::queue::ScsiQueue;
use crate::transport::gone;

/// The number of targets that are asked at a time.
const DEPTH: u32 = 32;
/// The bytes of an answer to INQUIRY. A unit answers it in any state, and keeps its unit
/// attentions.
const ANSWER_BYTES: u16 = 36;
const STRIDE: usize = 128;
/// The number of turns without sleep, after which the scan naps between turns.
const TURNS: u32 = 1000;
const NAP: Duration = Duration::from_micros(50);

pub(crate) fn targets(inner: &Arc<Inner>) -> Result<BTreeSet<u32>> {
    let depth = DEPTH.min(inner.facts.depth_max().into());
    let shared = inner.maps.needs_shared_memory();
    let options = ArenaOptions { shared, ..ArenaOptions::ordinary_pages() };
    let context = || format!("{}: allocating memory for a scan", inner.name());
    let arena = Arena::new(DEPTH as usize * STRIDE, 1, options)
        .map_err(|cause| Error::os(cause, context()))?;
    let mut buffer = arena.lease().ok_or_else(|| Error::new(ErrorKind::Limit, context()))?;
    let mut queue =
        ScsiQueue::open(inner, 0, 0, &QueueOptions { depth, arenas: &[arena], sleeps: false })?;
    let cdb = Command::Inquiry { page: None, allocation: ANSWER_BYTES }.encode();

    let mut to_ask: Vec<u8> = (0..inner.facts.targets).rev().map(|target| target as u8).collect();
    let mut asked: Vec<Option<u8>> = vec![None; depth as usize];
    let mut found = BTreeSet::new();
    let mut reports = Vec::new();
    let (start, timeout) = (Instant::now(), inner.options.scan_timeout());
    let mut turns = 0u32;
    while !to_ask.is_empty() || asked.iter().any(Option::is_some) {
        for (tag, place) in (0u16..).zip(&mut asked) {
            let (None, Some(target)) = (*place, to_ask.last()) else { continue };
            queue.aim(*target, 0);
            let offset = usize::from(tag) * STRIDE;
            let data =
                Data { is_out: false, buffer: &mut buffer, offset, len: ANSWER_BYTES.into() };
            if queue.queue(tag, &cdb, Some(data)).is_err() {
                break;
            }
            *place = to_ask.pop();
        }
        queue.kick();
        queue.poll(&mut reports);
        for report in reports.drain(..) {
            let Report::Ended(tag, outcome) = report else { continue };
            let Some(target) = asked.get_mut(usize::from(tag)).and_then(Option::take) else {
                continue;
            };
            match outcome {
                Outcome::Gone => {}
                Outcome::Busy | Outcome::Terminated | Outcome::Reset => to_ask.push(target),
                _ => {
                    found.insert(u32::from(target));
                }
            }
        }
        if inner.state().phase() == Phase::Gone {
            return Err(gone(inner.name()));
        }
        turns += 1;
        if turns > TURNS {
            std::thread::sleep(NAP);
        }
        if start.elapsed() >= timeout {
            let ms = timeout.as_millis();
            let context = format!("{}: a scan got no answer within {ms} ms", inner.name());
            return Err(Error::new(ErrorKind::Io, context));
        }
    }
    Ok(found)
}
