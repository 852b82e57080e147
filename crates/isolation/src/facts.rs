//! The foreign elements that each transaction found, and the appends that took place.
//!
//! Transaction 0 is the base: it appended the elements that the lists had at the beginning. If
//! there was a crash, the last transaction is the reader of the recovered state.

use std::collections::{HashMap, HashSet};

use crate::anomaly::{Kind, Verdict};
use crate::explain::elements as listed;
use crate::history::{By, Element, History, Isolation, List, Operation, Outcome, Transaction};

/// The elements that a transaction found in a list, without its own appends.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) list: List,
    pub(crate) elements: Vec<Element>,
    pub(crate) by: By,
}

/// The role of a transaction in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The state at the beginning.
    Base,
    /// A transaction of the history, with its number there.
    Transaction(usize),
    /// The reader after the crash.
    Recovered,
}

#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) role: Role,
    /// The first read of each list, and further reads if the transaction contradicts itself.
    pub(crate) seen: Vec<Seen>,
    /// The appends that were not taken back, in order.
    pub(crate) appends: Vec<(List, Element)>,
    pub(crate) outcome: Outcome,
    pub(crate) durable: bool,
    /// The times at which the transaction began and ended; 0 for the base.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// Whether its reads and its commit have the same place in the order: it is serializable, or it
    /// only read.
    pub(crate) is_point: bool,
    /// Whether its appends, if it has any, took place.
    pub(crate) took_place: bool,
}

/// The transaction that appended an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) fact: usize,
    /// Whether the append stands, that is, was not taken back.
    pub(crate) stands: bool,
}

/// All transactions, and the writer of each element.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) all: Vec<Fact>,
    pub(crate) writers: HashMap<(List, Element), Writer>,
}

impl Facts {
    pub(crate) fn new(history: &History, verdict: &mut Verdict) -> Self {
        let mut facts = Self::default();
        facts.add_base(history);
        for (number, transaction) in history.transactions.iter().enumerate() {
            facts.add(number, transaction, verdict);
        }
        if let Some(recovered) = &history.recovered {
            let read = |(list, elements): (&List, &Vec<Element>)| Seen {
                list: *list,
                elements: elements.clone(),
                by: By::Row,
            };
            // A list that no longer exists after the crash counts as an empty one.
            let lists: HashSet<List> = facts.writers.keys().map(|(list, _)| *list).collect();
            let absent = lists.into_iter().filter(|list| !recovered.contains_key(list));
            let mut absent: Vec<List> = absent.collect();
            absent.sort_unstable();
            let empty = |list| Seen { list, elements: Vec::new(), by: By::Row };
            facts.all.push(Fact {
                role: Role::Recovered,
                seen: recovered.iter().map(read).chain(absent.into_iter().map(empty)).collect(),
                appends: Vec::new(),
                outcome: Outcome::Committed,
                durable: true,
                began: u64::MAX,
                ended: u64::MAX,
                is_point: true,
                took_place: true,
            });
        }
        facts.find_what_took_place();
        facts
    }

    fn add_base(&mut self, history: &History) {
        let mut appends = Vec::new();
        for (list, elements) in &history.base {
            for element in elements {
                appends.push((*list, *element));
                self.writers.insert((*list, *element), Writer { fact: 0, stands: true });
            }
        }
        self.all.push(Fact {
            role: Role::Base,
            seen: Vec::new(),
            appends,
            outcome: Outcome::Committed,
            durable: true,
            began: 0,
            ended: 0,
            is_point: true,
            took_place: true,
        });
    }

    /// Adds a transaction, and compares its reads with its earlier reads and appends.
    fn add(&mut self, number: usize, transaction: &Transaction, verdict: &mut Verdict) {
        let fact = self.all.len();
        let mut seen: Vec<Seen> = Vec::new();
        // Each append of the transaction, with the number of its operation.
        let mut own: Vec<(usize, List, Element)> = Vec::new();
        for (step, operation) in transaction.operations.iter().enumerate() {
            match operation {
                Operation::Append { list, element } => {
                    own.push((step, *list, *element));
                    let writer = Writer { fact, stands: true };
                    if self.writers.insert((*list, *element), writer).is_some() {
                        verdict.add(Kind::Duplicate, [number], || {
                            format!("{element} was appended to {list} twice: the history is not one of lists")
                        });
                    }
                }
                Operation::RollBack { to } => {
                    for (_, list, element) in own.extract_if(.., |(step, ..)| *step >= *to) {
                        self.writers.insert((list, element), Writer { fact, stands: false });
                    }
                }
                Operation::Read { list, elements, by } => {
                    let own = own.iter().filter(|(_, other, _)| other == list);
                    let own: Vec<Element> = own.map(|(.., element)| *element).collect();
                    let others = elements.strip_suffix(own.as_slice());
                    let before = seen.iter().find(|seen| seen.list == *list);
                    if others
                        .is_none_or(|others| before.is_some_and(|seen| seen.elements != others))
                    {
                        verdict.add(Kind::Internal, [number], || {
                            let known = before.map_or_else(
                                || "appended".to_owned(),
                                |seen| format!("read {} and appended", listed(&seen.elements)),
                            );
                            format!(
                                "T{number} had {known} {} to {list}, and then read {}",
                                listed(&own),
                                listed(elements)
                            )
                        });
                    }
                    let others = others.map_or_else(
                        || elements.iter().copied().filter(|one| !own.contains(one)).collect(),
                        <[Element]>::to_vec,
                    );
                    if before.is_none_or(|seen| seen.elements != others) {
                        seen.push(Seen { list: *list, elements: others, by: *by });
                    }
                }
            }
        }
        let appends: Vec<_> = own.into_iter().map(|(_, list, element)| (list, element)).collect();
        let committed = transaction.outcome == Outcome::Committed;
        self.all.push(Fact {
            role: Role::Transaction(number),
            is_point: transaction.isolation == Isolation::Serializable
                || appends.is_empty()
                || transaction.outcome == Outcome::RolledBack,
            seen,
            appends,
            outcome: transaction.outcome,
            durable: transaction.durable,
            began: transaction.began.saturating_add(1),
            ended: transaction.ended.saturating_add(1),
            took_place: committed,
        });
    }

    /// Marks unanswered transactions as having taken place if another transaction saw one of their
    /// appends.
    fn find_what_took_place(&mut self) {
        let mut seen = Vec::new();
        for (reader, fact) in self.all.iter().enumerate() {
            for Seen { list, elements, .. } in &fact.seen {
                let writers = elements.iter().filter_map(|one| self.writers.get(&(*list, *one)));
                let writers = writers.filter(|writer| writer.stands && writer.fact != reader);
                seen.extend(writers.map(|writer| writer.fact).filter(|writer| {
                    let writer: &Fact = &self.all[*writer];
                    writer.outcome == Outcome::Unknown && !writer.took_place
                }));
            }
        }
        for fact in seen {
            self.all[fact].took_place = true;
        }
    }

    /// Returns the transaction that appended an element, if it took place and did not take the
    /// append back.
    pub(crate) fn writer(&self, list: List, element: Element) -> Option<usize> {
        let writer = self.writers.get(&(list, element))?;
        (writer.stands && self.all[writer.fact].took_place).then_some(writer.fact)
    }

    /// Returns the number of a transaction in the history, if it has one.
    pub(crate) fn number(&self, fact: usize) -> Option<usize> {
        match self.all[fact].role {
            Role::Transaction(number) => Some(number),
            Role::Base | Role::Recovered => None,
        }
    }

    /// Returns all reads, each with the number of its reader.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (usize, &Seen)> {
        let all = self.all.iter().enumerate();
        all.flat_map(|(reader, fact)| fact.seen.iter().map(move |seen| (reader, seen)))
    }
}
