//! Groups of records with long keys: each must be complete and in order. Only stores whose
//! superblocks say that there are groups are read again for them.

use std::ops::Bound;

use qpair_format::Result;
use qpair_format::group::{Records, fault};
use qpair_format::shown::shown;

use super::super::{Store, Table};
use super::CheckReport;

/// The number of faults that are listed for a table.
const FAULTS_MAX: usize = 100;

/// Adds the faults of groups to the report, and counts their records. Call it only where the walk
/// has found no fault.
pub(super) fn check(store: &Store, report: &mut CheckReport) -> Result<()> {
    if !store.inner.incarnation.superblock.lock().long_keys {
        return Ok(());
    }
    for name in store.table_names()? {
        let Some(table) = store.existing_table(&name)? else { continue };
        let mut records = 0;
        for fault in faults_of(&table, &mut records)? {
            report.faults.push(format!("table {name}: {fault}"));
        }
        if let Some(entry) = report.tables.iter_mut().find(|entry| entry.name == name) {
            entry.records += records;
        }
    }
    Ok(())
}

/// Returns the faults of a table's groups. Adds the number of their records to `more`, less one
/// for each group.
fn faults_of(table: &Table, more: &mut u64) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let groups = Table::new(table.inner().clone(), table.tree().with_groups());
    for record in groups.range((Bound::<&[u8]>::Unbounded, Bound::Unbounded))? {
        let (key, group) = record?;
        if !table.tree().is_long(&key) {
            continue;
        }
        match fault(&key, &group) {
            None => *more += Records::of(&group)?.count().saturating_sub(1) as u64,
            Some(_) if faults.len() >= FAULTS_MAX => {}
            Some(fault) => faults.push(format!(
                "the group of the long keys that begin with {} is damaged: {fault}",
                shown(&key[..key.len() - 1])
            )),
        }
    }
    Ok(faults)
}
