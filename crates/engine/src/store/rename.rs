//! Renaming of tables: one commit changes two records of the catalog, and leaves the table's tree
//! unchanged.

use qpair_format::catalog::decode;
use qpair_format::log::Operation;
use qpair_format::{Error, ErrorKind, Result};

use super::catalog::no_table;
use super::{Store, StoreInner, Table};
use crate::checkpoint::SpaceRetry;
use crate::task::{Worker, refuse_on_worker};

impl Store {
    /// Renames a table. On return the rename is durable; after a crash before that, the table has
    /// its old name or its new one. The time does not depend on the number of records. Handles of
    /// the table, transactions and snapshots stay valid, and errors have the new name from then on.
    ///
    /// ```
    /// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
    /// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
    /// # let store = qpair_engine::Store::open(vec![device], &options)?;
    /// let users = store.table("users")?;
    /// users.put(b"ada", b"1815")?;
    /// store.rename_table("users", "people")?;
    /// assert_eq!(store.table_names()?, ["people"]);
    /// assert_eq!(users.get(b"ada")?, store.table("people")?.get(b"ada")?);
    /// # store.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound` if there is no table of the old name; `Exists` if there is one of the new name,
    /// also if both names are the same; `Invalid` for a name that no table can have
    /// ([`Store::table`]), and on a worker; `ReadOnly`; and errors of the device.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        refuse_on_worker()?;
        self.check_table_name(from)?;
        self.check_table_name(to)?;
        if self.inner.shared.lifecycle.has_ended() {
            return Err(Error::closed());
        }
        let _alone = self.inner.begin_changing_tables()?;
        let catalog = Table::new(self.inner.clone(), self.inner.catalog()?);
        let id = decode(&catalog.get(from.as_bytes())?.ok_or_else(|| no_table(from))?)?;
        if catalog.contains_key(to.as_bytes())? {
            let what = format!("there is a table {to} already");
            return Err(Error::new(ErrorKind::Exists, what));
        }
        self.inner.incarnation.note_renames()?;
        let (inner, old, new) = (self.inner.clone(), from.to_owned(), to.to_owned());
        let durable = self.inner.block_on(move || async move {
            let timestamp = SpaceRetry::tried(&inner.shared, async || {
                let mut inside = inner.incarnation.begin_commit().await?;
                let operation = Operation::RenameTable { tree: id, name: &new };
                let names = [(&*new, Some(id)), (&*old, None)];
                inner.define(&mut inside, operation, &names, None).await
            })
            .await?;
            Ok(Worker::wait_durable(timestamp).await)
        })?;
        // The table has the new name even if that did not become durable; the store is read-only
        // then.
        self.inner.note_renamed(id, to);
        durable
    }
}

impl StoreInner {
    /// Notes the new name of a table that is open, which is then found only under this name.
    fn note_renamed(&self, id: u32, name: &str) {
        let mut tables = self.tables.lock();
        for (known, _) in tables.iter_mut().filter(|(_, tree)| tree.id == id) {
            name.clone_into(known);
            self.tx.names.add(id, name);
        }
    }
}
