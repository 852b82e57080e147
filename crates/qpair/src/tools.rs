//! Backup, repair, and inspection of the log, by name.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[cfg(feature = "encryption")]
use qpair_crypt::EncryptionKey;
#[cfg(feature = "encryption")]
use qpair_engine::write_key_slots;
use qpair_engine::{
    BackupReport, Error, ErrorKind, Result, SUPERBLOCK_OFFSETS, Store, StoreOptions, is_superblock,
};
use qpair_inspect::{LogDump, LogEntry, RepairReport, RepairStep, dump_log, examine_log, repair};
use qpair_machine::Bounds;

use crate::members::Members;
use crate::open::with_devices;
use crate::options::Options;
use crate::replace::Replacement;

/// Returns whether a file or block device has the superblock of a store, or of a store's log, even
/// if the rest is damaged.
///
/// # Errors
/// The system's error if the file or device cannot be opened or read.
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
    /// read and written. `progress` is called with the number of pages copied and of all pages, and
    /// may stop the backup.
    ///
    /// The backup is of one moment between commits: it has all transactions that committed before
    /// the call, and others completely or not at all. Each page is checked as it is copied.
    ///
    /// The members must be blank, unless [`Options::force`] is set. Existing files are replaced
    /// once the backup is complete. Until then, the backup is in files beside them, whose names end
    /// in `.qpair-backup`, and the existing files stay as they are. An existing device is
    /// overwritten, after a check that it is large enough. If the backup stops after that, the
    /// device has neither the old backup nor the new one.
    ///
    /// # Errors
    /// `Exists` if a member is not blank; `Interrupted` if `progress` stopped the backup; `Corrupt`
    /// if a page of the store is damaged; `NoSpace` if the members are too small; `Invalid` if
    /// called on a worker, or if the members cannot hold pages of this size; and the errors of the
    /// devices. After an error, files that this call created are removed.
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

    /// Copies everything readable from the damaged store on these members into a new store on the
    /// members of `target`. The new store is created only if something is damaged. The damaged
    /// store is not written to.
    ///
    /// # Errors
    /// The errors of [`qpair_inspect::repair`], and of [`Options::open`] for the target. After an
    /// error, files that this call created for the target are removed.
    pub fn repair_into(
        self,
        target: Self,
        progress: &dyn Fn(RepairStep, u64, u64) -> ControlFlow<()>,
    ) -> Result<RepairReport> {
        let (mut target, _) = target.format(true).settled(&Bounds::read());
        // The store becomes durable when it is closed, and is not used before.
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
                // Report the earlier error, not this one.
                let _ = std::fs::remove_file(path);
            }
        }
        repaired
    }

    /// Replaces the key of the encrypted store on these members, which no process may have open:
    /// `new` opens the store from then on, and `present` does not.
    /// Only the superblocks are written. The data stay encrypted with the store's own key; a backup
    /// has another one.
    ///
    /// If the call is interrupted, one of the two keys opens the store. Needs the feature
    /// `encryption`.
    ///
    /// # Errors
    /// `Denied` if the present key is wrong; `Invalid` if the store is not encrypted; `Unclean` if
    /// it was not closed; the errors of the devices.
    #[cfg(feature = "encryption")]
    pub fn replace_key(self, present: &EncryptionKey, new: &EncryptionKey) -> Result<()> {
        let options = self.create(false);
        with_devices(&options, &|devices| {
            write_key_slots(&devices.members, &|slot| present.wrap_again(slot, new))
        })
    }

    /// Reads the write-ahead log of the store on these members, without recovering the store. No
    /// process may have it open. `each` is called with the commits in their order, and may stop the
    /// reading.
    ///
    /// # Errors
    /// The errors of [`qpair_inspect::dump_log`].
    pub fn dump_log(
        self,
        each: &mut dyn FnMut(&LogEntry<'_>) -> ControlFlow<()>,
    ) -> Result<LogDump> {
        let options = self.create(false).read_only(true);
        let each = RefCell::new(each);
        with_devices(&options, &|devices| {
            let looking = StoreOptions { log_place: devices.log_place, ..options.store.clone() };
            dump_log(&devices.members, &looking, &mut **each.borrow_mut())
        })
    }

    /// Returns the faults found in the write-ahead log of the store on these members, one text
    /// each. The list is empty if recovery can read the whole log. No process may have the store
    /// open.
    ///
    /// # Errors
    /// The errors of [`qpair_inspect::examine_log`].
    pub fn examine_log(self) -> Result<Vec<String>> {
        let options = self.create(false).read_only(true);
        with_devices(&options, &|devices| {
            let looking = StoreOptions { log_place: devices.log_place, ..options.store.clone() };
            examine_log(&devices.members, &looking)
        })
    }
}
