//! Reads of records with keys that are too long for a page, which are in groups: see
//! docs/design/long-keys.md.

use qpair_format::Result;
use qpair_format::group::find;

use super::{Table, TaskTable};

impl TaskTable {
    /// Like [`TaskTable::get_into`], for a key whose record is in a group.
    pub(super) async fn get_long(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let Table { inner, tree } = &self.table;
        let groups = Table::new(inner.clone(), tree.with_groups()).task();
        let mut group = Vec::new();
        groups.get_into(&tree.group_key(key), &mut group).await?;
        let found = find(&group, tree.rest(key))?;
        value.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }
}
