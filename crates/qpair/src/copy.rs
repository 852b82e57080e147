//! Copies an open store into a new one, table by table. The new store may have another page size.
//!
//! - The new store can be used only once it is complete: until it is closed, its superblock says
//!   that it is unfinished.
//! - Each table is read in the order of its keys, and loaded sorted: pages are written once, full.

use std::cell::Cell;
use std::ops::ControlFlow;

use qpair_engine::{Compression, Error, ErrorKind, Result, Store};

use crate::members::Members;
use crate::options::Options;

/// The number of records between two reports of progress.
const TELL_EVERY: u64 = 1024;

/// The result of copying a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReport {
    /// The number of copied tables.
    pub tables: u64,
    /// The number of copied records.
    pub records: u64,
    /// The page size of the new store, in bytes.
    pub page_size: usize,
    /// The identity of the new store, in hexadecimal digits.
    pub id: String,
}

impl Options {
    /// Copies all tables of an open store, in their present state, into a new store on these
    /// members. The new store may have another page size ([`Options::page_size`]) and other
    /// members. `progress` is called with the number of records copied and an estimate of the
    /// total, and may stop the copy. Each table is copied as of one moment. All tables are of the
    /// same moment only if no writer is active meanwhile. The members must not exist yet, except
    /// for blank block devices.
    ///
    /// # Errors
    /// `Exists` if a member is an existing file or is not blank; `KeyTooLong` if a key of a table
    /// with a time to live does not fit pages of the new size; `Interrupted` if `progress` stopped
    /// the copy; and the errors of [`Options::open`]. After an error the members hold no store, and
    /// files that this call created are removed.
    pub fn copy_of(
        self,
        store: &Store,
        progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
    ) -> Result<CopyReport> {
        let page_size = self.store.page_size;
        let (id, (tables, records)) =
            self.fill_new("copy", &|target| fill(target, store, progress))?;
        Ok(CopyReport { tables, records, page_size, id })
    }

    /// Makes a new store on these members, which must not exist yet, and fills it with `fill`;
    /// returns the store's identity. After an error the members hold no store, and files that this
    /// call created are removed. `made` names the store in errors.
    pub(crate) fn fill_new<T>(
        self,
        made: &str,
        fill: &dyn Fn(&Store) -> Result<T>,
    ) -> Result<(String, T)> {
        let mut options = self.format(true);
        // The store becomes durable when it is closed, and is not used before.
        options.store.log = false;
        options.store.whole_when_closed = true;
        let members = Members::of(&options)?;
        let new_files = members.missing();
        let is_there = |path: &&std::path::Path| path.is_file();
        if let Some(path) = members.paths().into_iter().find(is_there) {
            return Err(Error::with_hint(
                ErrorKind::Exists,
                format!("{} exists already", path.display()),
                format!("name a file for the {made} that is not there"),
            ));
        }
        let filled = options.make_and_fill(fill);
        if filled.is_err() {
            for path in new_files {
                // Report the earlier error, not this one.
                let _ = std::fs::remove_file(path);
            }
        }
        filled
    }

    fn make_and_fill<T>(self, fill: &dyn Fn(&Store) -> Result<T>) -> Result<(String, T)> {
        let target = self.open()?;
        match fill(&target) {
            Ok(filled) => {
                let id = target.report().id;
                target.close()?;
                Ok((id, filled))
            }
            Err(error) => {
                // A close must not mark the new store as complete, because it has only a part of
                // the records.
                target.fail(error.clone());
                Err(error)
            }
        }
    }
}

/// Copies all tables. Returns the number of tables and records.
fn fill(
    target: &Store,
    store: &Store,
    progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
) -> Result<(u64, u64)> {
    let names = store.table_names()?;
    let mut estimate = 0;
    for name in &names {
        if let Some(table) = store.existing_table(name)? {
            estimate += table.statistics()?.records;
        }
    }
    let done = Cell::new(0u64);
    let broken_off = || Error::new(ErrorKind::Interrupted, "the copy was interrupted");
    let tell = |done: u64| match progress(done, estimate.max(done)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(broken_off()),
    };
    let mut tables = 0;
    for name in &names {
        // A table that was dropped meanwhile is skipped.
        let Some(table) = store.existing_table(name)? else { continue };
        // Pages of other sizes have other groups of records with long keys. Tables whose records
        // expire have no groups.
        let same_groups = store.whole_key_len_max() == target.whole_key_len_max();
        let as_stored =
            table.ttl().is_some() || same_groups && table.compression() != Compression::None;
        let source = if as_stored { table.stored() } else { table.clone() };
        let records = source.range(..)?.map(|record| {
            if done.get().is_multiple_of(TELL_EVERY) {
                tell(done.get())?;
            }
            done.set(done.get() + 1);
            record
        });
        let copy = match as_stored {
            true => target.table_of_stored(name, &table.options())?,
            false => target.table_with(name, &table.options())?,
        };
        if table.ttl().is_some() {
            target.raise_horizon(store.horizon_ms())?;
        }
        copy.bulk_load(records).map_err(|error| told_of_keys(error, name, target))?;
        tables += 1;
    }
    tell(done.get())?;
    Ok((tables, done.get()))
}

/// Adds the table to the error for a key that the new store does not take: one in a table with a
/// time to live that does not fit its pages.
fn told_of_keys(error: Error, table: &str, target: &Store) -> Error {
    if error.kind() != ErrorKind::KeyTooLong {
        return error;
    }
    let page_size = target.report().page_size;
    Error::with_hint(
        ErrorKind::KeyTooLong,
        format!(
            "table \"{table}\" has a key that is too long for pages of {page_size} bytes: {error}"
        ),
        "choose larger pages",
    )
}
