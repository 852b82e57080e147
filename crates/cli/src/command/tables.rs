//! `qpair tables`.

use clap::Args;
use serde_json::Value;

use crate::failure::{Exit, Result};
use crate::parse::store::{Effort, StoreArgs};
use crate::show::output::{print, say};
use crate::show::text::escape;

/// List a store's tables
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  qpair tables files.qpair")]
pub(crate) struct Tables {
    #[command(flatten)]
    store: StoreArgs,

    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

impl Tables {
    pub(crate) fn run(self) -> Result<Exit> {
        let (store, _) = self.store.open_to_read(Effort::Small)?;
        let names = store.table_names()?;
        store.close()?;
        match self.json {
            true => say(Value::from(names).to_string())?,
            false => print(names.iter().map(|name| escape(name.as_bytes())))?,
        }
        Ok(Exit::Done)
    }
}
