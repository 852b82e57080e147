//! `qpair delete`.

use std::ffi::OsString;
use std::ops::Bound;

use clap::Args;
use qpair::Table;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::Interrupt;
use crate::key::{KeyArgs, end_of_prefix};
use crate::output::Output;
use crate::store_args::{Effort, StoreArgs, TableArgs};
use crate::text::{counted, escape};

/// Remove a record, or all records of a range
///
/// On return the change survives power loss. A range is removed in parts, each of which is there in full or not at all.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair delete users.qpair ada
  qpair delete users.qpair --prefix session:
  qpair delete users.qpair --from 2024 --to 2025

Exit code 1 if there was no such key. A range may be empty. Whoever interrupts it is told how many records were removed.")]
pub(crate) struct Delete {
    #[command(flatten)]
    store: StoreArgs,

    /// Key
    #[arg(required_unless_present_any = ["prefix", "from", "to"])]
    key: Option<OsString>,

    /// All keys that begin so
    #[arg(long, value_name = "KEY", conflicts_with_all = ["key", "from", "to"])]
    prefix: Option<OsString>,

    /// This key and all after it
    #[arg(long, value_name = "KEY", conflicts_with = "key")]
    from: Option<OsString>,

    /// All keys before this one
    #[arg(long, value_name = "KEY", conflicts_with = "key")]
    to: Option<OsString>,

    #[command(flatten)]
    table: TableArgs,

    #[command(flatten)]
    keys: KeyArgs,
}

/// Records between two looks whether the command was interrupted.
const PART_RECORDS: usize = 10_000;

impl Delete {
    pub(crate) fn run(self) -> Result<Exit> {
        match &self.key {
            Some(key) => self.one(&self.keys.decode(key)?),
            None => self.range(),
        }
    }

    fn one(&self, key: &[u8]) -> Result<Exit> {
        let (store, _) = self.store.open_to_write(Effort::Small, None, None)?;
        let table = self.table.existing(&store)?;
        // Looked up first: a store in which nothing changes stays as it is.
        let found = match table.get(key) {
            Ok(Some(_)) => table.delete(key),
            other => other.map(|_| false),
        };
        let closed = store.close();
        let found = found?;
        closed?;
        if found {
            return Ok(Exit::Done);
        }
        Err(Failure::new(Exit::Negative, format!("no such key: {}", escape(key))))
    }

    fn range(&self) -> Result<Exit> {
        let (from, to) = match self.keys.decode_option(self.prefix.as_ref())? {
            Some(prefix) => (Some(prefix.clone()), end_of_prefix(&prefix)),
            None => (
                self.keys.decode_option(self.from.as_ref())?,
                self.keys.decode_option(self.to.as_ref())?,
            ),
        };
        let from = from.map_or(Bound::Unbounded, Bound::Included);
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        let interrupt = Interrupt::install()?;
        let (store, _) = self.store.open_to_write(Effort::Large, None, None)?;
        let table = self.table.existing(&store)?;
        let mut removed = 0;
        let outcome = remove(&table, from, &to, &interrupt, &mut removed);
        drop(table);
        let closed = store.close();
        let whole = outcome.and_then(|whole| closed.map(|()| whole)).map_err(|error| {
            Failure::from(error).and(format!("removed {} before that", counted(removed, "record")))
        })?;
        let mut out = Output::new();
        out.line(format!("removed {}", counted(removed, "record")))?;
        out.finish()?;
        if whole {
            return Ok(Exit::Done);
        }
        eprintln!("qpair: interrupted; the store was closed");
        Ok(Exit::Interrupted)
    }
}

/// Removes the records of a range, part by part; whether all of them, or it was interrupted.
fn remove(
    table: &Table,
    mut from: Bound<Vec<u8>>,
    to: &Bound<Vec<u8>>,
    interrupt: &Interrupt,
    removed: &mut u64,
) -> qpair::Result<bool> {
    while !interrupt.is_requested() {
        let bounds = (as_slice(&from), as_slice(to));
        let behind = table.range::<[u8], _>(bounds)?.nth(PART_RECORDS).transpose()?;
        let Some((next, _)) = behind else {
            *removed += table.delete_range::<[u8], _>(bounds)?;
            return Ok(true);
        };
        *removed += table.delete_range::<[u8], _>((bounds.0, Bound::Excluded(&next[..])))?;
        from = Bound::Included(next);
    }
    Ok(false)
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}
