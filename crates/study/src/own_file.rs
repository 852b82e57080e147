//! The file that a study creates if no device is given. The file has random data and is removed
//! when dropped.

use std::path::{Path, PathBuf};

use qpair_block::{DeviceSpec, Error, ErrorKind, Result, format_bytes};
use qpair_drivers::Drivers;
use qpair_kernel::{Interface, Mode};
use qpair_workload::{Job, Observer};

/// A file of random data that is removed when dropped.
#[derive(Debug)]
pub struct OwnFile {
    path: PathBuf,
}

impl OwnFile {
    /// Creates a file in a folder and fills it with random bytes, bypassing the page cache.
    ///
    /// # Errors
    /// `NoSpace` if less than twice the file's size is free. Errors of the file system, or the
    /// observer stopped the work. The file is removed after an error.
    pub fn make(folder: &Path, size_bytes: u64, observer: &dyn Observer) -> Result<Self> {
        let place = folder.display();
        let there = rustix::fs::statvfs(folder).map_err(|error| {
            Error::os(error.into(), format!("reading the free space of {place}"))
        })?;
        let free_bytes = there.f_bavail * there.f_frsize;
        if free_bytes / 2 < size_bytes {
            let context = format!(
                "a file of {} does not fit {place}, where {} MiB are free",
                format_bytes(size_bytes),
                free_bytes >> 20
            );
            return Err(Error::new(ErrorKind::NoSpace, context)
                .hint("half of the space stays free: choose a smaller --size or another --dir"));
        }
        // From here on the file is removed, whatever happens.
        let own = Self { path: folder.join(format!("qpair-study-{}.data", std::process::id())) };
        let spec = DeviceSpec::File(own.path.clone());
        let mut job = Job::new("laying out", spec, Mode::new(Interface::Posix));
        job.targets[0].create_bytes = Some(size_bytes);
        job.io_size = Some(4096);
        job.random_map = false;
        // A file needs no driver of this program.
        qpair_workload::run(&Drivers::new(), &[job], observer)?;
        Ok(own)
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // If the file cannot be removed, there is no caller to report that to. The name of the file
        // tells whose it was.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qpair_workload::{Live, Unwatched};

    /// An observer that stops at once.
    struct Impatient;

    impl Observer for Impatient {
        fn tick(&self, _: &Live) {}

        fn stop(&self) -> bool {
            true
        }
    }

    #[test]
    fn is_full_of_different_bytes_and_goes_away() {
        let build = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        match OwnFile::make(folder.path(), 5 << 20, &Unwatched) {
            Ok(own) => {
                let bytes = std::fs::read(own.path()).unwrap();
                assert_eq!(bytes.len(), 5 << 20);
                assert_ne!(bytes[..4096], bytes[4096..8192]);
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(files(), 0);
        let _ = OwnFile::make(folder.path(), 64 << 20, &Impatient);
        assert_eq!(files(), 0);
        let error = OwnFile::make(folder.path(), 1 << 60, &Unwatched).unwrap_err();
        assert_eq!((error.kind(), files()), (ErrorKind::NoSpace, 0));
    }
}
