//! The order in which elements were appended to a list, which is the order in its longest read.
//!
//! Lists only grow, so the shorter of two reads of a list must be a prefix of the longer one.
//! Appends that are in no read come after all others.

use std::collections::HashMap;

use crate::facts::Facts;
use crate::history::{Element, List};

#[derive(Debug, Default)]
pub(crate) struct Order {
    pub(crate) elements: Vec<Element>,
    /// The transaction that appended each element.
    pub(crate) writers: Vec<usize>,
    positions: HashMap<Element, usize>,
    /// Appends that took place but are in no read, each with its transaction.
    pub(crate) unread: Vec<(Element, usize)>,
    /// The reader with the longest read.
    pub(crate) reader: usize,
}

/// The position of a read in the order of its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The position after the last element of the read.
    pub(crate) end: usize,
    /// The position of the first element that the read lacks.
    pub(crate) absent: usize,
    /// Whether the read is a prefix of the order.
    pub(crate) fits: bool,
}

impl Order {
    pub(crate) fn position(&self, element: Element) -> Option<usize> {
        self.positions.get(&element).copied()
    }

    pub(crate) fn place(&self, read: &[Element]) -> Place {
        if self.elements.starts_with(read) {
            return Place { end: read.len(), absent: read.len(), fits: true };
        }
        let mut has = vec![false; self.elements.len()];
        for position in read.iter().filter_map(|element| self.position(*element)) {
            has[position] = true;
        }
        Place {
            end: has.iter().rposition(|has| *has).map_or(0, |last| last + 1),
            absent: has.iter().position(|has| !*has).unwrap_or(has.len()),
            fits: false,
        }
    }
}

pub(crate) fn orders(facts: &Facts) -> HashMap<List, Order> {
    let mut orders: HashMap<List, Order> = HashMap::new();
    let mut longest: HashMap<List, (usize, &[Element])> = HashMap::new();
    for (reader, seen) in facts.reads() {
        let longest = longest.entry(seen.list).or_insert((reader, &[]));
        if seen.elements.len() > longest.1.len() {
            *longest = (reader, &seen.elements);
        }
    }
    for (list, (reader, elements)) in longest {
        let order = orders.entry(list).or_default();
        order.reader = reader;
        for element in elements {
            let Some(writer) = facts.writer(list, *element) else { continue };
            if order.positions.contains_key(element) {
                continue;
            }
            order.positions.insert(*element, order.elements.len());
            order.elements.push(*element);
            order.writers.push(writer);
        }
    }
    for (fact, of) in facts.all.iter().enumerate().filter(|(_, of)| of.took_place) {
        for (list, element) in &of.appends {
            let order = orders.entry(*list).or_default();
            if order.position(*element).is_none() {
                order.unread.push((*element, fact));
            }
        }
    }
    orders
}
