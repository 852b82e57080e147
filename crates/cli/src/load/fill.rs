//! Loads the records of a reader into a table, and ends a load.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use qpair::{Compression, Store, TableOptions};

use super::gather::{Gather, Hints, Limits, Skipped};
use super::progress::Progress;
use super::puts::{Loaded, put_all};
use super::record::ReadRecord;
use super::sorted::load_sorted;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;

const TASKS_PER_WORKER: usize = 64;

/// How records are loaded, and where they come from.
pub(crate) struct Fill<'a> {
    pub(crate) store: &'a Store,
    pub(crate) input_name: String,
    pub(crate) read_bytes: Arc<AtomicU64>,
    /// How a missing table compresses its values.
    pub(crate) compression: Option<Compression>,
    /// The time to live of the records of a missing table.
    pub(crate) ttl: Option<Duration>,
    pub(crate) empty_key: bool,
    pub(crate) skip_bad: bool,
    pub(crate) hints: Hints,
    pub(crate) interrupt: Interrupt,
    pub(crate) progress: &'a Progress,
}

/// The result of loading one table.
pub(crate) struct Filled {
    pub(crate) loaded: Loaded,
    pub(crate) skipped: Skipped,
    /// Whether the table was empty, and was built from sorted records.
    pub(crate) is_bulk: bool,
}

impl Fill<'_> {
    /// Loads all records of the reader into the table, which is created if it is missing.
    pub(crate) fn table(
        &self,
        name: &str,
        reader: Box<dyn ReadRecord>,
        sorted: bool,
    ) -> Result<Filled> {
        let limits = Limits {
            key_len_max: self.store.key_len_max(),
            empty_key: self.empty_key,
            skip_bad: self.skip_bad,
            sorted,
            lanes: if sorted { 1 } else { TASKS_PER_WORKER * self.store.workers() },
            hints: self.hints,
        };
        let (input, bytes) = (self.input_name.clone(), self.read_bytes.clone());
        let gather = Gather::start(reader, input, bytes, limits, self.interrupt.clone())?;
        let skipped = gather.skipped();
        let table = match (self.compression, self.ttl) {
            (compression, Some(ttl)) => {
                let compression = compression.unwrap_or_default();
                let options = TableOptions::default().compression(compression).ttl(ttl);
                self.store.table_with(name, &options)?
            }
            (Some(compression), None) => self.store.compressed_table(name, compression)?,
            (None, None) => self.store.table(name)?,
        };
        let is_bulk = sorted && table.is_empty()?;
        let loaded = match is_bulk {
            true => load_sorted(&table, gather, self.progress),
            false => put_all(self.store, &table, gather, self.progress),
        };
        let skipped = std::mem::take(&mut *skipped.lock());
        Ok(Filled { loaded, skipped, is_bulk })
    }
}

/// Ends a load: returns its failure, or that of closing the store.
pub(crate) fn finish(
    mut loaded: Loaded,
    closed: qpair::Result<()>,
    store: &Path,
) -> Result<Loaded> {
    if let Some(failure) = loaded.failure.take() {
        let kept = match closed {
            Ok(()) => loaded.kept(),
            Err(error) => format!("closing the store failed too: {error}"),
        };
        return Err(failure.and(kept).with_room(store));
    }
    closed.map_err(|error| Failure::from(error).context("closing the store").with_room(store))?;
    Ok(loaded)
}
