//! Limits of the control groups this process is in, version 1 and 2.

use std::path::{Path, PathBuf};

use crate::mount::Mount;
use crate::root::Root;

/// Processor time allowed, in processors; `None` if there is no limit.
pub(crate) fn processor_quota(root: &Root) -> Option<f64> {
    let unified = directories(root, None).into_iter().filter_map(|directory| {
        let text = root.text(directory.join("cpu.max"))?;
        let (quota, period) = text.split_once(' ')?;
        ratio(quota.parse().ok()?, period.parse().ok()?)
    });
    let old = directories(root, Some("cpu")).into_iter().filter_map(|directory| {
        let quota = root.number(directory.join("cpu.cfs_quota_us"))?;
        ratio(quota, root.number(directory.join("cpu.cfs_period_us"))?)
    });
    unified.chain(old).reduce(f64::min)
}

fn ratio(quota_us: f64, period_us: f64) -> Option<f64> {
    (quota_us > 0.0 && period_us > 0.0).then(|| quota_us / period_us)
}

/// Memory allowed, bytes; `None` if there is no limit below `total`.
pub(crate) fn memory_limit_bytes(root: &Root, total: Option<u64>) -> Option<u64> {
    let read = |directories: Vec<PathBuf>, leaf: &'static str| {
        directories
            .into_iter()
            .filter_map(move |directory| root.number::<u64>(directory.join(leaf)))
    };
    read(directories(root, None), "memory.max")
        .chain(read(directories(root, Some("memory")), "memory.limit_in_bytes"))
        // Version 1 says a number beyond any memory for "none".
        .filter(|&limit| limit < total.unwrap_or(1 << 60))
        .min()
}

/// The directories of this process's group and those above it, for a controller of version 1, or version 2.
fn directories(root: &Root, controller: Option<&str>) -> Vec<PathBuf> {
    let groups = root.text("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let matches = match controller {
            Some(name) => names.split(',').any(|known| known == name),
            None => names.is_empty(),
        };
        matches.then(|| path.to_owned())
    });
    let mounts = Mount::all(root);
    let mount = mounts.iter().find(|mount| match controller {
        Some(name) => mount.file_system == "cgroup" && mount.options.iter().any(|o| o == name),
        None => mount.file_system == "cgroup2",
    });
    let (Some(group), Some(mount)) = (group, mount) else { return Vec::new() };
    // A container may see its own part only: the path is then below what is mounted, or is not to be seen.
    let below = Path::new(&group).strip_prefix(&mount.root).unwrap_or(Path::new(""));
    below.ancestors().map(|part| Path::new(&mount.point).join(part)).collect()
}
