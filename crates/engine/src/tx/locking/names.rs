//! The names of open tables, for error messages.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The names of open tables, by the ids of their trees.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<BTreeMap<u32, String>>);

impl Names {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, tree: u32, name: &str) {
        self.lock().insert(tree, name.to_owned());
    }

    pub(crate) fn remove(&self, tree: u32) {
        self.lock().remove(&tree);
    }

    /// Describes a key of a table for an error message.
    pub(in crate::tx) fn place(&self, tree: u32, key: &[u8]) -> String {
        let key = key.escape_ascii();
        match self.lock().get(&tree) {
            Some(name) => format!("key {key} of table {name}"),
            None => format!("key {key} of tree {tree}"),
        }
    }
}
