//! The state machine: the application's records, and the position up to which the log is applied.
//! Both change in one transaction.

use crate::codec::encode;
use crate::group::{Data, Group, key};
use qpair::transaction::TransactionRange;
use qpair::{KeyBounds, Result, Table, Transaction};
use serde::Serialize;

/// The effect of log entries on the state.
///
/// `E` is the type of entries, and `R` that of the responses.
pub trait Application<E, R>: Send + Sync + 'static {
    /// Applies one entry of any payload, also a blank one and a membership, which only need a
    /// response. Must do the same on each member: no clocks, no random numbers.
    ///
    /// The entry's changes become visible together with the position in the log. Reads that need
    /// the device block the thread.
    ///
    /// # Errors
    /// Any error ends the member; a request that is refused is a response.
    fn apply(&self, state: &mut State<'_>, entry: &E) -> Result<R>;
}

/// The records of the state, while entries are applied.
#[derive(Debug)]
pub struct State<'t> {
    transaction: &'t mut Transaction,
    table: &'t Table,
}

impl State<'_> {
    /// The value of a key.
    ///
    /// # Errors
    /// Those of the store.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.transaction.get(self.table, key)
    }

    /// Inserts or replaces a record.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`, `TooLarge`, and those of the store.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.transaction.put(self.table, key, value)
    }

    /// Removes a record; returns whether there was one.
    ///
    /// # Errors
    /// Those of the store.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.transaction.delete(self.table, key)
    }

    /// Removes all records of a range; returns how many there were.
    ///
    /// # Errors
    /// Those of the store.
    pub fn delete_range(&mut self, range: impl KeyBounds) -> Result<u64> {
        self.transaction.delete_range(self.table, range)
    }

    /// The records of a range, in order.
    ///
    /// # Errors
    /// Those of the store.
    pub fn range(&mut self, range: impl KeyBounds) -> Result<TransactionRange<'_>> {
        self.transaction.range(self.table, range)
    }
}

/// The state as of one moment: that of some applied entry, whatever is applied meanwhile.
#[derive(Debug)]
pub struct Reader {
    transaction: Transaction,
    data: Data,
}

impl Reader {
    /// The value of a key.
    ///
    /// # Errors
    /// Those of the store.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.transaction.get(&self.data.table, key)
    }

    /// The records of a range, in order.
    ///
    /// # Errors
    /// Those of the store.
    pub fn range(&mut self, range: impl KeyBounds) -> Result<TransactionRange<'_>> {
        self.transaction.range(&self.data.table, range)
    }
}

impl Group {
    /// Returns a view of the state. A read is linearizable if openraft has confirmed the leader
    /// before the call. Does not wait for the device: what is applied is committed by a quorum.
    pub fn reader(&self) -> Reader {
        Reader { data: self.data(), transaction: self.begin_read() }
    }

    /// Applies entries, of which each may have a membership. The commit is not waited for: after a
    /// crash openraft applies again what is committed behind the position.
    pub(crate) async fn apply_entries<E, R, M: Serialize, P: Serialize>(
        &self,
        application: &impl Application<E, R>,
        entries: &[E],
        describe: impl Fn(&E) -> (P, Option<M>),
    ) -> Result<Vec<R>> {
        let mut responses = Vec::with_capacity(entries.len());
        let data = self.data();
        let mut transaction = self.begin();
        let mut applied = None;
        let mut membership = None;
        for entry in entries {
            let mut state = State { transaction: &mut transaction, table: &data.table };
            responses.push(application.apply(&mut state, entry)?);
            let (position, changed) = describe(entry);
            applied = Some(position);
            membership = changed.or(membership);
        }
        if let Some(applied) = applied {
            transaction.put(self.positions(), key::APPLIED, &encode("the position", &applied)?)?;
        }
        if let Some(membership) = membership {
            let bytes = encode("the membership", &membership)?;
            transaction.put(self.positions(), key::MEMBERSHIP, &bytes)?;
        }
        transaction.commit_async().await?;
        Ok(responses)
    }
}
