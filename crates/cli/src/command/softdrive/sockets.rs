//! The paths of the drives' sockets.

use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// The paths of sockets, and the folders made for them. The folders are removed on drop.
pub(super) struct Sockets {
    paths: Vec<PathBuf>,
    made: Vec<PathBuf>,
}

impl Sockets {
    pub(super) fn prepare(path: &Path, drives: u16) -> Result<Self> {
        let mut sockets = Self { paths: Vec::new(), made: Vec::new() };
        for number in 1..=drives {
            sockets.paths.push(match (path.is_dir(), drives) {
                (true, 1) => path.join("cntrl"),
                (true, _) => {
                    let folder = path.join(number.to_string());
                    if !folder.exists() {
                        std::fs::create_dir(&folder).map_err(Failure::at("making", &folder))?;
                        sockets.made.push(folder.clone());
                    }
                    folder.join("cntrl")
                }
                (false, 1) => path.to_owned(),
                (false, _) => {
                    let mut path = path.as_os_str().to_owned();
                    path.push(format!(".{number}"));
                    path.into()
                }
            });
        }
        Ok(sockets)
    }

    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for folder in &self.made {
            // This fails if the folder contains other files, which must stay.
            let _ = std::fs::remove_dir(folder);
        }
    }
}
