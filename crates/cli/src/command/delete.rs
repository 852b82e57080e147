//! `qpair delete`.

use std::ffi::OsString;

use clap::Args;

use crate::failure::{Exit, Failure, Result};
use crate::key::KeyArgs;
use crate::store_args::{Effort, StoreArgs, TableArgs};
use crate::text::escape;

/// Remove a record
///
/// On return the change survives power loss.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  qpair delete users.qpair ada

Exit code 1 if there was no such key.")]
pub(crate) struct Delete {
    #[command(flatten)]
    store: StoreArgs,

    /// Key
    key: OsString,

    #[command(flatten)]
    table: TableArgs,

    #[command(flatten)]
    keys: KeyArgs,
}

impl Delete {
    pub(crate) fn run(self) -> Result<Exit> {
        let key = self.keys.decode(&self.key)?;
        let (store, _) = self.store.open_to_write(Effort::Small, None)?;
        let table = self.table.existing(&store)?;
        // Looked up first: a store in which nothing changes stays as it is.
        let found = match table.get(&key) {
            Ok(Some(_)) => table.delete(&key),
            other => other.map(|_| false),
        };
        let closed = store.close();
        let found = found?;
        closed?;
        if found {
            return Ok(Exit::Done);
        }
        Err(Failure::new(Exit::Negative, format!("no such key: {}", escape(&key))))
    }
}
