//! Limits of the control groups of this process, version 1 and 2.
//!
//! A group's limit applies to all groups below it. Limits are therefore read from the process's own
//! group and from every visible group above it.

use std::path::{Path, PathBuf};

use qpair_sysfs::Root;

use crate::mount::Mount;

/// Returns the permitted processor time, in processors; `None` if there is no limit.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupMemory {
    /// The path of the group, relative to the mount of its hierarchy.
    pub(crate) group: String,
    pub(crate) limit_bytes: u64,
    /// Memory of the group's processes that the kernel cannot reclaim, in bytes; the page cache is
    /// not counted.
    pub(crate) used_bytes: u64,
}

/// Returns the permitted memory in bytes; `None` if there is no limit below `total`.
pub(crate) fn memory_limit_bytes(root: &Root, total: Option<u64>) -> Option<u64> {
    memory_limits(root, total).iter().map(|group| group.limit_bytes).min()
}

/// Returns the groups whose memory is limited to less than `total`, the process's own first.
pub(crate) fn memory_limits(root: &Root, total: Option<u64>) -> Vec<GroupMemory> {
    // Version 1 writes a number larger than any memory for "no limit".
    let total = total.unwrap_or(1 << 60);
    let unified = directories(root, None);
    let old = directories(root, Some("memory"));
    let mut limits = Vec::new();
    for directory in &unified {
        let limit = |leaf| root.number::<u64>(directory.join(leaf)).filter(|&limit| limit < total);
        // From memory.high on, the kernel slows the group's processes down until they use less.
        let Some(limit_bytes) = limit("memory.max").into_iter().chain(limit("memory.high")).min()
        else {
            continue;
        };
        let used: u64 = root.number(directory.join("memory.current")).unwrap_or(0);
        let statistics = root.text(directory.join("memory.stat")).unwrap_or_default();
        let cache = statistic(&statistics, "inactive_file") + statistic(&statistics, "active_file");
        let used_bytes = used.saturating_sub(cache);
        limits.push(GroupMemory { group: name(directory, &unified), limit_bytes, used_bytes });
    }
    for directory in &old {
        let statistics = root.text(directory.join("memory.stat")).unwrap_or_default();
        let own = root.number::<u64>(directory.join("memory.limit_in_bytes"));
        // The kernel also counts groups above that a container cannot see.
        let above = Some(statistic(&statistics, "hierarchical_memory_limit"));
        let above = above.filter(|&limit| limit > 0 && directory == &old[0]);
        let limit = own.into_iter().chain(above).min().filter(|&limit| limit < total);
        let Some(limit_bytes) = limit else { continue };
        let used: u64 = root.number(directory.join("memory.usage_in_bytes")).unwrap_or(0);
        let cache = statistic(&statistics, "total_inactive_file")
            + statistic(&statistics, "total_active_file");
        let used_bytes = used.saturating_sub(cache);
        limits.push(GroupMemory { group: name(directory, &old), limit_bytes, used_bytes });
    }
    limits
}

/// Returns a group's path relative to the topmost group, which is the last of `hierarchy`.
fn name(directory: &Path, hierarchy: &[PathBuf]) -> String {
    let below = hierarchy.last().and_then(|top| directory.strip_prefix(top).ok());
    format!("/{}", below.unwrap_or(Path::new("")).display())
}

/// Returns a number of a `memory.stat`; 0 if it is not there.
fn statistic(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// Returns the directories of this process's group and of the groups above it, for a controller of
/// version 1, or for version 2.
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
    // A container may see only its own part: the path is then below the mounted directory, or not
    // visible. If the process was moved out of its namespace, the path leads upwards.
    let below = Path::new(&group).strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let below = match below.iter().any(|part| part == "..") {
        true => Path::new(""),
        false => below,
    };
    below.ancestors().map(|part| Path::new(&mount.point).join(part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `memory.stat` of a group of version 2, Linux 6.1.
    const STATISTICS_2: &str = "anon 4096000\nfile 62914560\nkernel 1200128\nshmem 0\ninactive_anon 4050944\nactive_anon 45056\n\
         inactive_file 41943040\nactive_file 20971520\nunevictable 0\n";
    /// A `memory.stat` of a group of version 1, Linux 5.10.
    const STATISTICS_1: &str = "cache 33554432\nrss 8388608\ninactive_file 11534336\nactive_file 22020096\n\
         hierarchical_memory_limit 104857600\nhierarchical_memsw_limit 9223372036854771712\ntotal_cache 33554432\n\
         total_rss 8388608\ntotal_inactive_file 11534336\ntotal_active_file 22020096\n";

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn of(files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let path = tree.0.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            tree
        }

        fn root(&self) -> Root {
            Root::at(self.0.path())
        }
    }

    #[test]
    fn statistics_are_found_by_their_whole_name() {
        assert_eq!(statistic(STATISTICS_2, "inactive_file"), 41_943_040);
        assert_eq!(statistic(STATISTICS_2, "file"), 62_914_560);
        assert_eq!(statistic(STATISTICS_1, "total_active_file"), 22_020_096);
        assert_eq!(statistic(STATISTICS_1, "active"), 0);
        assert_eq!(statistic("", "file"), 0);
        assert_eq!(statistic("file many", "file"), 0);
    }

    #[test]
    fn version_2_takes_every_group_above_and_counts_no_page_cache() {
        let at = "sys/fs/cgroup/system.slice";
        let tree = Tree::of(&[
            ("proc/self/cgroup", "0::/system.slice/store.service\n"),
            (
                "proc/self/mountinfo",
                "26 23 0:23 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            ),
            (&format!("{at}/store.service/memory.max"), "max\n"),
            (&format!("{at}/store.service/memory.high"), "209715200\n"),
            (&format!("{at}/store.service/memory.current"), "68157440\n"),
            (&format!("{at}/store.service/memory.stat"), STATISTICS_2),
            (&format!("{at}/memory.max"), "104857600\n"),
            (&format!("{at}/memory.high"), "max\n"),
            (&format!("{at}/cpu.max"), "250000 100000\n"),
        ]);
        let own = GroupMemory {
            group: "/system.slice/store.service".into(),
            limit_bytes: 209_715_200,
            used_bytes: 68_157_440 - 41_943_040 - 20_971_520,
        };
        let above =
            GroupMemory { group: "/system.slice".into(), limit_bytes: 104_857_600, used_bytes: 0 };
        assert_eq!(memory_limits(&tree.root(), None), [own, above]);
        assert_eq!(memory_limit_bytes(&tree.root(), Some(1 << 34)), Some(104_857_600));
        assert_eq!(memory_limit_bytes(&tree.root(), Some(50 << 20)), None);
        assert_eq!(processor_quota(&tree.root()), Some(2.5));
    }

    #[test]
    fn version_1_knows_groups_that_a_container_cannot_see() {
        let tree = Tree::of(&[
            (
                "proc/self/cgroup",
                "9:name=systemd:/\n4:memory:/docker/0d1\n1:cpu,cpuacct:/docker/0d1\n0::/\n",
            ),
            (
                "proc/self/mountinfo",
                "40 32 0:35 /docker/0d1 /sys/fs/cgroup/memory ro,nosuid,nodev,noexec,relatime master:13 - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "41943040\n"),
            ("sys/fs/cgroup/memory/memory.stat", STATISTICS_1),
        ]);
        let limits = memory_limits(&tree.root(), Some(8 << 30));
        let expected =
            GroupMemory { group: "/".into(), limit_bytes: 104_857_600, used_bytes: 8_388_608 };
        assert_eq!(limits, [expected]);
        // Version 1 writes a number for no limit.
        let unlimited = STATISTICS_1.replace("104857600", "9223372036854771712");
        std::fs::write(tree.0.path().join("sys/fs/cgroup/memory/memory.stat"), unlimited).unwrap();
        assert_eq!(memory_limits(&tree.root(), Some(8 << 30)), []);
    }

    /// A process that was moved out of its namespace has a path that leads outside the mounted
    /// hierarchy.
    #[test]
    fn a_path_that_leads_upwards_is_not_followed() {
        let tree = Tree::of(&[
            ("proc/self/cgroup", "0::/../other\n"),
            ("proc/self/mountinfo", "26 23 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/memory.max", "73400320\n"),
            ("sys/fs/other/memory.max", "1048576\n"),
        ]);
        assert_eq!(memory_limit_bytes(&tree.root(), None), Some(73_400_320));
    }
}
