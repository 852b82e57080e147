//! `qpair rename`.

use clap::Args;
use qpair::Store;

use crate::failure::{Exit, Failure, Result};
use crate::store_args::{Effort, StoreArgs};
use crate::text::escape;

/// Give a table another name
///
/// The records stay where they are. On return the change survives power loss.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  qpair rename users.qpair sessions old-sessions

Exit code 1 if there was no such table, or a table of the new name.")]
pub(crate) struct Rename {
    #[command(flatten)]
    store: StoreArgs,

    /// Table
    table: String,

    /// Its new name
    new_name: String,
}

impl Rename {
    pub(crate) fn run(self) -> Result<Exit> {
        let (store, _) = self.store.open_to_write(Effort::Small, None, None)?;
        let refused = self.rename(&store);
        let closed = store.close();
        let refused = refused?;
        closed?;
        match refused {
            None => Ok(Exit::Done),
            Some((why, name)) => {
                Err(Failure::new(Exit::Negative, format!("{why}: {}", escape(name.as_bytes()))))
            }
        }
    }

    /// Renames the table; or why not, and the name that says so. A store in which nothing changes stays as it is.
    fn rename(&self, store: &Store) -> qpair::Result<Option<(&'static str, &str)>> {
        if store.existing_table(&self.table)?.is_none() {
            return Ok(Some(("no such table", &self.table)));
        }
        if store.existing_table(&self.new_name)?.is_some() {
            return Ok(Some(("there is a table of this name", &self.new_name)));
        }
        store.rename_table(&self.table, &self.new_name).map(|()| None)
    }
}
