//! The operations of transactions on a store, and their results.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct List(pub u32);

/// An element of a list. No two appends to a list have the same element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element(pub u64);

pub type State = BTreeMap<List, Vec<Element>>;

/// The way in which a list was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The list's one record was read by its key.
    Row,
    /// The list's records were found by a range of keys, so a missing element is a phantom.
    Range,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Append {
        list: List,
        /// The element, which no other append to that list has.
        element: Element,
    },
    /// Read a list, including the transaction's own appends.
    Read { list: List, elements: Vec<Element>, by: By },
    /// Took back the appends among the operations from this number on.
    RollBack {
        /// The number of the first operation that was taken back, from 0.
        to: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// The transaction reads the state of one moment. No other transaction commits a change of its
    /// writes between that moment and its commit.
    Snapshot,
    /// Everything that the transaction read was unchanged at its commit.
    Serializable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// The transaction was rolled back or refused. Others must not see its appends; its reads count
    /// as those of a snapshot.
    RolledBack,
    /// The commit was requested and never answered. It took place if one of its appends was seen.
    Unknown,
}

/// A transaction. A snapshot or a backup is a transaction that only reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The thread or task that ran the transaction.
    pub process: u32,
    /// A time before its first operation, on a clock that all processes share.
    pub began: u64,
    /// A time after its commit was acknowledged, on the same clock; meaningless for other outcomes.
    pub ended: u64,
    pub operations: Vec<Operation>,
    pub isolation: Isolation,
    pub outcome: Outcome,
    /// Whether the transaction's writes and reads survive a crash after it is acknowledged.
    pub durable: bool,
}

/// The history of a store from one opening to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The lists at the beginning.
    pub base: State,
    /// The transactions, in any order.
    pub transactions: Vec<Transaction>,
    /// The lists after the crash that ended the history, if one did. They must include durable
    /// commits, and may lack the last of the other commits.
    pub recovered: Option<State>,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "list {}", self.0)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
