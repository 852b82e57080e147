//! The kinds of anomalies of a history.

use std::collections::BTreeMap;
use std::fmt;

/// Classes of cycles, after Adya.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Only edges between writes.
    G0,
    /// Edges between writes, and edges from a write to its reader.
    G1c,
    /// One edge from a read to the write that replaced the read state, among other edges.
    GSingle,
    /// Two or more edges from a read to the write that replaced the read state.
    G2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A read contains an element that no transaction appended.
    Unwritten,
    /// A read contains an element twice.
    Duplicate,
    /// A transaction does not find what it has read or appended itself.
    Internal,
    /// G1a: a read contains an element of a transaction that was rolled back, or an element whose
    /// append was taken back.
    AbortedRead,
    /// G1b: a read contains some of the elements that one transaction appended to a list, and lacks
    /// others.
    IntermediateRead,
    /// There are two reads of a list of which neither is a prefix of the other.
    IncompatibleOrder,
    /// An acknowledged append is missing in all later reads.
    LostAppend,
    /// Transactions that each come before the next, in a cycle.
    Cycle {
        /// The class of the cycle, by its edges.
        class: Class,
        /// Whether a read in the cycle was of a range, so that the missed element is a phantom.
        phantom: bool,
        /// Whether the cycle needs the order of real time to close.
        realtime: bool,
    },
}

/// A result that a store with the promised isolation cannot produce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    pub kind: Kind,
    /// The transactions that show it, by their number in the history.
    pub transactions: Vec<usize>,
    /// The transactions, elements and edges involved, in words.
    pub explanation: String,
}

/// The result of [`judge`](crate::judge).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The first few anomalies of each kind, with explanations.
    pub anomalies: Vec<Anomaly>,
    /// The number of anomalies of each kind.
    pub counts: BTreeMap<Kind, u64>,
    /// The number of transactions that took place.
    pub transactions: u64,
    /// The number of reads that were compared.
    pub reads: u64,
    /// The number of edges between transactions, without those of real time.
    pub edges: u64,
}

/// The maximum number of anomalies of one kind that are explained.
const EXPLAINED_MAX: u64 = 3;

impl Verdict {
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.counts.contains_key(&kind)
    }

    /// Whether there is a cycle of this class, whatever its other properties are.
    #[must_use]
    pub fn has_cycle(&self, wanted: Class) -> bool {
        let is = |kind: &Kind| matches!(kind, Kind::Cycle { class, .. } if *class == wanted);
        self.counts.keys().any(is)
    }

    /// Counts an anomaly, and keeps an explanation if there are few of its kind.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        transactions: impl IntoIterator<Item = usize>,
        explain: impl FnOnce() -> String,
    ) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= EXPLAINED_MAX {
            let transactions = transactions.into_iter().collect();
            self.anomalies.push(Anomaly { kind, transactions, explanation: explain() });
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Cycle { class, phantom, realtime } = self else {
            return f.write_str(match self {
                Self::Unwritten => "an element that nobody appended",
                Self::Duplicate => "an element twice",
                Self::Internal => "a transaction that does not find its own",
                Self::AbortedRead => "G1a, an aborted read",
                Self::IntermediateRead => "G1b, an intermediate read",
                Self::IncompatibleOrder => "incompatible orders",
                _ => "a lost append",
            });
        };
        f.write_str(match (class, phantom) {
            (Class::G0, _) => "G0, a cycle of writes",
            (Class::G1c, _) => "G1c, a cycle of writes and reads",
            (Class::GSingle, false) => "G-single, a cycle with one replaced read",
            (Class::GSingle, true) => "G-single by a phantom",
            (Class::G2, false) => "G2-item, a cycle with replaced reads",
            (Class::G2, true) => "G2, a cycle with phantoms",
        })?;
        f.write_str(if *realtime { ", in real time" } else { "" })
    }
}

impl fmt::Display for Verdict {
    /// Writes one line of counts, and then the explained anomalies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transactions, reads, edges, .. } = self;
        write!(f, "{transactions} transactions, {reads} reads, {edges} edges: ")?;
        if self.is_clean() {
            return f.write_str("no anomaly");
        }
        for (number, (kind, count)) in self.counts.iter().enumerate() {
            write!(f, "{}{count} x {kind}", if number > 0 { "; " } else { "" })?;
        }
        for anomaly in &self.anomalies {
            write!(f, "\n{}:", anomaly.kind)?;
            for line in anomaly.explanation.lines() {
                write!(f, "\n  {line}")?;
            }
        }
        Ok(())
    }
}
