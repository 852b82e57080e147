//! The tasks that use a store, and their reports to the oracle.

mod load;
mod single;
mod transaction;
mod windows;

use qpair_block::locks::Mutex;
use std::sync::{Arc, MutexGuard};

use fastrand::Rng;
use qpair_engine::Error;
use qpair_sim_block::TraceHash;

use super::catalog::Catalog;
use super::oracle::Oracle;
use super::scenario::Scenario;
use super::world::Watch;

pub(crate) use load::Load;
pub(crate) use single::Single;
pub(crate) use transaction::Transactions;

pub(crate) struct Notes {
    pub(crate) oracle: Oracle,
    pub(crate) catalog: Catalog,
    /// The faults, in the order in which they were noticed.
    pub(crate) wrong: Vec<String>,
    /// A hash of everything that the tasks saw, in order.
    pub(crate) trace: TraceHash,
    /// Tells whether errors of the store are to be expected.
    pub(crate) watch: Watch,
    pub(crate) operations: u64,
    /// Lock waits that ended with a time-out.
    pub(crate) timed_out: u64,
}

#[derive(Clone)]
pub(crate) struct TaskContext {
    pub(crate) notes: Arc<Mutex<Notes>>,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) rng: Rng,
    pub(crate) steps: u32,
}

impl TaskContext {
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock()
    }

    pub(crate) fn wrong(&self, what: String) {
        self.notes().wrong.push(what);
    }

    /// Judges an error of the store: it is a fault if there is no reason for it.
    pub(crate) fn take_error(&self, doing: &str, error: &Error) {
        let mut notes = self.notes();
        notes.trace.add(error.kind() as u64);
        if !notes.watch.excuses(error) {
            notes.wrong.push(format!("{doing}: {:?}: {error}", error.kind()));
        }
    }
}
