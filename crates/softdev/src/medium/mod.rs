//! Where a namespace keeps its blocks.

use std::path::PathBuf;

/// Which medium.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MediumOptions {
    /// Memory of this process, zeroed, touched only on use.
    #[default]
    Ram,
    /// Nothing: writes are forgotten, and reads leave the driver's memory as it was.
    Null,
    /// A file, or a block device.
    File(PathBuf),
}
