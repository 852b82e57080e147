//! The files: their paths, and which of them exist.
//!
//! Invariant: a file is in `there`, in `absent`, or taken by one thread.

use qpair_block::locks::Mutex;
use std::path::PathBuf;

use rand::Rng;

pub(super) struct FileSet {
    root: PathBuf,
    folder_entries: u32,
    digits: u32,
    state: Mutex<State>,
}

struct State {
    there: Vec<u32>,
    absent: Vec<u32>,
}

impl FileSet {
    /// Creates a set in which `files` files exist, once they are made, and as many others do not.
    pub(super) fn new(root: PathBuf, files: u32, folder_entries: u32) -> Self {
        let folder_entries = folder_entries.max(2);
        let mut digits = 1;
        while u64::from(folder_entries).pow(digits) < u64::from(files) * 2 {
            digits += 1;
        }
        let state = State { there: (0..files).collect(), absent: (files..files * 2).collect() };
        Self { root, folder_entries, digits, state: Mutex::new(state) }
    }

    /// Returns the path of a file. The digits of its number, to the base `folder_entries`, name its
    /// folders and the file itself.
    pub(super) fn path(&self, file: u32) -> PathBuf {
        let mut path = self.root.clone();
        for place in (0..self.digits).rev() {
            let digit = u64::from(file) / u64::from(self.folder_entries).pow(place)
                % u64::from(self.folder_entries);
            path.push(if place == 0 { format!("f{digit}") } else { format!("d{digit}") });
        }
        path
    }

    /// Takes a random file that exists, or one that does not. Returns `None` if other threads have
    /// all of them.
    pub(super) fn take(&self, is_there: bool, random: &mut impl Rng) -> Option<u32> {
        let mut state = self.state.lock();
        let files = if is_there { &mut state.there } else { &mut state.absent };
        let at = (!files.is_empty()).then(|| random.random_range(0..files.len()))?;
        Some(files.swap_remove(at))
    }

    pub(super) fn give_back(&self, file: u32, is_there: bool) {
        let mut state = self.state.lock();
        if is_there { state.there.push(file) } else { state.absent.push(file) }
    }
}
