//! Files of studies and of other reports.

use std::fs;
use std::path::Path;

use qpair_study::StudyReport;

use crate::failure::{Failure, Result};

/// Returns an error before the measurement if the folder does not exist, or the path cannot be a
/// file.
pub(crate) fn check_out_file(out: &Path) -> Result<()> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    if !folder.unwrap_or(Path::new(".")).is_dir() {
        return Err(Failure::usage(format!(
            "--out {} is in a folder that does not exist",
            out.display()
        )));
    }
    if out.exists() && !out.is_file() {
        return Err(Failure::usage(format!("--out {} exists and is not a file", out.display())));
    }
    Ok(())
}

pub(crate) fn read_study(path: &Path) -> Result<StudyReport> {
    let text = fs::read_to_string(path).map_err(Failure::at("reading", path))?;
    StudyReport::from_json(&text).map_err(|error| Failure::from(error).context(path.display()))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Failure::at("writing", path))
}

pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    match (fs::canonicalize(a), fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
