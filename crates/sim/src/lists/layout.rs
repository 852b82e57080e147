//! How lists are kept in tables.

use std::ops::Range;

use qpair_isolation::{By, Element, List};

/// Names of the tables: records of lists, more of them, and how long lists are.
pub(crate) const TABLES: [&str; 3] = ["lists", "lists-too", "lists-heads"];

/// How lists are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Each list is one record, written anew by each append.
    Row,
    /// Each element is a record, which transactions delete and write again under other keys.
    Rows,
    /// The same, and records move between two tables.
    TwoTables,
}

impl Layout {
    /// How many tables have records of lists.
    pub(crate) fn tables(self) -> usize {
        if self == Self::TwoTables { 2 } else { 1 }
    }

    pub(crate) fn by(self) -> By {
        if self == Self::Row { By::Row } else { By::Range }
    }
}

/// A record of one element: where it is, and its number in its list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) table: usize,
    pub(crate) list: List,
    /// Decides where among the list's records it lies.
    pub(crate) slot: u16,
    pub(crate) element: Element,
    /// Position in the list.
    pub(crate) index: u32,
    pub(crate) padding: u16,
}

/// The key of a list's one record, and the beginning of the keys of its elements.
pub(crate) fn key_of(list: List) -> Vec<u8> {
    list.0.to_be_bytes().to_vec()
}

/// All keys of a list.
pub(crate) fn keys_of(list: List) -> Range<Vec<u8>> {
    key_of(list)..key_of(List(list.0 + 1))
}

/// All keys of all lists.
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

    /// A record of a table, if it is one of an element.
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

/// The one record of a list.
pub(crate) fn value_of(elements: &[Element]) -> Vec<u8> {
    elements.iter().flat_map(|element| element.0.to_le_bytes()).collect()
}

pub(crate) fn elements_of(value: &[u8]) -> Option<Vec<Element>> {
    let (words, rest) = value.as_chunks::<8>();
    rest.is_empty().then(|| words.iter().map(|word| Element(u64::from_le_bytes(*word))).collect())
}
