//! The geometry of a file or block device as the kernel tells it: blocks, alignments, the lengths
//! of atomic writes, whether it refuses writes, and whether it has a cache that loses power.

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use qpair_block::{Error, ErrorKind, Result};

use crate::file::{FileOptions, Kind};

/// The logical block of a file system that does not report one, bytes.
const LOGICAL_BLOCK_DEFAULT: u32 = 512;
/// A memory alignment that every device accepts, bytes.
const MEMORY_ALIGNMENT_DEFAULT: u32 = 4096;

/// The flag of linux/stat.h that requests the lengths of atomic writes. The libc crate has it for
/// glibc only.
const STATX_WRITE_ATOMIC: u32 = 0x10000;

pub(crate) struct Geometry {
    pub(crate) logical_block_bytes: u32,
    pub(crate) memory_alignment_bytes: u32,
    pub(crate) size_bytes: u64,
}

pub(crate) fn geometry(
    file: &std::fs::File,
    kind: Kind,
    options: &FileOptions,
    name: &str,
) -> Result<Geometry> {
    let failed = |cause| Error::os(cause, format!("reading the geometry of {name}"));
    let (logical, memory, size) = match kind {
        Kind::BlockDevice => {
            let (logical, size) = block_geometry(file).map_err(failed)?;
            let memory = direct_alignment(file).map_or(logical, |(memory, _)| memory.max(1));
            (logical, memory, size)
        }
        Kind::Regular => {
            let size = file.metadata().map_err(failed)?.size();
            match direct_alignment(file) {
                _ if !options.direct && options.byte_blocks => (1, 1, size),
                _ if !options.direct => (LOGICAL_BLOCK_DEFAULT, 1, size),
                Some((0, _)) => {
                    let what = format!("{name} cannot do direct I/O (statx says so)");
                    return Err(Error::new(ErrorKind::Unsupported, what).of_direct_io().hint(
                        "encrypted or verified files cannot; use another, or open it buffered",
                    ));
                }
                Some((memory, logical)) => (logical.max(LOGICAL_BLOCK_DEFAULT), memory, size),
                None => (LOGICAL_BLOCK_DEFAULT, MEMORY_ALIGNMENT_DEFAULT, size),
            }
        }
    };
    if !logical.is_power_of_two() || !memory.is_power_of_two() {
        let what = format!("{name} says its blocks are {logical} and its alignment {memory} bytes");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    Ok(Geometry {
        logical_block_bytes: logical,
        memory_alignment_bytes: memory,
        size_bytes: size - size % u64::from(logical),
    })
}

/// Returns the alignment of memory and of offsets for direct I/O in bytes; `None` if the kernel
/// (before 6.1) or the file system does not report it.
fn direct_alignment(file: &std::fs::File) -> Option<(u32, u32)> {
    let statx = statx(file, libc::STATX_DIOALIGN)?;
    Some((statx.stx_dio_mem_align, statx.stx_dio_offset_align))
}

/// Returns the smallest and the largest length of a write with `RWF_ATOMIC`, in bytes. The largest
/// is 0 if the kernel (before 6.11), the file system or the drive does not support such writes.
pub(crate) fn atomic_writes(file: &std::fs::File) -> (u32, u32) {
    let told = statx(file, STATX_WRITE_ATOMIC);
    told.map_or((0, 0), |it| (it.stx_atomic_write_unit_min, it.stx_atomic_write_unit_max))
}

/// Calls `statx`. Returns `None` if the answer lacks anything that `mask` requests.
fn statx(file: &std::fs::File, mask: u32) -> Option<libc::statx> {
    let empty = CString::default();
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: `empty` is a C string and `statx` a structure of the kernel's size, both alive for
    // the call; the descriptor is `file`'s.
    let failed = unsafe {
        libc::statx(file.as_raw_fd(), empty.as_ptr(), libc::AT_EMPTY_PATH, mask, &raw mut statx)
    };
    (failed == 0 && statx.stx_mask & mask == mask).then_some(statx)
}

/// Returns the logical block and the size of a block device, bytes.
fn block_geometry(file: &std::fs::File) -> io::Result<(u32, u64)> {
    let mut logical: libc::c_int = 0;
    let mut size: u64 = 0;
    // SAFETY: BLKSSZGET writes one int, BLKGETSIZE64 one u64; the descriptor is `file`'s.
    let failed = unsafe {
        libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET as _, &raw mut logical) != 0
            || libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut size) != 0
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok((u32::try_from(logical).unwrap_or(0), size))
}

/// `_IOR(0x12, 114, size_t)`, linux/fs.h.
const BLKGETSIZE64: libc::Ioctl =
    (2 << 30 | (size_of::<usize>() as u64) << 16 | 0x12 << 8 | 114) as libc::Ioctl;

/// Whether a block device was set to refuse writes (`blockdev --setro`), which opening it does not
/// reveal.
pub(crate) fn is_set_read_only(file: &std::fs::File) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    std::fs::read(format!("/sys/dev/block/{major}:{minor}/ro"))
        .is_ok_and(|text| text.trim_ascii() == b"1")
}

/// Whether the device's completed writes can be lost with power; true if it does not say.
pub(crate) fn has_volatile_cache(file: &std::fs::File) -> bool {
    let Ok(metadata) = file.metadata() else { return true };
    let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    // A partition has the queue of its disk.
    ["queue/write_cache", "../queue/write_cache"]
        .iter()
        .find_map(|leaf| std::fs::read(format!("/sys/dev/block/{major}:{minor}/{leaf}")).ok())
        .is_none_or(|text| !text.trim_ascii_start().starts_with(b"write through"))
}
