//! Restores a continuous backup into a new store, which can be used only once it is complete and
//! checked.

use std::ops::ControlFlow;

use qpair_backup::{Point, Restore};
use qpair_engine::{Error, ErrorKind, Result};

use crate::members::Members;
use crate::options::Options;

/// The result of restoring a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The point to which the store was restored.
    pub point: Point,
    /// The number of restored tables.
    pub tables: u64,
    /// The number of restored records.
    pub records: u64,
    /// The page size of the new store, in bytes.
    pub page_size: usize,
    /// The identity of the new store, in hexadecimal digits.
    pub id: String,
}

impl Options {
    /// Restores a point of a continuous backup into a new store on these members, and checks the
    /// store. The members must not exist yet, except for blank block devices. `progress` is called
    /// with bytes received and in all, and then with changes loaded and in all, and may stop the
    /// restore.
    ///
    /// # Errors
    /// `Exists` if a member is an existing file or is not blank; `Interrupted` if `progress`
    /// stopped the restore; `Corrupt` if an object of the backup is damaged, and `NotFound` if one
    /// is missing; `KeyTooLong` if a key does not fit pages of this size; and the errors of
    /// [`Options::open`]. After an error the members hold no store, and files that this call
    /// created are removed.
    pub fn restore_of(
        self,
        restore: &Restore,
        progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
    ) -> Result<RestoreReport> {
        let page_size = self.store.page_size;
        let new_files = Members::of(&self)?.missing();
        let again = self.clone().create(false).read_only(true);
        let (id, filled) =
            self.fill_new("restored store", &|target| restore.fill(target, progress))?;
        check(again).inspect_err(|_| {
            for path in new_files {
                // Report the damage, not this error.
                let _ = std::fs::remove_file(path);
            }
        })?;
        let (tables, records) = (filled.tables, filled.records);
        Ok(RestoreReport { point: restore.point(), tables, records, page_size, id })
    }
}

/// Checks a closed store.
fn check(options: Options) -> Result<()> {
    let store = options.open()?;
    let checked = store.check(&|_, _| ());
    store.close()?;
    match checked?.faults.into_iter().next() {
        None => Ok(()),
        Some(fault) => {
            Err(Error::new(ErrorKind::Corrupt, format!("the restored store is damaged: {fault}")))
        }
    }
}
