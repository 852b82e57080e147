//! Unwritten parts of files, whose reads never reach the drive.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The least unwritten share of a file, in percent, that is reported.
const TOLD_PERCENT: u64 = 5;

/// Returns the unwritten byte ranges of a regular file, in order: holes and space that is only
/// reserved. Empty if the file system does not tell, or if the path is not a regular file.
///
/// # Errors
/// Errors of the kernel for the file.
pub fn unwritten(path: &Path) -> io::Result<Vec<Range<u64>>> {
    if !std::fs::metadata(path)?.is_file() {
        return Ok(Vec::new());
    }
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let (mut at, mut parts) = (0, Vec::new());
    while at < len {
        let data = match seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data.min(len),
            // There is no data after this offset.
            Err(Errno::NXIO) => len,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        if data > at {
            parts.push(at..data);
        }
        if data == len {
            break;
        }
        at = seek(&file, SeekFrom::Hole(data))?;
    }
    Ok(parts)
}

/// Returns a note about a file that is to be measured, if much of it is unwritten.
#[must_use]
pub fn unwritten_note(path: &Path) -> Option<String> {
    let all = std::fs::metadata(path).ok()?.len();
    let there: u64 = unwritten(path).ok()?.iter().map(|part| part.end - part.start).sum();
    (there > all / 100 * TOLD_PERCENT).then(|| {
        let percent = 100 * there / all;
        format!(
            "{percent} % of {} was never written: reads there never reach the drive, and their figures are not the drive's",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_and_reserved_space_are_found() {
        let build = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let path = folder.path().join("d");
        let file = File::create(&path).unwrap();
        file.set_len(4 << 20).unwrap();
        file.write_all_at(&[7; 1 << 20], 1 << 20).unwrap();
        file.sync_all().unwrap();
        if unwritten(&path).unwrap().is_empty() {
            println!("skipped: the file system of the tests does not tell");
            return;
        }
        assert_eq!(unwritten(&path).unwrap(), [0..1 << 20, 2 << 20..4 << 20]);
        assert!(unwritten_note(&path).unwrap().contains("75 % of"));
        // Reserved space counts as unwritten.
        let reserve = rustix::fs::FallocateFlags::empty();
        if rustix::fs::fallocate(&file, reserve, 0, 4 << 20).is_ok() {
            assert_eq!(unwritten(&path).unwrap(), [0..1 << 20, 2 << 20..4 << 20]);
        }
        file.write_all_at(&[7; 4 << 20], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(unwritten(&path).unwrap(), []);
        assert_eq!(unwritten_note(&path), None);
    }

    #[test]
    fn nothing_is_said_of_what_is_no_file() {
        assert_eq!(unwritten(Path::new("/dev/null")).unwrap(), []);
        assert!(unwritten(Path::new("/no/such/file")).is_err());
        assert_eq!(unwritten_note(Path::new("/dev/null")), None);
    }
}
