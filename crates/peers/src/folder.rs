//! The folder that a peer keeps its store in.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the number of bytes that the files of a folder occupy on the device. Files that cannot
/// be examined are not counted.
#[must_use]
pub fn allocated_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|metadata| metadata.blocks() * 512)
        .sum()
}
