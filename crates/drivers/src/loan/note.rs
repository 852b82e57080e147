//! The note that says to which driver a drive belongs.
//!
//! Invariant: a process that has a drive on loan has its note locked. The lock ends with the
//! process; the note stays until the drive is back.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result};
use qpair_pci::sysfs::PciAddress;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The folder of the notes. It is in memory, because the machine's next start gives every drive to
/// its own driver.
pub(super) const FOLDER: &str = "/run/qpair/loans";

/// The time limit for the forked child of a killed program to execute its own program.
const FORKED_WITHIN: Duration = Duration::from_secs(2);

/// The state that has to be restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Original {
    /// The kernel's driver that had the drive.
    pub(super) driver: String,
    /// The driver that `driver_override` named for this function, or "".
    pub(super) named: String,
    /// A kernel module that was loaded for the loan.
    pub(super) module: Option<String>,
}

impl Original {
    fn text(&self) -> String {
        let module = self.module.as_deref().unwrap_or_default();
        format!("driver={}\nnamed={}\nmodule={module}\n", self.driver, self.named)
    }

    /// Parses a note; `None` if it was never completely written, so that nothing had been done.
    fn parse(text: &str) -> Option<Self> {
        let of = |name: &str| {
            let mut values = text.split_inclusive('\n').filter_map(|line| line.split_once('='));
            let value = values.find(|(its, _)| *its == name)?.1;
            value.strip_suffix('\n').map(str::to_owned)
        };
        let module = of("module")?;
        Some(Self {
            driver: of("driver")?,
            named: of("named")?,
            module: (!module.is_empty()).then_some(module),
        })
    }
}

/// A note that this process has locked.
#[derive(Debug)]
pub(super) struct Note {
    file: File,
    path: PathBuf,
}

impl Note {
    pub(super) fn all(folder: &Path) -> Vec<PciAddress> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut all: Vec<PciAddress> =
            entries.filter_map(|entry| PciAddress::parse(entry.file_name().to_str()?)).collect();
        all.sort_unstable();
        all
    }

    /// Locks the note of a drive. Creates the note if it does not exist.
    pub(super) fn lock(folder: &Path, address: PciAddress) -> Result<Self> {
        let path = folder.join(address.to_string());
        let failed = |cause| Error::os(cause, format!("opening {}", path.display()));
        fs::create_dir_all(folder).map_err(failed)?;
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(failed)?;
        let busy = || {
            Error::new(ErrorKind::Busy, format!("{address} is on loan to another program"))
                .hint("wait for it, or end it: it gives the drive back")
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(busy()),
            Err(cause) => return Err(failed(cause.into())),
        }
        // The previous owner of the lock may just have removed the file.
        match (fs::metadata(&path), file.metadata()) {
            (Ok(there), Ok(own)) if there.ino() == own.ino() => Ok(Self { file, path }),
            _ => Err(busy()),
        }
    }

    /// Locks the note of a program that was killed. A child that the program had just forked keeps
    /// the lock until it executes its own program.
    pub(super) fn lock_of_killed(folder: &Path, address: PciAddress) -> Result<Self> {
        let begin = Instant::now();
        loop {
            match Self::lock(folder, address) {
                Err(error)
                    if error.kind() == ErrorKind::Busy && begin.elapsed() < FORKED_WITHIN =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                outcome => return outcome,
            }
        }
    }

    /// Reads the note; `None` if it is empty or incomplete.
    pub(super) fn read(&mut self) -> Result<Option<Original>> {
        let mut text = String::new();
        let read = self.file.rewind().and_then(|()| self.file.read_to_string(&mut text));
        read.map_err(|cause| Error::os(cause, format!("reading {}", self.path.display())))?;
        Ok(Original::parse(&text))
    }

    pub(super) fn write(&mut self, original: &Original) -> Result<()> {
        let text = original.text();
        let written = (|| {
            self.file.rewind()?;
            self.file.write_all(text.as_bytes())?;
            self.file.set_len(text.len() as u64)
        })();
        written.map_err(|cause| Error::os(cause, format!("writing {}", self.path.display())))
    }

    /// Removes the note, once everything was restored.
    pub(super) fn remove(&self) -> Result<()> {
        fs::remove_file(&self.path)
            .map_err(|cause| Error::os(cause, format!("removing {}", self.path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_outlives_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let address = PciAddress::parse("0000:03:00.0").unwrap();
        let original = Original { driver: "nvme".into(), named: String::new(), module: None };
        let mut note = Note::lock(folder.path(), address).unwrap();
        assert_eq!(note.read().unwrap(), None);
        note.write(&original).unwrap();
        let error = Note::lock(folder.path(), address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        note.write(&Original { module: Some("hwperf".into()), ..original.clone() }).unwrap();
        // A killed process also leaves the note behind.
        drop(note);
        assert_eq!(Note::all(folder.path()), [address]);
        let mut note = Note::lock(folder.path(), address).unwrap();
        assert_eq!(note.read().unwrap().unwrap().module.as_deref(), Some("hwperf"));
        note.write(&original).unwrap();
        assert_eq!(note.read().unwrap(), Some(original));
        note.remove().unwrap();
        assert!(Note::all(folder.path()).is_empty());
    }

    /// A regression: `fio --version` was forked while the note was locked. The program was killed
    /// before its child executed fio, and `--recover` found the lock in the child's hands.
    #[test]
    fn a_forked_child_keeps_the_lock_for_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let address = PciAddress::parse("0000:03:00.0").unwrap();
        let note = Note::lock(folder.path(), address).unwrap();
        let of_child = note.file.try_clone().unwrap();
        drop(note);
        assert_eq!(Note::lock(folder.path(), address).unwrap_err().kind(), ErrorKind::Busy);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                drop(of_child);
            });
            Note::lock_of_killed(folder.path(), address).unwrap();
        });
    }

    #[test]
    fn half_a_note_is_none() {
        let whole =
            Original { driver: "nvme".into(), named: "nvme".into(), module: Some("m".into()) };
        let text = whole.text();
        assert_eq!(Original::parse(&text), Some(whole));
        assert!((0..text.len()).all(|len| Original::parse(&text[..len]).is_none()));
    }
}
