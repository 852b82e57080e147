//! The graph of the order of moments.
//!
//! A transaction at snapshot isolation has two nodes: the moment S of its reads and the moment C of
//! its commit, with S before C. A transaction that is serializable or only reads has one node for
//! both. The edges between transactions `a` and `b` are:
//!
//! - `a` ww or wr `b`, and `a` before `b` in real time: C of `a` is not after S of `b`;
//! - `a` rw `b`: S of `a` is before C of `b`.
//!
//! A possible history has moments in this order, so its graph has no cycle. A cycle of transactions
//! that has two consecutive rw edges at a transaction with snapshot isolation is allowed: it is not
//! a cycle of this graph, because that transaction's S and C are different nodes.

use std::collections::HashMap;

use crate::anomaly::Verdict;
use crate::facts::{Facts, Role, Seen};
use crate::history::{By, Element, List, Outcome};
use crate::order::Order;

/// The reason why one moment is before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Edge {
    /// The reads of a transaction are before its commit.
    Within,
    /// The first transaction wrote the element before the one that the second wrote.
    Ww { list: List, before: Element, after: Element },
    /// The first transaction wrote the last element that the second read.
    Wr { list: List, element: Element },
    /// The first transaction read a list without an element that the second wrote.
    Rw { list: List, element: Element, by_range: bool },
    /// The first transaction had ended before the second began. Also connects moments of the clock.
    Time,
    /// The transaction was durable before the crash.
    Durable,
}

impl Edge {
    /// Returns the list that the edge is about, if there is one.
    pub(crate) fn list(self) -> Option<List> {
        match self {
            Self::Ww { list, .. } | Self::Wr { list, .. } | Self::Rw { list, .. } => Some(list),
            Self::Within | Self::Time | Self::Durable => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) edges: Vec<Vec<(usize, Edge)>>,
    /// The transaction of each node; `None` for moments of the clock.
    pub(crate) facts: Vec<Option<usize>>,
    /// The nodes of each transaction's reads and commit.
    places: Vec<(usize, usize)>,
}

impl Graph {
    pub(crate) fn new(facts: &Facts, orders: &HashMap<List, Order>, verdict: &mut Verdict) -> Self {
        let mut graph = Self::default();
        for (number, fact) in facts.all.iter().enumerate() {
            let reads = graph.node(Some(number));
            let commit = if fact.is_point { reads } else { graph.node(Some(number)) };
            if commit != reads {
                graph.edges[reads].push((commit, Edge::Within));
            }
            graph.places.push((reads, commit));
        }
        for (list, order) in orders {
            graph.add_writes(*list, order);
        }
        for (reader, seen) in facts.reads() {
            graph.add_read(reader, seen, &orders[&seen.list]);
        }
        verdict.edges = graph.edges.iter().map(|edges| edges.len() as u64).sum();
        graph.add_time(facts);
        graph.add_durable(facts);
        for edges in &mut graph.edges {
            edges.sort_unstable();
        }
        graph
    }

    fn node(&mut self, fact: Option<usize>) -> usize {
        self.facts.push(fact);
        self.edges.push(Vec::new());
        self.facts.len() - 1
    }

    /// Adds an edge from the commit of one transaction to the reads of another.
    fn commit_before(&mut self, from: usize, to: usize, edge: Edge) {
        if from != to {
            self.edges[self.places[from].1].push((self.places[to].0, edge));
        }
    }

    fn add_writes(&mut self, list: List, order: &Order) {
        for (elements, writers) in order.elements.windows(2).zip(order.writers.windows(2)) {
            let edge = Edge::Ww { list, before: elements[0], after: elements[1] };
            self.commit_before(writers[0], writers[1], edge);
        }
        let (Some(last), Some(writer)) = (order.elements.last(), order.writers.last()) else {
            return;
        };
        for (element, after) in &order.unread {
            let edge = Edge::Ww { list, before: *last, after: *element };
            self.commit_before(*writer, *after, edge);
        }
    }

    fn add_read(&mut self, reader: usize, seen: &Seen, order: &Order) {
        let place = order.place(&seen.elements);
        if let Some(last) = place.end.checked_sub(1) {
            let edge = Edge::Wr { list: seen.list, element: order.elements[last] };
            self.commit_before(order.writers[last], reader, edge);
        }
        let by_range = seen.by == By::Range;
        let mut replaced = |element, writer: usize| {
            if writer != reader {
                let edge = Edge::Rw { list: seen.list, element, by_range };
                self.edges[self.places[reader].0].push((self.places[writer].1, edge));
            }
        };
        match order.elements.get(place.absent) {
            Some(element) => replaced(*element, order.writers[place.absent]),
            None => order.unread.iter().for_each(|(element, writer)| replaced(*element, *writer)),
        }
    }

    /// Adds moments of the clock, one for each acknowledgement. They express the order of real time
    /// with few edges.
    fn add_time(&mut self, facts: &Facts) {
        let ends =
            facts.all.iter().enumerate().filter(|(_, fact)| {
                fact.outcome == Outcome::Committed && fact.role != Role::Recovered
            });
        let mut ends: Vec<(u64, usize)> = ends.map(|(number, fact)| (fact.ended, number)).collect();
        ends.sort_unstable();
        let first = self.facts.len();
        for (number, (_, fact)) in ends.iter().enumerate() {
            let moment = self.node(None);
            if number > 0 {
                self.edges[moment - 1].push((moment, Edge::Time));
            }
            self.edges[self.places[*fact].1].push((moment, Edge::Time));
        }
        for (number, fact) in facts.all.iter().enumerate() {
            if fact.role == Role::Recovered {
                continue;
            }
            if let Some(last) = ends.partition_point(|end| end.0 < fact.began).checked_sub(1) {
                self.edges[first + last].push((self.places[number].0, Edge::Time));
            }
        }
    }

    /// Adds edges from commits that were acknowledged as durable, and from what they read, to the
    /// state after the crash.
    fn add_durable(&mut self, facts: &Facts) {
        let Some(recovered) = facts.all.iter().position(|fact| fact.role == Role::Recovered) else {
            return;
        };
        for (number, fact) in facts.all.iter().enumerate() {
            if !fact.durable || fact.outcome != Outcome::Committed || number == recovered {
                continue;
            }
            if !fact.appends.is_empty() {
                self.commit_before(number, recovered, Edge::Durable);
                continue;
            }
            for Seen { list, elements, .. } in &fact.seen {
                let last = elements.last().and_then(|last| facts.writer(*list, *last));
                if let Some(writer) = last {
                    self.commit_before(writer, recovered, Edge::Durable);
                }
            }
        }
    }
}
