//! Finds out whether a drive can be polled: its driver must have created queues without interrupts.
//!
//! The kernel does not report this: older kernels (6.1) silently use interrupts, and newer ones
//! (7.x) fail each read.

use std::path::{Path, PathBuf};

use qpair_block::{Error, ErrorKind, Result};

use crate::file::{File, Kind};
use crate::in_flight::Transfer;

/// The set of transfers that can be polled: those that the drive executes as one command.
///
/// The kernel must cut a larger transfer, and does not poll for its parts. Old kernels (6.1) do not
/// even cut it, but retry it for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    len_bytes_max: u32,
    /// A boundary in bytes, counted from the start of the drive, that a command may not cross; 0 if
    /// there is none.
    chunk_bytes: u64,
    /// The offset of the device on its drive, in bytes.
    start_bytes: u64,
}

impl Reach {
    /// The set of all transfers.
    pub(crate) const ALL: Self = Self { len_bytes_max: u32::MAX, chunk_bytes: 0, start_bytes: 0 };

    #[inline]
    pub(super) fn holds(&self, transfer: &Transfer) -> bool {
        let first = self.start_bytes + transfer.offset_bytes;
        let last = first + u64::from(transfer.len_bytes).saturating_sub(1);
        let inside = |chunk: u64| first / chunk == last / chunk;
        transfer.len_bytes <= self.len_bytes_max
            && (self.chunk_bytes == 0 || inside(self.chunk_bytes))
    }

    fn of(queue: &Path, kind: Kind) -> Self {
        let limit = |name: &str| number(&queue.join(name));
        let sectors_bytes = limit("max_sectors_kb").unwrap_or(4) << 10;
        // In the worst case each page is a segment of its own, and the first and last are partial.
        let segments_bytes =
            limit("max_segments").unwrap_or(2).saturating_sub(1).max(1) * PAGE_BYTES;
        let len_bytes = sectors_bytes.min(segments_bytes);
        let chunk_bytes = limit("chunk_sectors").unwrap_or(0) * SECTOR_BYTES;
        Self {
            len_bytes_max: u32::try_from(len_bytes).unwrap_or(u32::MAX),
            chunk_bytes: match kind {
                // The position of a file on the drive is unknown, but its blocks are whole.
                Kind::Regular if chunk_bytes > 0 => PAGE_BYTES,
                _ => chunk_bytes,
            },
            start_bytes: 0,
        }
    }
}

const PAGE_BYTES: u64 = 4096;
/// The unit of sizes in /sys/block in bytes, whatever the drive's blocks are.
const SECTOR_BYTES: u64 = 512;

/// Returns the transfers to and from `file` that can be polled.
///
/// # Errors
/// `Invalid` for a file in the page cache; `Unsupported` if the drive below the file has no poll
/// queues, with a hint how to create them.
pub(crate) fn check(file: &File) -> Result<Reach> {
    let name = file.name();
    if !file.direct {
        let what = format!("{name} cannot be polled (+p): it is open through the page cache");
        return Err(Error::new(ErrorKind::Invalid, what)
            .hint("the cache has no queue to poll: open it with O_DIRECT, or leave +p out"));
    }
    let (major, minor) = file.drive();
    let node = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition has the queue of its disk.
    let queue = ["queue", "../queue"].map(|leaf| node.join(leaf)).into_iter().find(|q| q.is_dir());
    let Some(queue) = queue else {
        let what =
            format!("{name} cannot be polled (+p): no drive {major}:{minor} is known below it");
        return Err(Error::new(ErrorKind::Unsupported, what)
            .hint("name the block device itself, use a file system on one drive (ext4, xfs), or leave +p out"));
    };
    let polls = std::fs::read_to_string(queue.join("io_poll"));
    if polls.is_ok_and(|text| text.trim() == "1") {
        // Only a partition has a `start`.
        let start_bytes = number(&node.join("start")).unwrap_or(0) * SECTOR_BYTES;
        return Ok(Reach { start_bytes, ..Reach::of(&queue, file.kind) });
    }
    let disk = disk_name(&queue);
    let what = format!("{name} cannot be polled (+p): the drive {disk} has no poll queues");
    Err(Error::new(ErrorKind::Unsupported, what).hint(way_out(&disk, &queue)))
}

/// Returns the error for a read that a polled ring refused although the drive has poll queues.
pub(super) fn refused(file: &File, cause: i32) -> Error {
    let cause = std::io::Error::from_raw_os_error(cause);
    let what = format!("{} cannot be polled (+p): a first read was refused", file.name());
    Error::os(cause, what).hint(
        "its file system may know no polling (ext4, xfs and btrfs do): use another, name the block device, or leave +p out",
    )
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the name of the disk that a queue belongs to: `nvme0n1`.
fn disk_name(queue: &Path) -> String {
    let disk = queue.canonicalize().ok();
    let disk = disk.as_deref().and_then(Path::parent).and_then(Path::file_name);
    disk.map_or_else(|| "below it".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns a hint how to give the disk poll queues.
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
    fn only_one_command_is_in_reach() {
        let reach = Reach { len_bytes_max: 8192, chunk_bytes: 16384, start_bytes: 4096 };
        let holds = |offset_bytes, len_bytes| {
            reach.holds(&Transfer {
                op: qpair_block::Op::Read,
                force_unit_access: false,
                atomic: false,
                offset_bytes,
                len_bytes,
                address: std::ptr::null_mut(),
                pieces: 0,
                arena_id: 0,
            })
        };
        assert!(holds(0, 4096) && holds(0, 8192));
        assert!(!holds(0, 8704));
        // The chunk ends 12 KiB into the device.
        assert!(holds(8192, 4096) && holds(12288, 8192));
        assert!(!holds(8192, 8192) && !holds(12288 - 512, 1024));
    }

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
