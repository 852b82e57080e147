//! Backup, repair, and a look at the log, by name.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use qpair_engine::{
    BackupReport, Error, ErrorKind, Result, SUPERBLOCK_OFFSETS, Store, StoreOptions, is_superblock,
};
use qpair_inspect::{LogDump, LogEntry, RepairReport, RepairStep, dump_log, examine_log, repair};
use qpair_machine::Bounds;

use crate::members::Members;
use crate::open::with_devices;
use crate::options::Options;
use crate::replace::Replacement;

/// Whether a file or block device has the superblock of a store, or of a store's log, even if the
/// rest is damaged.
///
/// # Errors
/// If it cannot be opened or read.
pub fn holds_store(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    for offset in SUPERBLOCK_OFFSETS {
        let mut first = [0; 8];
        match file.read_exact_at(&mut first, offset) {
            Ok(()) if is_superblock(&first) => return Ok(true),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
    }
    Ok(false)
}

impl Options {
    /// Makes a backup of an open store on these members, as a store of its own, while the store is
    /// read and written; `progress` is told the pages done and all, and may break it off. The
    /// backup is of one moment between commits: it has all transactions that committed before the
    /// call, and others in full or not at all. Each page is checked as it is copied. What is there
    /// already has to be blank, unless [`Options::force`] is set. Files that are there are replaced
    /// once the backup is whole: until then it is in files beside them, with `.qpair-backup` behind
    /// their names, and what is there stays as it is. A device is written over, after it was found
    /// to be large enough: a backup that is broken off from then on leaves neither the old one nor
    /// the new one.
    ///
    /// # Errors
    /// `Exists` if there is something; `Interrupted` if `progress` broke it off; `Corrupt` if a
    /// page of the store is damaged; `NoSpace` if the members are too small; `Invalid` on a worker,
    /// or if the members cannot hold pages of this size; what the devices say. Files made here are
    /// gone again then.
    pub fn backup_of(
        self,
        store: &Store,
        progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        let options = self.format(true);
        let make = |options: &Self| {
            with_devices(options, &|devices| {
                store.backup(devices.members, devices.unit_bytes, progress)
            })
        };
        match Replacement::of(&options)? {
            Some(replacement) => replacement.run(&options, &make),
            None => {
                let was_there = options.force && Members::of(&options)?.missing().is_empty();
                make(&options).map_err(|error| match error.kind() {
                    ErrorKind::Interrupted if was_there => Error::with_hint(
                        ErrorKind::Interrupted,
                        error.context(),
                        "the old backup, or whatever was on the target before, is gone; run the backup again",
                    ),
                    _ => error,
                })
            }
        }
    }

    /// Saves what can be read of the damaged store on these members into a new one on those of
    /// `target`, which it makes only if something is damaged. This store is not written to.
    ///
    /// # Errors
    /// As [`qpair_inspect::repair`], and as [`Options::open`] for the target. Files made for the
    /// target are gone again then.
    pub fn repair_into(
        self,
        target: Self,
        progress: &dyn Fn(RepairStep, u64, u64) -> ControlFlow<()>,
    ) -> Result<RepairReport> {
        let (mut target, _) = target.format(true).settled(&Bounds::read());
        // Durable once it is closed, and not to be used before.
        target.store.log = false;
        target.store.whole_when_closed = true;
        let new_files = Members::of(&target)?.missing();
        let (options, _) = self.create(false).read_only(true).settled(&Bounds::read());
        let target = RefCell::new(target);
        let repaired = with_devices(&options, &|devices| {
            let looking = StoreOptions { log_place: devices.log_place, ..options.store.clone() };
            let mut make = |page_size| {
                let target = target.borrow().clone().page_size(page_size);
                target.open()
            };
            repair(&devices.members, &looking, &mut make, progress)
        });
        if repaired.is_err() {
            for path in new_files {
                // The error on its way up is the one to tell.
                let _ = std::fs::remove_file(path);
            }
        }
        repaired
    }

    /// Reads the write-ahead log of the store on these members, which no process has open, without
    /// recovering it; `each` is given the commits in their order, and may break it off.
    ///
    /// # Errors
    /// As [`qpair_inspect::dump_log`].
    pub fn dump_log(
        self,
        each: &mut dyn FnMut(&LogEntry<'_>) -> ControlFlow<()>,
    ) -> Result<LogDump> {
        let options = self.create(false).read_only(true);
        let each = RefCell::new(each);
        with_devices(&options, &|devices| {
            dump_log(&devices.members, &devices.log_place, &mut **each.borrow_mut())
        })
    }

    /// Returns the faults found in the write-ahead log of the store on these members, one text
    /// each. The list is empty if recovery can read the whole log. No process may have the store
    /// open.
    ///
    /// # Errors
    /// As [`qpair_inspect::examine_log`].
    pub fn examine_log(self) -> Result<Vec<String>> {
        let options = self.create(false).read_only(true);
        with_devices(&options, &|devices| examine_log(&devices.members, &devices.log_place))
    }
}
