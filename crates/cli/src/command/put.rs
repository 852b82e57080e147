//! `qpair put`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use qpair::{TableOptions, VALUE_LEN_MAX};

use crate::failure::{Exit, Failure, Result};
use crate::parse::key::{EMPTY_KEY, KeyArgs};
use crate::parse::number::parse_ttl;
use crate::parse::store::{CreateArgs, Effort, LogArgs, StoreArgs, TableArgs};

/// Insert or replace a record
///
/// A missing store or table is created. When the command returns, the record survives power loss.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair put users.qpair ada 'Ada Lovelace'
  qpair put images.qpair logo --value-file logo.png
  uname -a | qpair put machines.qpair \"$(hostname)\" -")]
pub(crate) struct Put {
    #[command(flatten)]
    store: StoreArgs,

    /// Key
    key: OsString,

    /// Value; - reads it from standard input
    #[arg(required_unless_present = "value_file")]
    value: Option<OsString>,

    /// Accept an empty key
    #[arg(long)]
    empty_key: bool,

    /// Make a new table with a time to live, as 30s, 15m, 12h or 7d: records expire so long after
    /// they were put last
    #[arg(long, value_name = "TIME", value_parser = parse_ttl)]
    ttl: Option<Duration>,

    /// Read the value from a file
    #[arg(long, value_name = "PATH", conflicts_with = "value")]
    value_file: Option<PathBuf>,

    #[command(flatten)]
    table: TableArgs,

    #[command(flatten)]
    keys: KeyArgs,

    #[command(flatten)]
    log: LogArgs,

    #[command(flatten)]
    create: CreateArgs,
}

impl Put {
    pub(crate) fn run(self) -> Result<Exit> {
        let key = self.keys.decode(&self.key)?;
        if key.is_empty() && !self.empty_key {
            return Err(Failure::usage(EMPTY_KEY));
        }
        let value = match (self.value, self.value_file) {
            (_, Some(path)) => {
                let name = path.display().to_string();
                let file = File::open(&path).map_err(Failure::at("opening", &path))?;
                read_value(file, &name)?
            }
            (Some(value), None) if value == "-" => {
                read_value(io::stdin().lock(), "standard input")?
            }
            (value, None) => value.unwrap_or_default().into_vec(),
        };
        let (store, _) =
            self.store.open_to_write(Effort::Small, Some(&self.create), Some(&self.log))?;
        let table = match self.ttl {
            Some(ttl) => store.table_with(&self.table.table, &TableOptions::default().ttl(ttl)),
            None => store.table(&self.table.table),
        };
        let outcome = table.and_then(|table| table.put(&key, &value));
        // Close the store first, so that a refused record leaves it closed.
        let closed = store.close();
        let with_room = |error| Failure::from(error).with_room(&self.store.store);
        outcome.map_err(with_room)?;
        closed.map_err(with_room)?;
        Ok(Exit::Done)
    }
}

/// Reads the whole value, or one byte more than the maximum length of a value.
fn read_value(input: impl Read, name: &str) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    input
        .take(VALUE_LEN_MAX as u64 + 1)
        .read_to_end(&mut value)
        .map_err(|error| Failure::io(&error, format!("reading {name}")))?;
    if value.len() > VALUE_LEN_MAX {
        let message = format!("the value in {name} has more than {VALUE_LEN_MAX} bytes");
        return Err(Failure::new(Exit::Failed, message).hint("values have up to 16 MiB; split it"));
    }
    Ok(value)
}
