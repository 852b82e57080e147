//! `qpair get`.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Map, Value};

use crate::failure::{Exit, Failure, Result};
use crate::parse::key::KeyArgs;
use crate::parse::store::{Effort, StoreArgs, TableArgs};
use crate::show::output::{Output, hex, insert_bytes};
use crate::show::text::escape;

/// Print the value of a key
///
/// The bytes are printed unchanged; on a terminal, an end of line is added.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair get files.qpair /usr/bin/env
  qpair get images.qpair logo > logo.png
  qpair get numbers.qpair --key-hex 0000002a --hex

Exit code 1 if there is no such key.")]
pub(crate) struct Get {
    #[command(flatten)]
    store: StoreArgs,

    /// Key
    key: OsString,

    #[command(flatten)]
    table: TableArgs,

    #[command(flatten)]
    keys: KeyArgs,

    /// Print the value as hexadecimal digits
    #[arg(long, conflicts_with = "json")]
    hex: bool,

    /// Print key and value as a JSON object
    #[arg(long)]
    json: bool,
}

impl Get {
    pub(crate) fn run(self) -> Result<Exit> {
        let key = self.keys.decode(&self.key)?;
        let (store, _) = self.store.open_to_read(Effort::Small)?;
        let Some(value) = self.table.existing(&store)?.get(&key)? else {
            return Err(Failure::new(
                Exit::Negative,
                format!("the key {} does not exist", escape(&key)),
            ));
        };
        store.close()?;
        let mut out = Output::new();
        if self.json {
            let mut object = Map::new();
            insert_bytes(&mut object, "key", &key);
            insert_bytes(&mut object, "value", &value);
            out.line(Value::from(object).to_string())?;
        } else if self.hex {
            out.line(hex(&value))?;
        } else {
            out.write(&value)?;
            if Output::is_terminal() && !value.ends_with(b"\n") {
                out.write(b"\n")?;
            }
        }
        out.finish()?;
        Ok(Exit::Done)
    }
}
