//! A bound on the memory of this process, with the pages of files that the kernel keeps for it: a
//! cgroup of its own.
//!
//! Files that were in memory before count for the process that read them: they are to be dropped
//! from it before they are used.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, failed};

/// This process in a cgroup of its own; dropping this puts it back where it was, and removes the
/// group.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
    parent: PathBuf,
    described: String,
}

impl MemoryLimit {
    /// Limits the memory of this process, its threads and the files it reads, to so many bytes.
    ///
    /// # Errors
    /// If there are no cgroups with memory here, or they may not be made; it says which.
    pub fn set(bytes: u64) -> Result<Self> {
        let (parent, limit, version) = find_root()?;
        let group = parent.join(format!("qpair-peers-{}", std::process::id()));
        let doing = format!("limiting the memory to {bytes} bytes by {}", group.display());
        let cannot = |error| failed(&doing, error);
        fs::create_dir(&group).map_err(cannot)?;
        let set = Self {
            group: group.clone(),
            parent,
            described: format!("{} MiB by cgroup v{version} ({limit})", bytes >> 20),
        };
        fs::write(group.join(limit), bytes.to_string()).map_err(cannot)?;
        fs::write(group.join("cgroup.procs"), std::process::id().to_string()).map_err(cannot)?;
        Ok(set)
    }

    /// How the memory is limited, for reports.
    #[must_use]
    pub fn described(&self) -> &str {
        &self.described
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group that stays is empty when the process is over, and in no other's way.
        let _ = fs::write(self.parent.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.group);
    }
}

/// The folder to make a group in, the name of the file that has its limit, and the version of
/// cgroups.
fn find_root() -> Result<(PathBuf, &'static str, u32)> {
    let mounts = fs::read_to_string("/proc/mounts")
        .map_err(|error| failed("reading /proc/mounts", error))?;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(folder), Some(kind), Some(options)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let folder = Path::new(folder);
        if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
            return Ok((folder.to_owned(), "memory.limit_in_bytes", 1));
        }
        if kind == "cgroup2" && has_memory(folder) {
            // The limit is there only if the parent gives the controller to its children.
            let control = folder.join("cgroup.subtree_control");
            fs::write(&control, "+memory")
                .map_err(|error| failed(&format!("writing to {}", control.display()), error))?;
            return Ok((folder.to_owned(), "memory.max", 2));
        }
    }
    Err(Error::Failed(
        "limiting the memory: no cgroups with a memory controller are mounted".into(),
    ))
}

fn has_memory(folder: &Path) -> bool {
    fs::read_to_string(folder.join("cgroup.controllers"))
        .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "memory"))
}
