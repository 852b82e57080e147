//! `qpair rename`.

use clap::Args;
use qpair::ErrorKind;

use crate::failure::{Exit, Failure, Result};
use crate::parse::store::{Effort, StoreArgs};
use crate::show::text::escape;

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

    /// New name of the table
    new_name: String,
}

impl Rename {
    pub(crate) fn run(self) -> Result<Exit> {
        let (store, _) = self.store.open_to_write(Effort::Small, None, None)?;
        let renamed = store.rename_table(&self.table, &self.new_name);
        let closed = store.close();
        let (why, name) = match renamed {
            Ok(()) => return closed.map(|()| Exit::Done).map_err(Failure::from),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => ("no such table", &self.table),
                ErrorKind::Exists => ("there is a table of this name", &self.new_name),
                _ => return Err(error.into()),
            },
        };
        closed?;
        Err(Failure::new(Exit::Negative, format!("{why}: {}", escape(name.as_bytes()))))
    }
}
