//! Files that reports are written to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use qpair_block::{Error, Result};

/// Writes `content` to the file named `prefix` followed by `suffix`. Returns the name.
pub(super) fn write(prefix: &Path, suffix: &str, content: &str) -> Result<PathBuf> {
    let mut name = OsString::from(prefix);
    name.push(suffix);
    let path = PathBuf::from(name);
    std::fs::write(&path, content)
        .map_err(|error| Error::os(error, format!("writing {}", path.display())))?;
    Ok(path)
}
