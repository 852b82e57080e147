//! The group of records with long keys that a sorted load gathers until the next head.

use qpair_format::Result;
use qpair_format::group::append;

use super::BulkLoader;

/// A group that is not in a page yet.
pub(super) struct Gathered {
    group_key: Vec<u8>,
    pub(super) last_key: Vec<u8>,
    group: Vec<u8>,
}

impl BulkLoader {
    /// Adds a record with a long key, which comes after all others.
    pub(super) async fn gather(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let group_key = self.tree.group_key(key);
        if self.group.as_ref().is_some_and(|of| of.group_key != group_key) {
            self.end_group().await?;
        }
        let rest = self.tree.rest(key);
        match &mut self.group {
            Some(of) => {
                append(&mut of.group, rest, value)?;
                of.last_key = key.to_vec();
            }
            None => {
                let mut group = Vec::new();
                append(&mut group, rest, value)?;
                self.group = Some(Gathered { group_key, last_key: key.to_vec(), group });
            }
        }
        // The group itself is counted when it ends.
        self.records += 1;
        Ok(())
    }

    /// Adds the group that was gathered.
    pub(super) async fn end_group(&mut self) -> Result<()> {
        let Some(of) = self.group.take() else { return Ok(()) };
        self.torn = true;
        self.records -= 1;
        self.push_whole(&of.group_key, &of.group).await?;
        self.torn = false;
        Ok(())
    }
}
