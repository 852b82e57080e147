//! The thread that reads, checks and gathers records into rounds, ahead of the store.

use qpair_block::locks::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use qpair::VALUE_LEN_MAX;

use super::record::{ReadError, ReadRecord, Record};
use super::round::Round;
use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::parse::key::EMPTY_KEY;
use crate::show::text::escape;

/// The number of records, and of bytes, at which a round is sent.
const ROUND_RECORDS: u64 = 16 << 10;
const ROUND_BYTES: u64 = 8 << 20;
/// The interval at which an idle wait checks for an interrupt.
const TICK: Duration = Duration::from_millis(50);

pub(crate) fn begin(reader: &mut dyn ReadRecord, input_name: &str) -> Result<()> {
    reader.begin().map_err(|error| failure(error, input_name))
}

pub(crate) fn failure(error: ReadError, input_name: &str) -> Failure {
    match error {
        ReadError::Bad { lines: Range { start: line, .. }, why }
        | ReadError::Lost { line, why } => {
            Failure::new(Exit::Failed, format!("{input_name} line {line}: {why}"))
        }
        ReadError::Layout { why, hint } => {
            Failure::usage(format!("{input_name}: {why}")).hint(hint)
        }
        ReadError::Damaged(why) => Failure::new(Exit::Failed, format!("{input_name}: {why}")),
        ReadError::Io(error) => Failure::io(&error, format!("reading {input_name}")),
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) key_len_max: usize,
    /// Whether the empty key is accepted.
    pub(crate) empty_key: bool,
    pub(crate) skip_bad: bool,
    /// Whether keys must ascend. Of equal keys the last one counts.
    pub(crate) sorted: bool,
    pub(crate) lanes: usize,
    /// The way out where a record is malformed, and where keys are not in order.
    pub(crate) hints: Hints,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hints {
    pub(crate) malformed: &'static str,
    pub(crate) unsorted: &'static str,
}

#[derive(Debug, Default)]
pub(crate) struct Skipped {
    pub(crate) lines: u64,
    pub(crate) first: Option<String>,
}

pub(crate) struct Gather {
    rounds: Receiver<Result<Round>>,
    skipped: Arc<Mutex<Skipped>>,
    interrupt: Interrupt,
}

impl Gather {
    pub(crate) fn start(
        reader: Box<dyn ReadRecord>,
        input_name: String,
        input_bytes: Arc<AtomicU64>,
        limits: Limits,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let (sender, rounds) = sync_channel(1);
        let skipped = Arc::new(Mutex::new(Skipped::default()));
        let lanes = limits.lanes;
        let gatherer = Gatherer {
            reader,
            input_name,
            input_bytes,
            limits,
            sender,
            round: Round::new(lanes),
            skipped: skipped.clone(),
        };
        std::thread::Builder::new()
            .name("load-reader".to_owned())
            .spawn(move || gatherer.run())
            .map_err(|error| Failure::io(&error, "starting a thread"))?;
        Ok(Self { rounds, skipped, interrupt })
    }

    /// Returns the next round. Returns `None` at the end of input, or on an interrupt, even if the
    /// input stalls.
    pub(crate) fn next(&mut self) -> Option<Result<Round>> {
        loop {
            if self.interrupt.is_requested() {
                return None;
            }
            match self.rounds.recv_timeout(TICK) {
                Ok(round) => return Some(round),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    pub(crate) fn skipped(&self) -> Arc<Mutex<Skipped>> {
        self.skipped.clone()
    }
}

struct Gatherer {
    reader: Box<dyn ReadRecord>,
    input_name: String,
    input_bytes: Arc<AtomicU64>,
    limits: Limits,
    sender: SyncSender<Result<Round>>,
    round: Round,
    skipped: Arc<Mutex<Skipped>>,
}

impl Gatherer {
    fn run(mut self) {
        let outcome = self.gather();
        // The records before an error are loaded. Sending fails only if the receiver is gone.
        let _ = self.send_round();
        if let Err(failure) = outcome {
            let _ = self.sender.send(Err(failure));
        }
    }

    fn gather(&mut self) -> Result<()> {
        let mut record = Record::default();
        loop {
            record.key.clear();
            record.value.clear();
            let lines = match self.reader.read(&mut record) {
                Ok(None) => return Ok(()),
                Ok(Some(lines)) => lines,
                Err(ReadError::Bad { lines, why }) => {
                    self.bad(&lines, &why)?;
                    continue;
                }
                Err(error) => return Err(failure(error, &self.input_name)),
            };
            if let Some(why) = self.fault(&record) {
                self.bad(&lines, &why)?;
                continue;
            }
            if self.limits.sorted {
                self.check_order(lines.start, &record)?;
            }
            // A full round is sent only once the next key is known: in sorted input, that key may
            // equal the last one.
            let full = self.round.records >= ROUND_RECORDS || self.round.bytes >= ROUND_BYTES;
            if full && !self.send_round() {
                return Ok(());
            }
            self.round.push(&record.key, &record.value);
        }
    }

    fn fault(&self, record: &Record) -> Option<String> {
        let (key, value) = (record.key.len(), record.value.len());
        if key == 0 && !self.limits.empty_key {
            Some(EMPTY_KEY.to_owned())
        } else if key > self.limits.key_len_max {
            Some(format!(
                "the key has {key} bytes, the store takes up to {}",
                self.limits.key_len_max
            ))
        } else if value > VALUE_LEN_MAX {
            Some(format!("the value has {value} bytes, values have up to {VALUE_LEN_MAX}"))
        } else {
            None
        }
    }

    fn bad(&self, lines: &Range<u64>, why: &str) -> Result<()> {
        let (input, unit) = (&self.input_name, self.reader.unit());
        let message = format!("{input} {unit} {}: {why}", lines.start);
        if !self.limits.skip_bad {
            return Err(Failure::new(Exit::Failed, message).hint(self.limits.hints.malformed));
        }
        let mut skipped = self.skipped.lock();
        skipped.lines += lines.end - lines.start;
        skipped.first.get_or_insert(message);
        Ok(())
    }

    /// Drops the previous record if this one has the same key, and refuses keys that are out of
    /// order. A round is sent only when the next record is there, so the previous record is always
    /// available.
    fn check_order(&mut self, line: u64, record: &Record) -> Result<()> {
        let Some(last) = self.round.last_key() else { return Ok(()) };
        match record.key.as_slice().cmp(last) {
            std::cmp::Ordering::Greater => {}
            std::cmp::Ordering::Equal => self.round.pop(),
            std::cmp::Ordering::Less => {
                let (key, last) = (escape(&record.key), escape(last));
                let message = format!(
                    "{} {} {line}: key {key} comes after {last}, which is not in order",
                    self.input_name,
                    self.reader.unit()
                );
                return Err(Failure::new(Exit::Failed, message).hint(self.limits.hints.unsorted));
            }
        }
        Ok(())
    }

    /// Sends the round. Returns `false` if the receiver is gone.
    fn send_round(&mut self) -> bool {
        if self.round.records == 0 {
            return true;
        }
        let mut round = std::mem::replace(&mut self.round, Round::new(self.limits.lanes));
        round.input_bytes = self.input_bytes.load(Ordering::Relaxed);
        self.sender.send(Ok(round)).is_ok()
    }
}
