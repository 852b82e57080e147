//! The layout of lists in tables.

use std::ops::Range;

use qpair_isolation::{By, Element, List};

/// Names of the tables: two with records of lists, and one with the lengths of lists.
pub(crate) const TABLES: [&str; 3] = ["lists", "lists-too", "lists-heads"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Each list is one record, which each append replaces.
    Row,
    /// Each element is a record, which transactions delete and write again under other keys.
    Rows,
    /// Each element is a record, and records also move between two tables.
    TwoTables,
}

impl Layout {
    /// Returns the number of tables that have records of lists.
    pub(crate) fn tables(self) -> usize {
        if self == Self::TwoTables { 2 } else { 1 }
    }

    pub(crate) fn by(self) -> By {
        if self == Self::Row { By::Row } else { By::Range }
    }
}

/// A record of one element: its place, and its index in its list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) table: usize,
    pub(crate) list: List,
    /// The position of the record among the records of its list.
    pub(crate) slot: u16,
    pub(crate) element: Element,
    pub(crate) index: u32,
    pub(crate) padding: u16,
}

pub(crate) fn key_of(list: List) -> Vec<u8> {
    list.0.to_be_bytes().to_vec()
}

pub(crate) fn keys_of(list: List) -> Range<Vec<u8>> {
    key_of(list)..key_of(List(list.0 + 1))
}

pub(crate) fn all_keys() -> Range<Vec<u8>> {
    Vec::new()..vec![0xFF; 5]
}

pub(crate) fn list_of(key: &[u8]) -> Option<List> {
    Some(List(u32::from_be_bytes(key.get(..4)?.try_into().ok()?)))
}

impl Row {
    pub(crate) fn key(&self) -> Vec<u8> {
        let mut key = key_of(self.list);
        key.extend_from_slice(&self.slot.to_be_bytes());
        key.extend_from_slice(&self.element.0.to_be_bytes());
        key
    }

    pub(crate) fn value(&self) -> Vec<u8> {
        let mut value = self.index.to_le_bytes().to_vec();
        value.resize(4 + usize::from(self.padding), 0x5A);
        value
    }

    /// Parses a record of a table; `None` if it is not a record of an element.
    pub(crate) fn parse(table: usize, (key, value): &(Vec<u8>, Vec<u8>)) -> Option<Self> {
        Some(Self {
            table,
            list: list_of(key)?,
            slot: u16::from_be_bytes(key.get(4..6)?.try_into().ok()?),
            element: Element(u64::from_be_bytes(key.get(6..)?.try_into().ok()?)),
            index: u32::from_le_bytes(value.get(..4)?.try_into().ok()?),
            padding: (value.len() - 4) as u16,
        })
    }
}

pub(crate) fn value_of(elements: &[Element]) -> Vec<u8> {
    elements.iter().flat_map(|element| element.0.to_le_bytes()).collect()
}

pub(crate) fn elements_of(value: &[u8]) -> Option<Vec<Element>> {
    let (words, rest) = value.as_chunks::<8>();
    rest.is_empty().then(|| words.iter().map(|word| Element(u64::from_le_bytes(*word))).collect())
}
