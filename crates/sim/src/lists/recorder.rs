//! Records all requests and their answers.

use qpair_block::locks::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_isolation::{Element, Outcome, Transaction};

/// Receives transactions as they happen, for a process that may be killed.
pub(crate) trait Sink: Send {
    /// Called before a commit is requested, or after reads were made.
    fn asks(&mut self, number: usize, transaction: &Transaction);
    /// Called when the commit was answered.
    fn ends(&mut self, number: usize, outcome: Outcome, ended: u64);
}

pub(crate) struct Recorder {
    /// A counter of events, in an order that all processes agree on.
    clock: AtomicU64,
    elements: AtomicU64,
    written: Mutex<Written>,
}

struct Written {
    transactions: Vec<Transaction>,
    sink: Option<Box<dyn Sink>>,
}

impl Recorder {
    /// Makes a recorder whose elements begin with `first_element`.
    pub(crate) fn new(first_element: u64, sink: Option<Box<dyn Sink>>) -> Self {
        Self {
            clock: AtomicU64::new(0),
            elements: AtomicU64::new(first_element),
            written: Mutex::new(Written { transactions: Vec::new(), sink }),
        }
    }

    /// Returns a moment after all moments returned before.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn fresh_element(&self) -> Element {
        Element(self.elements.fetch_add(1, Ordering::Relaxed))
    }

    /// Records a transaction before its answer, and returns its number.
    pub(crate) fn asks(&self, transaction: Transaction) -> usize {
        let mut written = self.written.lock();
        let number = written.transactions.len();
        if let Some(sink) = &mut written.sink {
            sink.asks(number, &transaction);
        }
        written.transactions.push(transaction);
        number
    }

    pub(crate) fn ends(&self, number: usize, outcome: Outcome) {
        let ended = self.now();
        let mut written = self.written.lock();
        if let Some(sink) = &mut written.sink {
            sink.ends(number, outcome, ended);
        }
        let transaction = &mut written.transactions[number];
        (transaction.outcome, transaction.ended) = (outcome, ended);
    }

    pub(crate) fn len(&self) -> usize {
        self.written.lock().transactions.len()
    }

    /// Returns the recorded transactions. Nothing is recorded afterwards.
    pub(crate) fn take(&self) -> Vec<Transaction> {
        let mut written = self.written.lock();
        std::mem::take(&mut written.transactions)
    }
}
