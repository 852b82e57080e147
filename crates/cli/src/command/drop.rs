//! `qpair drop`.

use clap::Args;

use crate::failure::{Exit, Failure, Result};
use crate::parse::store::{Effort, StoreArgs};
use crate::show::text::escape;

/// Remove a table with all its records
///
/// When the command returns, the change survives power loss.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  qpair drop users.qpair sessions

Exit code 1 if there was no such table.")]
pub(crate) struct Drop {
    #[command(flatten)]
    store: StoreArgs,

    /// Table
    table: String,
}

impl Drop {
    pub(crate) fn run(self) -> Result<Exit> {
        let (store, _) = self.store.open_to_write(Effort::Small, None, None)?;
        // Look the table up first, so that a store without changes is not written.
        let found = store.existing_table(&self.table).map(|table| table.is_some());
        let dropped = match found {
            Ok(true) => store.drop_table(&self.table).map(|()| true),
            other => other,
        };
        let closed = store.close();
        let dropped = dropped?;
        closed?;
        if dropped {
            return Ok(Exit::Done);
        }
        Err(Failure::new(
            Exit::Negative,
            format!("the table {} does not exist", escape(self.table.as_bytes())),
        ))
    }
}
