//! The sources of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folder of all crates.
pub(crate) fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Returns the Rust files below a folder, in the order of their paths. A folder that cargo builds
/// in, which it marks as a cache, is left out.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    entries.sort();
    let of = |path: PathBuf| match path.is_dir() {
        true if path.join("CACHEDIR.TAG").exists() => Vec::new(),
        true => sources(&path),
        false => vec![path],
    };
    let mut found: Vec<_> = entries.into_iter().flat_map(of).collect();
    found.retain(|path| path.extension().is_some_and(|it| it == "rs"));
    found
}
