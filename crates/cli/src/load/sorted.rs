//! Records in key order into an empty table: the store builds full pages, and writes each once.

use qpair_block::locks::Mutex;
use std::sync::Arc;

use qpair::Table;

use super::gather::Gather;
use super::progress::Progress;
use super::puts::Loaded;
use super::round::Round;

/// Loads all records. The table must be empty, and the records sorted.
pub(crate) fn load_sorted(table: &Table, gather: Gather, progress: &Progress) -> Loaded {
    let shared = Arc::new(Mutex::new(Loaded::default()));
    let records = Records {
        gather,
        round: Round::new(1),
        next: 0,
        loaded: shared.clone(),
        progress: progress.clone(),
    };
    let outcome = table.bulk_load(records);
    let mut loaded = std::mem::take(&mut *shared.lock());
    match outcome {
        Ok(records) => loaded.records = records,
        // A failed load leaves the table empty.
        Err(error) => {
            (loaded.records, loaded.bytes) = (0, 0);
            loaded.failure = loaded.failure.or(Some(error.into()));
        }
    }
    loaded
}

/// The records of all rounds, as an iterator for the table. An error in the input ends it; the
/// records before it are loaded.
struct Records {
    gather: Gather,
    round: Round,
    next: usize,
    loaded: Arc<Mutex<Loaded>>,
    progress: Progress,
}

impl Records {
    /// Moves to the next round. Returns `false` at the end.
    fn advance(&mut self) -> bool {
        let mut loaded = self.loaded.lock();
        loaded.records += self.round.records;
        loaded.bytes += self.round.bytes;
        self.progress.update(loaded.records, loaded.bytes, self.round.input_bytes);
        self.next = 0;
        match self.gather.next() {
            Some(Ok(round)) => {
                self.round = round;
                return true;
            }
            Some(Err(failure)) => loaded.failure = Some(failure),
            None => {}
        }
        self.round = Round::new(1);
        false
    }
}

impl Iterator for Records {
    type Item = qpair::Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.next >= self.round.lanes[0].len() {
            if !self.advance() {
                return None;
            }
        }
        let (key, value) = self.round.lanes[0].record(self.next);
        self.next += 1;
        Some(Ok((key.to_vec(), value.to_vec())))
    }
}
