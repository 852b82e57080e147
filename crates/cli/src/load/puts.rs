//! Records in any order: many tasks put them at once, so that their page faults overlap.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair::task::JoinHandle;
use qpair::{Store, Table};

use super::gather::Gather;
use super::progress::Progress;
use super::round::{Lane, Round};
use crate::failure::Failure;
use crate::show::text::{count, counted, escape};

#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) records: u64,
    /// The number of these that replaced another record.
    pub(crate) replaced: u64,
    pub(crate) bytes: u64,
    pub(crate) failure: Option<Failure>,
    /// For a round in which a put failed, the number of records put and the number of all its
    /// records. Only their keys tell which ones were put.
    pub(crate) unfinished: Option<(u64, u64)>,
}

struct LaneOutcome {
    records: u64,
    replaced: u64,
    bytes: u64,
    failure: Option<Failure>,
}

pub(crate) fn put_all(
    store: &Store,
    table: &Table,
    mut gather: Gather,
    progress: &Progress,
) -> Loaded {
    let mut loaded = Loaded::default();
    while loaded.failure.is_none() {
        match gather.next() {
            None => break,
            Some(Err(failure)) => loaded.failure = Some(failure),
            Some(Ok(round)) => {
                let (input_bytes, all, before) = (round.input_bytes, round.records, loaded.records);
                // Complete the round before the next one: a later record with the same key must be
                // put later.
                for handle in start(store, table, round) {
                    loaded.add(handle);
                }
                if loaded.failure.is_some() {
                    loaded.unfinished = Some((loaded.records - before, all));
                }
                progress.update(loaded.records, loaded.bytes, input_bytes);
            }
        }
    }
    loaded
}

fn start(store: &Store, table: &Table, round: Round) -> Vec<JoinHandle<LaneOutcome>> {
    // Where a put failed, the others hardly fare better, and each would try for long.
    let failed = Arc::new(AtomicBool::new(false));
    let put = |lane: Lane| {
        let (table, failed) = (table.task(), failed.clone());
        store.spawn(move || async move {
            let mut outcome = LaneOutcome { records: 0, replaced: 0, bytes: 0, failure: None };
            for index in 0..lane.len() {
                if failed.load(Ordering::Relaxed) {
                    break;
                }
                let (key, value) = lane.record(index);
                match table.put(key, value).await {
                    Ok(replaced) => {
                        outcome.records += 1;
                        outcome.replaced += u64::from(replaced);
                        outcome.bytes += (key.len() + value.len()) as u64;
                    }
                    Err(error) => {
                        failed.store(true, Ordering::Relaxed);
                        let doing = format!("putting key {}", escape(key));
                        outcome.failure = Some(Failure::from(error).context(doing));
                        break;
                    }
                }
            }
            outcome
        })
    };
    round.lanes.into_iter().filter(|lane| lane.len() > 0).map(put).collect()
}

impl Loaded {
    /// Describes the records of the input that are in the store after an error.
    pub(crate) fn kept(&self) -> String {
        match self.unfinished {
            None => format!("{} before that are in the store", counted(self.records, "record")),
            Some((put, all)) if put == self.records => {
                format!("{} of the first {} are in the store", count(put), counted(all, "record"))
            }
            Some((put, all)) => format!(
                "the first {} are in the store, and {} of the {} after them",
                counted(self.records - put, "record"),
                count(put),
                count(all),
            ),
        }
    }

    /// Adds the records of another table, which was loaded afterwards.
    pub(crate) fn add_table(&mut self, other: Self) {
        self.records += other.records;
        self.replaced += other.replaced;
        self.bytes += other.bytes;
        self.failure = other.failure;
        self.unfinished = other.unfinished;
    }

    fn add(&mut self, handle: JoinHandle<LaneOutcome>) {
        match handle.join() {
            Ok(outcome) => {
                self.records += outcome.records;
                self.replaced += outcome.replaced;
                self.bytes += outcome.bytes;
                // Keep the first error; any one will do.
                self.failure = self.failure.take().or(outcome.failure);
            }
            Err(error) => self.failure = self.failure.take().or(Some(error.into())),
        }
    }
}
