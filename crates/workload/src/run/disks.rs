//! Activity of the disks under a run's files during the run, from the kernel's counters.

use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::report::DiskReport;

pub(super) struct Disks {
    begun: Instant,
    disks: Vec<(PathBuf, DiskReport, u64)>,
}

impl Disks {
    /// Finds the disks under files and devices. Targets without a disk, such as memory or a
    /// network, are left out.
    pub(super) fn under<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let mut folders: Vec<PathBuf> = paths.filter_map(folder).collect();
        folders.sort();
        folders.dedup();
        let disks = folders.into_iter().filter_map(|folder| {
            let (counters, busy_ms) = read(&folder)?;
            Some((folder, counters, busy_ms))
        });
        Self { begun: Instant::now(), disks: disks.collect() }
    }

    /// Returns the activity of each disk since the beginning of the run.
    pub(super) fn since(&self) -> Vec<DiskReport> {
        let elapsed_ms = self.begun.elapsed().as_secs_f64() * 1e3;
        let since = |(folder, before, busy_before): &(PathBuf, DiskReport, u64)| {
            let (after, busy_ms) = read(folder)?;
            let busy_ms = busy_ms.saturating_sub(*busy_before) as f64;
            Some(DiskReport {
                read_ios: after.read_ios.saturating_sub(before.read_ios),
                write_ios: after.write_ios.saturating_sub(before.write_ios),
                read_merges: after.read_merges.saturating_sub(before.read_merges),
                write_merges: after.write_merges.saturating_sub(before.write_merges),
                read_ms: after.read_ms.saturating_sub(before.read_ms),
                write_ms: after.write_ms.saturating_sub(before.write_ms),
                queue_ms: after.queue_ms.saturating_sub(before.queue_ms),
                busy_percent: (100.0 * busy_ms / elapsed_ms.max(1.0)).min(100.0),
                ..before.clone()
            })
        };
        self.disks.iter().filter_map(since).collect()
    }
}

/// Returns the kernel's folder of the disk under a path. For a partition, this is the folder of its
/// disk.
fn folder(path: &Path) -> Option<PathBuf> {
    let metadata = std::fs::metadata(path).ok()?;
    let number = match metadata.file_type().is_block_device() {
        true => metadata.st_rdev(),
        false => metadata.st_dev(),
    };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let folder = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    match folder.join("partition").exists() {
        true => folder.parent().map(Path::to_owned),
        false => Some(folder),
    }
}

/// Returns the disk's counters, and the milliseconds in which it had requests.
fn read(folder: &Path) -> Option<(DiskReport, u64)> {
    let text = std::fs::read_to_string(folder.join("stat")).ok()?;
    parse(folder.file_name()?.to_str()?, &text)
}

/// Parses a `stat` file (`Documentation/block/stat.rst`): reads, merges, sectors and ms of reads;
/// the same four of writes; requests in flight, busy ms, queued ms.
fn parse(name: &str, text: &str) -> Option<(DiskReport, u64)> {
    let counts: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let at = |at: usize| counts.get(at).copied();
    let report = DiskReport {
        name: name.to_owned(),
        read_ios: at(0)?,
        read_merges: at(1)?,
        read_ms: at(3)?,
        write_ios: at(4)?,
        write_merges: at(5)?,
        write_ms: at(7)?,
        queue_ms: at(10)?,
        busy_percent: 0.0,
    };
    Some((report, at(9)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_the_kernels() {
        let text = " 11 12 13 14 21 22 23 24 31 32 33 0 0 0 0 0 0\n";
        let (disk, busy_ms) = parse("sda", text).unwrap();
        assert_eq!((disk.read_ios, disk.read_merges, disk.read_ms), (11, 12, 14));
        assert_eq!((disk.write_ios, disk.write_merges, disk.write_ms), (21, 22, 24));
        assert_eq!((disk.queue_ms, busy_ms), (33, 32));
        assert!(parse("sda", "1 2 3").is_none());
    }
}
