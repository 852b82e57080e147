//! The names of open tables, for error messages.

use std::collections::BTreeMap;

use qpair_format::shown::shown;
use qpair_memory::locks::Mutex;

/// The names of open tables, by the ids of their trees.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<BTreeMap<u32, String>>);

impl Names {
    pub(crate) fn add(&self, tree: u32, name: &str) {
        self.0.lock().insert(tree, name.to_owned());
    }

    pub(crate) fn remove(&self, tree: u32) {
        self.0.lock().remove(&tree);
    }

    /// Describes a key of a table for an error message.
    pub(in crate::tx) fn place(&self, tree: u32, key: &[u8]) -> String {
        let key = shown(key);
        match self.0.lock().get(&tree) {
            Some(name) => format!("key {key} of table {name}"),
            None => format!("key {key} of tree {tree}"),
        }
    }
}
