//! A judge of isolation that does not depend on any store.
//!
//! A [`History`] records the operations of transactions and their results: the element that was
//! appended to each list, the elements that each read of a list returned, the transactions that
//! committed, and the times. Every element is appended once, and a list only grows, so the longest
//! read of a list shows the order of its writers. [`judge`] builds the graph of the transactions,
//! ordered by their writes, their reads and real time, and finds everything that no store with the
//! promised isolation can produce. See docs/design/isolation.md.
//!
//! ```
//! use qpair_isolation::{By, Element, History, Isolation, List, Operation, Outcome, Transaction, judge};
//!
//! // Two transactions read two lists, and each appends to one of them: a write skew.
//! let skew = |began, read, written, element| Transaction {
//!     process: 0,
//!     began,
//!     ended: began + 10,
//!     isolation: Isolation::Serializable,
//!     outcome: Outcome::Committed,
//!     durable: true,
//!     operations: vec![
//!         Operation::Read { list: List(read), elements: vec![], by: By::Row },
//!         Operation::Append { list: List(written), element: Element(element) },
//!     ],
//! };
//! let mut history = History::default();
//! history.transactions = vec![skew(1, 1, 2, 10), skew(2, 2, 1, 20)];
//! let verdict = judge(&history);
//! assert!(!verdict.is_clean());
//! println!("{verdict}");
//! // Snapshot isolation lets both commit.
//! history.transactions.iter_mut().for_each(|one| one.isolation = Isolation::Snapshot);
//! assert!(judge(&history).is_clean());
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod anomaly;
mod components;
mod cycle;
mod explain;
mod facts;
mod graph;
mod history;
mod judge;
mod order;
mod reads;

pub use anomaly::{Anomaly, Class, Kind, Verdict};
pub use history::{By, Element, History, Isolation, List, Operation, Outcome, State, Transaction};
pub use judge::judge;
