//! Applies the log after the checkpoint to the new store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use qpair_format::expiry::INDEX_TABLE;
use qpair_format::image::Record as Checkpoint;
use qpair_format::log::Operation;
use qpair_format::page::whole_key_len_max;
use qpair_format::{ErrorKind, Result};

use super::expiry::Expiry;
use super::save::{note_large, read_large};
use super::{RepairStep, RepairedLog, RepairedTable, Salvage, interrupted};
use crate::offline::{PageReader, read_logs};
use qpair_engine::Table;

/// The number of commits between two progress reports.
const TOLD_EVERY: u64 = 1024;

/// The tables of the new store by the trees of the damaged one.
struct Tables<'a> {
    target: &'a super::Store,
    /// The indices of the tables in the report.
    saved: BTreeMap<u32, usize>,
    open: BTreeMap<u32, Table>,
    expiry: &'a mut Expiry,
    report: &'a mut Vec<RepairedTable>,
    key_len_max: usize,
    /// Records whose last value is a large one that cannot be read. A value that a later commit
    /// replaced does not count.
    missing: BTreeSet<(u32, Vec<u8>)>,
}

impl Tables<'_> {
    /// Returns the table of a tree. The table is created if it was not known.
    fn of(&mut self, tree: u32) -> Result<(Table, &mut RepairedTable)> {
        let index = match self.saved.get(&tree) {
            Some(index) => *index,
            None => {
                let name = self.made_up_name(tree);
                self.add(tree, name)
            }
        };
        let table = match self.open.get(&tree) {
            Some(table) => table.clone(),
            None => {
                let (options, _) = self.expiry.options(tree);
                let table = self.target.table_of_stored(&self.report[index].name, &options)?;
                self.open.insert(tree, table.clone());
                table
            }
        };
        Ok((table, &mut self.report[index]))
    }

    /// Returns a name for a table whose own name is not known.
    fn made_up_name(&self, tree: u32) -> String {
        let mut name = format!("table-{tree}");
        while self.report.iter().any(|other| other.name == name) {
            name.push('-');
        }
        name
    }

    /// Frees a name. The log says that this name was free: a table that has it here, from an older
    /// catalog or with a made-up name, was dropped or renamed before. It is kept under another
    /// name.
    fn make_way(&mut self, name: &str) -> Result<()> {
        let is_named = |(_, index): &(&u32, &usize)| self.report[**index].name == name;
        match self.saved.iter().find(is_named).map(|(tree, index)| (*tree, *index)) {
            Some((tree, index)) => self.set_name(index, self.made_up_name(tree)),
            None => Ok(()),
        }
    }

    fn rename(&mut self, tree: u32, name: &str) -> Result<()> {
        let known = self.saved.get(&tree).copied();
        if known.is_some_and(|index| self.report[index].name == name) {
            return Ok(());
        }
        self.make_way(name)?;
        match known {
            Some(index) => self.set_name(index, name.to_owned()),
            None => {
                self.add(tree, name.to_owned());
                self.of(tree).map(drop)
            }
        }
    }

    fn set_name(&mut self, index: usize, name: String) -> Result<()> {
        let saved = &mut self.report[index];
        self.target.rename_table(&saved.name, &name)?;
        saved.name = name;
        Ok(())
    }

    fn add(&mut self, tree: u32, name: String) -> usize {
        let index = self.report.len();
        self.report.push(RepairedTable { name, ..RepairedTable::default() });
        self.saved.insert(tree, index);
        index
    }

    fn put(&mut self, tree: u32, key: &[u8], value: &[u8]) -> Result<()> {
        if key.len() > self.key_len_max {
            // No store with pages of this size can have put this record.
            return Ok(());
        }
        self.missing.remove(&(tree, key.to_vec()));
        let (table, saved) = self.of(tree)?;
        saved.records += u64::from(!table.put(key, value)?);
        Ok(())
    }

    fn delete(&mut self, tree: u32, key: &[u8]) -> Result<()> {
        self.missing.remove(&(tree, key.to_vec()));
        let (table, saved) = self.of(tree)?;
        saved.records -= u64::from(table.delete(key)?);
        Ok(())
    }

    fn drop(&mut self, tree: u32) -> Result<()> {
        self.open.remove(&tree);
        let Some(index) = self.saved.remove(&tree) else { return Ok(()) };
        let gone = self.report.remove(index);
        self.saved.values_mut().filter(|other| **other > index).for_each(|i| *i -= 1);
        self.target.drop_table(&gone.name)
    }

    fn apply(&mut self, reader: &mut PageReader, operation: Operation<'_>) -> Result<()> {
        match operation {
            Operation::CreateTable { tree, name } if name == INDEX_TABLE => {
                self.expiry.index = Some(tree);
                Ok(())
            }
            Operation::Put { tree, key, value } if self.expiry.index == Some(tree) => {
                self.expiry.note(key, value);
                Ok(())
            }
            Operation::Delete { tree, .. } if self.expiry.index == Some(tree) => Ok(()),
            Operation::Put { tree, key, value } => self.put(tree, key, value),
            Operation::PutLarge { tree, key, descriptor } => match read_large(reader, &descriptor)?
            {
                Some(value) => self.put(tree, key, &value),
                None => {
                    // The earlier value is not the last committed one.
                    self.delete(tree, key)?;
                    self.missing.insert((tree, key.to_vec()));
                    Ok(())
                }
            },
            Operation::Delete { tree, key } => self.delete(tree, key),
            Operation::CreateTable { tree, name } => {
                if !self.saved.contains_key(&tree) {
                    self.make_way(name)?;
                    self.add(tree, name.to_owned());
                    self.of(tree)?;
                }
                Ok(())
            }
            Operation::DropTable { tree } => self.drop(tree),
            Operation::RenameTable { tree, name } => self.rename(tree, name),
        }
    }
}

/// Applies the commits of the logs.
pub(super) fn replay(
    salvage: &mut Salvage<'_>,
    checkpoint: &Checkpoint,
    logs: &[Vec<u8>],
    saved: BTreeMap<u32, usize>,
) -> Result<()> {
    let progress = salvage.progress;
    let mut tables = Tables {
        target: &salvage.target,
        saved,
        open: BTreeMap::new(),
        expiry: &mut salvage.expiry,
        report: &mut salvage.report.tables,
        // The key of a group is one byte longer than a whole key.
        key_len_max: whole_key_len_max(salvage.offline.reader.page_bytes()) + 1,
        missing: BTreeSet::new(),
    };
    let mut commits = 0u64;
    let reader = &mut salvage.offline.reader;
    let merged = read_logs(reader, checkpoint, logs, |reader, _, _, record| {
        commits += 1;
        let told = commits.is_multiple_of(TOLD_EVERY);
        if told && progress(RepairStep::Replay, commits, 0).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        record.operations().try_for_each(|operation| tables.apply(reader, operation))?;
        Ok(ControlFlow::Continue(()))
    });
    for (tree, key) in std::mem::take(&mut tables.missing) {
        if tables.saved.contains_key(&tree) {
            note_large(tables.of(tree)?.1, key);
        }
    }
    let merged = match merged {
        Ok(Some(merged)) => merged,
        Ok(None) => return Err(interrupted()),
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            salvage.report.remarks.push(error.context().to_owned());
            salvage.report.log = Some(RepairedLog { damaged: true, ..RepairedLog::default() });
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let (unreadable, merged) = (merged.unreadable, merged.end);
    salvage.report.log = Some(RepairedLog {
        commits: merged.taken,
        last_timestamp: merged.next_timestamp - 1,
        dropped: merged.dropped,
        damaged: merged.is_damaged() || unreadable,
    });
    Ok(())
}
