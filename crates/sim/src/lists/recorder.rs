//! Writes down who asked what, and what the answer was.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use qpair_isolation::{Element, Outcome, Transaction};

/// Is told of transactions as they happen, for one who may not live to see the end.
pub(crate) trait Sink: Send {
    /// A commit is about to be asked for, or reads were made.
    fn asks(&mut self, number: usize, transaction: &Transaction);
    /// It was answered.
    fn ends(&mut self, number: usize, outcome: Outcome, ended: u64);
}

/// The history so far.
pub(crate) struct Recorder {
    /// Counts events, in an order that all processes agree on.
    clock: AtomicU64,
    elements: AtomicU64,
    written: Mutex<Written>,
}

struct Written {
    transactions: Vec<Transaction>,
    sink: Option<Box<dyn Sink>>,
}

impl Recorder {
    /// A recorder whose elements begin with this one.
    pub(crate) fn new(first_element: u64, sink: Option<Box<dyn Sink>>) -> Self {
        Self {
            clock: AtomicU64::new(0),
            elements: AtomicU64::new(first_element),
            written: Mutex::new(Written { transactions: Vec::new(), sink }),
        }
    }

    /// A moment after all moments that were asked for before.
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// An element that nobody has appended.
    pub(crate) fn fresh_element(&self) -> Element {
        Element(self.elements.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes in a transaction that is about to be answered; its number.
    pub(crate) fn asks(&self, transaction: Transaction) -> usize {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let number = written.transactions.len();
        if let Some(sink) = &mut written.sink {
            sink.asks(number, &transaction);
        }
        written.transactions.push(transaction);
        number
    }

    /// Takes in how it ended.
    pub(crate) fn ends(&self, number: usize, outcome: Outcome) {
        let ended = self.now();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sink) = &mut written.sink {
            sink.ends(number, outcome, ended);
        }
        let transaction = &mut written.transactions[number];
        (transaction.outcome, transaction.ended) = (outcome, ended);
    }

    /// How many transactions there are.
    pub(crate) fn len(&self) -> usize {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).transactions.len()
    }

    /// What was written down; from here on nothing is.
    pub(crate) fn take(&self) -> Vec<Transaction> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut written.transactions)
    }
}
