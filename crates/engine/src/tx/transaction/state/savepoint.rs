//! Savepoints.

use std::sync::Arc;

use qpair_format::{Error, ErrorKind, Result};

use super::TxState;
use crate::tx::transaction::write_set::WriteMark;

/// A point in a transaction to which it can be rolled back.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let mut tx = store.begin();
/// tx.put(&table, b"kept", b"1")?;
/// let savepoint = tx.savepoint()?;
/// tx.put(&table, b"not kept", b"2")?;
/// tx.rollback_to(&savepoint)?;
/// tx.commit()?;
/// assert!(table.contains_key(b"kept")? && !table.contains_key(b"not kept")?);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// The store, and the transaction in it, that the savepoint belongs to.
    store: usize,
    owner: u64,
    writes: WriteMark,
    /// The number of large values that were written before the savepoint.
    large: u32,
}

impl TxState {
    pub(crate) fn savepoint(&mut self) -> Savepoint {
        let (store, large) = (self.store_number(), self.large.len() as u32);
        Savepoint { store, owner: self.id, writes: self.writes.mark(), large }
    }

    /// Returns a number that identifies the store, since ids of transactions are unique only within
    /// a store.
    fn store_number(&self) -> usize {
        Arc::as_ptr(&self.tx).addr()
    }

    pub(crate) fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        if let Some(doomed) = &self.doomed {
            return Err(doomed.clone());
        }
        if (savepoint.store, savepoint.owner) != (self.store_number(), self.id)
            || !self.rollback_writes_to(&savepoint.writes)
        {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the transaction does not have this savepoint, or has dropped it",
            ));
        }
        // Earlier writes refer only to large values that were written before the savepoint.
        self.large.truncate(savepoint.large as usize);
        self.note_size();
        Ok(())
    }
}
