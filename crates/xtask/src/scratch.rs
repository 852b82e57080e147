//! Utilities for tasks that create temporary files: a folder of their own, and a flag that signals
//! set.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};

/// A folder of this process, removed when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder `NAME-PID`, in `parent` or beside this program.
    pub(crate) fn new(parent: Option<&Path>, name: &str) -> io::Result<Self> {
        let parent = match parent {
            Some(parent) => parent.to_owned(),
            None => std::env::current_exe()?.with_file_name("."),
        };
        std::fs::create_dir_all(&parent)?;
        // Short, since the name of a socket in it may have 107 bytes.
        let folder = parent.canonicalize()?.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left there can be removed by hand, and does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a flag that Ctrl-C and SIGTERM set.
pub(crate) fn interrupted() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Without it the program ends at once, and says nothing.
        let _ = signal_hook::flag::register(signal, interrupted.clone());
    }
    interrupted
}
