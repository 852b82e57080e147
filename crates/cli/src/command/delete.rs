//! `qpair delete`.

use std::ffi::OsString;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use qpair::ErrorKind;

use crate::failure::{Exit, Failure, Result};
use crate::interrupt::{Interrupt, interrupted};
use crate::parse::key::KeyArgs;
use crate::parse::store::{Effort, StoreArgs, TableArgs};
use crate::show::output::say;
use crate::show::text::{counted, escape};

/// Remove a record, or all records of a range
///
/// When the command returns, the change survives power loss. A range is removed in parts, each of
/// them completely or not at all.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair delete users.qpair ada
  qpair delete users.qpair --prefix session:
  qpair delete users.qpair --from 2024 --to 2025
  qpair delete users.qpair --table sessions --force

The exit code is 1 if the key did not exist; an empty range is no error. An interrupted command prints how many \
records it removed.")]
pub(crate) struct Delete {
    #[command(flatten)]
    store: StoreArgs,

    /// Key
    #[arg(required_unless_present_any = ["prefix", "from", "to", "force"])]
    key: Option<OsString>,

    /// Remove all keys with this prefix
    #[arg(long, value_name = "KEY", conflicts_with_all = ["key", "from", "to"])]
    prefix: Option<OsString>,

    /// Remove this key and all keys after it
    #[arg(long, value_name = "KEY", conflicts_with = "key")]
    from: Option<OsString>,

    /// Remove all keys before this one
    #[arg(long, value_name = "KEY", conflicts_with = "key")]
    to: Option<OsString>,

    /// Remove every record of the table
    #[arg(long, conflicts_with = "key")]
    force: bool,

    #[command(flatten)]
    table: TableArgs,

    #[command(flatten)]
    keys: KeyArgs,
}

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
        // Look the key up first, so that a store without changes is not written.
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
        Err(Failure::new(Exit::Negative, format!("the key {} does not exist", escape(key))))
    }

    fn range(&self) -> Result<Exit> {
        let (from, to) =
            self.keys.bounds(self.prefix.as_ref(), self.from.as_ref(), self.to.as_ref())?;
        let has_first = match &from {
            Bound::Included(key) => key.is_empty(),
            Bound::Excluded(_) => false,
            Bound::Unbounded => true,
        };
        if to == Bound::Unbounded && has_first && !self.force {
            let table = escape(self.table.table.as_bytes());
            let message = format!("this range has every key: table {table} would be empty");
            return Err(Failure::usage(message).hint("if that is meant, give --force"));
        }
        let interrupt = Interrupt::install()?;
        let (store, _) = self.store.open_to_write(Effort::Large, None, None)?;
        let table = self.table.existing(&store)?;
        let counted_up = Arc::new(AtomicU64::new(0));
        let count = counted_up.clone();
        let outcome = table.delete_range_with((from, to), move |removed| {
            count.store(removed, Ordering::Relaxed);
            interrupt.flow()
        });
        drop(table);
        let closed = store.close();
        let removed = counted(counted_up.load(Ordering::Relaxed), "record");
        let whole = match outcome {
            Err(error) if error.kind() == ErrorKind::Interrupted => closed.map(|()| false),
            outcome => outcome.and_then(|_| closed.map(|()| true)),
        };
        let whole = whole
            .map_err(|error| Failure::from(error).and(format!("removed {removed} before that")))?;
        say(format!("removed {removed}"))?;
        if whole { Ok(Exit::Done) } else { interrupted("the store was closed") }
    }
}
