//! A record: the actions of all devices during a load, and the marks of the load, in one order.

use std::collections::HashMap;
use std::ops::Range;

use super::format::{Change, Entry, parse};
use super::recorder::{Arrival, Mark, Recorder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) size_bytes: u64,
    /// The smallest unit of a request, in bytes. A write can be torn between two units.
    pub(super) block_bytes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A write of bytes, which are in the device's log, to a position of the device.
    Write {
        device: usize,
        at: u64,
        from: Range<usize>,
        forced: bool,
    },
    Discard {
        device: usize,
        at: u64,
        len: u64,
    },
    /// A flush: all earlier writes of the device survive a loss of power.
    Flush {
        device: usize,
    },
    Mark(Mark),
}

pub(super) struct Record {
    logs: Vec<Vec<u8>>,
    pub(super) steps: Vec<Step>,
}

impl Record {
    /// Parses the logs that arrived. Each entry is ordered by its arrival among the entries of all
    /// devices.
    pub(super) fn new(recorder: &Recorder, shapes: &[Shape]) -> Result<Self, String> {
        let (logs, arrivals) = recorder.take();
        let mut entries: Vec<HashMap<u64, Entry>> = Vec::new();
        for (device, (log, shape)) in logs.iter().zip(shapes).enumerate() {
            let parsed = parse(log, shape.block_bytes, shape.size_bytes)
                .map_err(|wrong| format!("the record of device {device}: {wrong}"))?;
            entries.push(parsed.into_iter().map(|entry| (entry.header_at, entry)).collect());
        }
        let mut steps = Vec::with_capacity(arrivals.len());
        for arrival in arrivals {
            match arrival {
                Arrival::Mark(mark) => steps.push(Step::Mark(mark)),
                Arrival::Log { device, at } => {
                    if let Some(entry) = entries.get_mut(device).and_then(|all| all.remove(&at)) {
                        push(&mut steps, device, entry);
                    }
                }
            }
        }
        match entries.iter().position(|left| !left.is_empty()) {
            Some(device) => Err(format!("an entry of device {device} never arrived")),
            None => Ok(Self { logs, steps }),
        }
    }

    #[cfg(test)]
    pub(super) fn of(logs: Vec<Vec<u8>>, steps: Vec<Step>) -> Self {
        Self { logs, steps }
    }

    pub(super) fn logs(&self) -> &[Vec<u8>] {
        &self.logs
    }

    /// Returns the bytes that a write of a device wrote.
    pub(super) fn bytes(&self, device: usize, from: &Range<usize>) -> &[u8] {
        self.logs.get(device).and_then(|log| log.get(from.clone())).unwrap_or_default()
    }

    /// Returns the marks among the first `steps` steps.
    pub(super) fn marks(&self, steps: usize) -> impl Iterator<Item = Mark> {
        let before = &self.steps[..steps.min(self.steps.len())];
        before.iter().filter_map(|step| match step {
            Step::Mark(mark) => Some(*mark),
            _ => None,
        })
    }
}

fn push(steps: &mut Vec<Step>, device: usize, entry: Entry) {
    if entry.flushes {
        steps.push(Step::Flush { device });
    }
    match entry.change {
        Change::Nothing => {}
        Change::Write { at, from } => {
            steps.push(Step::Write { device, at, from, forced: entry.forced });
        }
        Change::Discard { at, len } => steps.push(Step::Discard { device, at, len }),
    }
}
