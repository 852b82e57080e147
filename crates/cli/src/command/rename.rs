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
        let shown = |name: &str| escape(name.as_bytes());
        let renamed = store.rename_table(&self.table, &self.new_name);
        let closed = store.close();
        let why = match renamed {
            Ok(()) => return closed.map(|()| Exit::Done).map_err(Failure::from),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => format!("the table {} does not exist", shown(&self.table)),
                ErrorKind::Exists => format!("the table {} exists already", shown(&self.new_name)),
                _ => return Err(error.into()),
            },
        };
        closed?;
        Err(Failure::new(Exit::Negative, why))
    }
}
