//! Whether a drive can be polled: its driver must have made queues without interrupts for that.
//!
//! The kernel does not say so by itself: older ones (6.1) take the interrupts silently, newer ones (7.x) fail each read.

use std::path::{Path, PathBuf};

use qpair_block::{Error, ErrorKind, Result};

use crate::file::File;

/// # Errors
/// `Invalid` for a file in the page cache; `Unsupported` where the drive below the file has no poll queues, with the way to them.
pub(super) fn check(file: &File) -> Result<()> {
    let name = file.name();
    if !file.direct {
        let what = format!("polling (+p) {name}, which is open through the page cache");
        return Err(Error::new(ErrorKind::Invalid, what)
            .hint("the cache has no queue to poll: open it with O_DIRECT, or leave +p out"));
    }
    let (major, minor) = file.drive();
    let node = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition's queue is its disk's.
    let queue = ["queue", "../queue"].map(|leaf| node.join(leaf)).into_iter().find(|q| q.is_dir());
    let Some(queue) = queue else {
        let what = format!("polling (+p) {name}: no drive {major}:{minor} is known below it");
        return Err(Error::new(ErrorKind::Unsupported, what)
            .hint("name the block device itself, use a file system on one drive (ext4, xfs), or leave +p out"));
    };
    let polls = std::fs::read_to_string(queue.join("io_poll"));
    if polls.is_ok_and(|text| text.trim() == "1") {
        return Ok(());
    }
    let disk = disk_name(&queue);
    let what = format!("polling (+p) {name}: the drive {disk} has no poll queues");
    Err(Error::new(ErrorKind::Unsupported, what).hint(way_out(&disk, &queue)))
}

/// Why a read over a polled ring was refused, although the drive has poll queues.
pub(super) fn refused(file: &File, cause: i32) -> Error {
    let cause = std::io::Error::from_raw_os_error(cause);
    let what = format!("polling (+p) {}: a first read was refused", file.name());
    Error::os(cause, what).hint(
        "its file system may know no polling (ext4, xfs and btrfs do): use another, name the block device, or leave +p out",
    )
}

/// The name of the disk whose queue it is: `nvme0n1`.
fn disk_name(queue: &Path) -> String {
    let disk = queue.canonicalize().ok();
    let disk = disk.as_deref().and_then(Path::parent).and_then(Path::file_name);
    disk.map_or_else(|| "below it".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// How the disk gets poll queues.
pub(crate) fn way_out(disk: &str, queue: &Path) -> String {
    let without = "or leave +p out";
    let module = match disk {
        name if name.starts_with("nvme") => "nvme",
        name if name.starts_with("vd") => "virtio_blk",
        name if name.starts_with("nullb") => "null_blk",
        name if name.starts_with("dm-") || name.starts_with("md") => {
            let parts: Vec<_> = std::fs::read_dir(queue.join("../slaves"))
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
                .collect();
            return format!(
                "{disk} can be polled only if all it is made of can ({}), {without}",
                parts.join(", ")
            );
        }
        _ => {
            return format!(
                "its driver makes none that is known here (nvme and virtio_blk can), {without}"
            );
        }
    };
    let value = std::fs::read_to_string(format!("/sys/module/{module}/parameters/poll_queues"));
    let now = value.map_or(String::new(), |value| format!(" (now {})", value.trim()));
    format!(
        "boot with the kernel parameter {module}.poll_queues=N{now}, one for each core that polls; or where nothing on it is in use: modprobe -r {module}; modprobe {module} poll_queues=N; {without}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_driver_has_its_way() {
        let nowhere = Path::new("/nowhere");
        assert!(way_out("nvme0n1", nowhere).contains("nvme.poll_queues=N"));
        assert!(way_out("nvme0n1", nowhere).contains("modprobe nvme poll_queues=N"));
        assert!(way_out("vda", nowhere).contains("virtio_blk.poll_queues=N"));
        assert!(way_out("dm-3", nowhere).contains("all it is made of"));
        assert!(way_out("zram0", nowhere).contains("leave +p out"));
    }
}
