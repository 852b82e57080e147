//! The kinds of anomalies of a history.

use std::collections::BTreeMap;
use std::fmt;

/// Classes of cycles, after Adya.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Writes alone.
    G0,
    /// Writes, and reads of what was written.
    G1c,
    /// One read of what another replaced, among other edges.
    GSingle,
    /// Two or more reads of what others replaced.
    G2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A read has an element that no transaction appended.
    Unwritten,
    /// A list has an element twice.
    Duplicate,
    /// A transaction does not find what it has read or appended itself.
    Internal,
    /// G1a: a read has an element of a transaction that was rolled back, or one that was taken
    /// back.
    AbortedRead,
    /// G1b: a read has some of the elements that one transaction appended to a list, and lacks
    /// others.
    IntermediateRead,
    /// Two reads of a list of which neither is a prefix of the other.
    IncompatibleOrder,
    /// An acknowledged append is missing in all later reads.
    LostAppend,
    /// Transactions that each come before the next, in a cycle.
    Cycle {
        /// The class of the cycle, by its edges.
        class: Class,
        /// Whether one of its reads was of a range, so that the missed element is a phantom.
        phantom: bool,
        /// Whether the cycle needs the order of real time to close.
        realtime: bool,
    },
}

/// Something that a store with the promised isolation cannot show.
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
    /// The first few anomalies of each kind.
    pub anomalies: Vec<Anomaly>,
    /// How many there were of each kind.
    pub counts: BTreeMap<Kind, u64>,
    /// Transactions that took place.
    pub transactions: u64,
    /// Reads that were compared.
    pub reads: u64,
    /// Edges between transactions, without those of real time.
    pub edges: u64,
}

/// Anomalies of one kind that are explained.
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

    /// Whether there is a cycle of this class, whatever else it has.
    #[must_use]
    pub fn has_cycle(&self, wanted: Class) -> bool {
        let is = |kind: &Kind| matches!(kind, Kind::Cycle { class, .. } if *class == wanted);
        self.counts.keys().any(is)
    }

    /// Takes in an anomaly; explains it if there are few of its kind.
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
    /// One line of counts, and then each anomaly that is explained.
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
