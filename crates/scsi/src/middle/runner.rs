//! Runs one command at a time and waits for it, for the control plane.

use std::sync::Arc;
use std::time::Duration;

use qpair_block::{Arena, ArenaOptions, Buffer, Error, ErrorKind, IoError, Result, time};
use qpair_scsi_wire::{Command as ScsiCommand, Sense};

use super::queue::{Command, Done, Place, Queue, UnitState};
use crate::host::{Host, QueueOptions, Unit};
use crate::options::ScsiOptions;

/// The maximum number of bytes of an answer.
const ANSWER_BYTES: usize = 16 << 10;
/// The number of turns without sleep, after which the runner naps between turns.
const TURNS: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered {
    pub(crate) error: IoError,
    pub(crate) sense: Option<Sense>,
}

impl Unanswered {
    /// Converts to an error about `what`.
    pub(crate) fn about(&self, what: impl std::fmt::Display) -> Error {
        let context = match &self.sense {
            Some(sense) => format!("{what}: {sense}"),
            None => format!("{what}: {}", self.error),
        };
        Error::new(self.error.kind, context)
    }
}

pub(crate) struct Runner {
    queue: Queue,
    done: Vec<Done>,
}

impl Runner {
    pub(crate) fn open(
        host: &Arc<dyn Host>,
        unit: Unit,
        state: Arc<UnitState>,
        options: ScsiOptions,
    ) -> Result<Self> {
        let (arena, scratch) = scratch(host.info().shared_memory, ANSWER_BYTES)?;
        let queue =
            host.open_queue(unit, &QueueOptions { depth: 1, arenas: &[arena], sleeps: false })?;
        let queue = Queue::new(queue, 1, scratch, state, options, true);
        Ok(Self { queue, done: Vec::new() })
    }

    /// Runs a command that answers with at most `len` bytes.
    pub(crate) fn ask(
        &mut self,
        command: ScsiCommand,
        len: usize,
    ) -> std::result::Result<Vec<u8>, Unanswered> {
        let len = len.min(ANSWER_BYTES);
        let done = self.run(command, false, len)?;
        let len = done.short.map_or(len, |moved| (moved as usize).min(len));
        Ok(self.queue.scratch().as_slice()[..len].to_vec())
    }

    /// Runs a command that sends these bytes.
    pub(crate) fn tell(
        &mut self,
        command: ScsiCommand,
        bytes: &[u8],
    ) -> std::result::Result<(), Unanswered> {
        self.queue.scratch().copy_from(0, bytes);
        self.run(command, true, bytes.len()).map(drop)
    }

    fn run(
        &mut self,
        command: ScsiCommand,
        is_out: bool,
        len: usize,
    ) -> std::result::Result<Done, Unanswered> {
        let place = if len == 0 { Place::None } else { Place::Scratch };
        let command = Command { cdb: command.encode(), is_out, place, offset: 0, len: len as u32 };
        let failed = |error| Unanswered { error, sense: None };
        let tag = self.queue.begin(None).map_err(|_| failed(IoError::IO))?;
        self.queue.send(tag, command);
        let mut turns = 0u32;
        while self.done.is_empty() {
            self.queue.turn(&mut self.done);
            turns += 1;
            if turns > TURNS {
                time::sleep(NAP);
                self.queue.tend(&mut self.done);
            }
        }
        self.queue.end(tag);
        let done = self.done.pop().ok_or(failed(IoError::IO))?;
        done.result.map_err(|error| Unanswered { error, sense: done.sense })?;
        Ok(done)
    }
}

/// Makes a block of memory for a queue, in an arena of its own.
pub(crate) fn scratch(shared: bool, len: usize) -> Result<(Arc<Arena>, Buffer)> {
    let options = ArenaOptions { shared, ..ArenaOptions::ordinary_pages() };
    let context = || format!("allocating {len} bytes of memory for a SCSI queue");
    let arena = Arena::new(len.next_power_of_two().max(4096), 1, options)
        .map_err(|cause| Error::os(cause, context()))?;
    let buffer = arena.lease().ok_or_else(|| Error::new(ErrorKind::Limit, context()))?;
    Ok((arena, buffer))
}
