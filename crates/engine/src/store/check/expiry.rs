//! Each record that expires must have its entry in the index of expiry times, or it would stay for
//! ever. Entries without a record are as they should be: they are removed when they are due.

use qpair_format::Result;
use qpair_format::shown::shown;

use super::super::{Store, Table};

/// The number of faults that are listed for a table.
const FAULTS_MAX: usize = 100;

/// Returns the faults of the tables whose records expire. Call it only where the walk has found no
/// fault.
pub(super) fn faults(store: &Store) -> Result<Vec<String>> {
    let (inner, mut faults) = (&store.inner, Vec::new());
    if inner.shared.expiry.index().is_none() {
        return Ok(faults);
    }
    for name in store.table_names()? {
        let Some(table) = store.existing_table(&name)? else { continue };
        if table.options().codec().expires() {
            let of_table = faults_of(&table.stored())?;
            faults.extend(of_table.into_iter().map(|fault| format!("table {name}: {fault}")));
        }
    }
    Ok(faults)
}

fn faults_of(table: &Table) -> Result<Vec<String>> {
    let (inner, mut faults, mut missing) = (table.inner(), Vec::new(), 0usize);
    for record in table.iter() {
        let (key, stored) = record?;
        let fault = match inner.shared.expiry_entry(table.tree(), &key, &stored) {
            Ok(Some((index, entry))) => {
                let index = Table::new(inner.clone(), index);
                let what = || {
                    format!("the record {} has no entry in the index of expiry times", shown(&key))
                };
                (!index.contains_key(&entry)?).then(what)
            }
            Ok(None) => None,
            Err(error) => Some(format!("record {}: {error}", shown(&key))),
        };
        let Some(fault) = fault else { continue };
        missing += 1;
        if faults.len() < FAULTS_MAX {
            faults.push(fault);
        }
    }
    if missing > faults.len() {
        faults.push(format!("and {} more records", missing - faults.len()));
    }
    Ok(faults)
}
