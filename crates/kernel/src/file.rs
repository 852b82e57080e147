//! Opens a regular file or a whole block device; its geometry, and its growth.
//!
//! Invariants:
//! - `size_bytes` is a multiple of the logical block. While the file is open it shrinks only where
//!   its user has no request.
//! - A file that grew has its space reserved up to `size_bytes`, except for old holes on a file
//!   system that cannot reserve space. A file that could not grow has its old size.

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_block::locks::Mutex;
use qpair_block::{ByteLocks, DeviceInfo, Error, ErrorKind, Extent, Result};
use rustix::fs::{FlockOperation, SeekFrom, flock, ftruncate, seek};
use rustix::io::Errno;

use crate::byte_locks;
use crate::geometry::{atomic_writes, geometry, has_volatile_cache, is_set_read_only};
use crate::holder::LockHolder;
use crate::nowait::needs_threads;
use crate::request::TRANSFER_BYTES_MAX;
use crate::space::{Grid, by_fallocate, by_zeros, by_zeros_behind, check_free, reserve_holes};

const DEPTH_MAX: u32 = 16384;

#[derive(Clone, Debug)]
pub struct FileOptions {
    /// A regular file or a block device.
    pub path: PathBuf,
    /// Make a new file of this many bytes, with its space reserved. The path must not exist.
    pub create: Option<u64>,
    /// Open for reading only. Default: false.
    pub read_only: bool,
    /// Take the advisory lock: exclusive, or shared if read-only. The lock excludes other processes
    /// that take it. With the lock, a mounted or held block device is refused; without it, the
    /// device is opened anyway. Default: true.
    pub exclusive_lock: bool,
    /// Bypass the page cache (O_DIRECT). Without it, writes stay in the cache until a flush.
    /// Default: true.
    pub direct: bool,
    /// Accept requests of any size at any offset of a regular file: a logical block of one byte.
    /// Works only through the page cache; ignored for direct I/O and for block devices. Default:
    /// false.
    pub byte_blocks: bool,
}

impl FileOptions {
    /// Returns the options for an existing file or device: for reading and writing, locked,
    /// bypassing the page cache.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            create: None,
            read_only: false,
            exclusive_lock: true,
            direct: true,
            byte_blocks: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    BlockDevice,
}

#[derive(Debug)]
pub(crate) struct File {
    fd: OwnedFd,
    pub(crate) kind: Kind,
    pub(crate) direct: bool,
    /// Whether this process holds a lock: no other process that takes locks has the file open or
    /// may write to it.
    is_locked: bool,
    /// The capabilities on any interface; interface and mode are left empty here.
    pub(crate) limits: DeviceInfo,
    size_bytes: AtomicU64,
    /// The number of bytes that are known to be reserved: 0 after opening, whatever the file has,
    /// and the whole size after the first growth. The mutex also serializes growth.
    reserved_bytes: Mutex<u64>,
}

impl File {
    pub(crate) fn open(options: &FileOptions) -> Result<Self> {
        let name = options.path.display().to_string();
        if options.create.is_some() && options.read_only {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{name} cannot be created read-only"),
            ));
        }
        let kind = match options.create {
            Some(_) => Kind::Regular,
            None => kind_of(&options.path, &name)?,
        };
        let fd = open_fd(options, kind, &name)?;
        if options.exclusive_lock {
            lock(&fd, options.read_only, &name)?;
        }
        Self::take(fd, options, kind, name).inspect_err(|_| {
            if options.create.is_some() {
                // This call created and locked the file, and no caller can use it.
                let _ = std::fs::remove_file(&options.path);
            }
        })
    }

    fn take(fd: OwnedFd, options: &FileOptions, kind: Kind, name: String) -> Result<Self> {
        let handle = std::fs::File::from(fd);
        let geometry = geometry(&handle, kind, options, &name)?;
        let (atomic_write_bytes_min, atomic_write_bytes) =
            if options.direct { atomic_writes(&handle) } else { (0, 0) };
        let limits = DeviceInfo {
            name,
            interface: String::new(),
            mode: String::new(),
            logical_block_bytes: geometry.logical_block_bytes,
            memory_alignment_bytes: geometry.memory_alignment_bytes,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            atomic_write_bytes_min,
            atomic_write_bytes,
            // A regular file has more volatile state than its drive: extents that are not yet
            // marked as written.
            volatile_write_cache: kind == Kind::Regular || has_volatile_cache(&handle),
            read_only: options.read_only || (kind != Kind::Regular && is_set_read_only(&handle)),
            discards: true,
            writes_zeroes: true,
            growable: kind == Kind::Regular && !options.read_only,
            depth_max: DEPTH_MAX,
            shared_memory: false,
        };
        let file = Self {
            fd: handle.into(),
            kind,
            direct: options.direct,
            is_locked: options.exclusive_lock,
            limits,
            size_bytes: AtomicU64::new(geometry.size_bytes),
            reserved_bytes: Mutex::new(0),
        };
        if let Some(bytes) = options.create {
            file.fill_new(bytes, &options.path)?;
        }
        Ok(file)
    }

    /// Gives a new file its size, and makes its directory entry durable.
    fn fill_new(&self, bytes: u64, path: &Path) -> Result<()> {
        self.grow(bytes)?;
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        rustix::fs::fsync(&self.fd)
            .map_err(io::Error::from)
            .and_then(|()| std::fs::File::open(parent)?.sync_all())
            .map_err(|cause| Error::os(cause, format!("syncing the new file {}", self.name())))
    }

    /// Returns the descriptor's number, valid while `self` lives.
    #[inline]
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Returns the major and minor number of the block device, or of the one below the file.
    pub(crate) fn drive(&self) -> (u32, u32) {
        let device = rustix::fs::fstat(&self.fd).map_or(0, |stat| match self.kind {
            Kind::BlockDevice => stat.st_rdev,
            Kind::Regular => stat.st_dev,
        });
        (rustix::fs::major(device), rustix::fs::minor(device))
    }

    pub(crate) fn name(&self) -> &str {
        &self.limits.name
    }

    #[inline]
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Returns the extent that begins at an offset. Space that was reserved and not written counts
    /// as a hole, as file systems have it.
    pub(crate) fn extent(&self, offset_bytes: u64, len_bytes: u64) -> Extent {
        let all_data = Extent { len_bytes, is_hole: false };
        if self.kind == Kind::BlockDevice || i64::try_from(offset_bytes).is_err() {
            return all_data;
        }
        // All requests name their offset, so nothing depends on the file's own.
        let (end, is_hole) = match seek(&self.fd, SeekFrom::Data(offset_bytes)) {
            Ok(data) if data > offset_bytes => (data, true),
            Ok(_) => match seek(&self.fd, SeekFrom::Hole(offset_bytes)) {
                Ok(hole) => (hole, false),
                Err(_) => return all_data,
            },
            // There is no data behind the offset.
            Err(Errno::NXIO) if offset_bytes < self.size_bytes() => (u64::MAX, true),
            Err(_) => return all_data,
        };
        let len_bytes = len_bytes.min(end.saturating_sub(offset_bytes)).max(1);
        Extent { len_bytes, is_hole }
    }

    /// Whether the file no longer has a name.
    pub(crate) fn is_removed(&self) -> bool {
        self.kind != Kind::BlockDevice
            && rustix::fs::fstat(&self.fd).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Makes the file at least `wanted` bytes large, with all of its space reserved.
    pub(crate) fn grow(&self, wanted: u64) -> Result<()> {
        let mut reserved = self.reserved_bytes.lock();
        let old = self.size_bytes();
        if wanted <= old {
            return Ok(());
        }
        if self.kind == Kind::BlockDevice {
            let what = format!("{} has {old} bytes and cannot have {wanted}", self.name());
            return Err(
                Error::new(ErrorKind::NoSpace, what).hint("a block device has a fixed size")
            );
        }
        if self.limits.read_only {
            let what = format!("{} is open for reading only and cannot grow", self.name());
            return Err(Error::new(ErrorKind::ReadOnly, what));
        }
        let new = wanted
            .checked_next_multiple_of(u64::from(self.limits.logical_block_bytes))
            .filter(|&new| i64::try_from(new).is_ok())
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::NoSpace,
                    format!("{} cannot have {wanted} bytes", self.name()),
                )
            })?;
        self.reserve(*reserved, old, new).map_err(|cause| {
            // A part of the range may have been reserved, which may have changed the size.
            let _ = ftruncate(&self.fd, old);
            grow_error(cause, self.name(), old, new)
        })?;
        *reserved = new;
        self.size_bytes.store(new, Ordering::Relaxed);
        Ok(())
    }

    fn reserve(&self, reserved: u64, old: u64, new: u64) -> std::result::Result<(), Errno> {
        let fd = self.fd.as_fd();
        check_free(fd, reserved, new)?;
        // A killed process leaves an empty file with its old or its new size: these sizes show that
        // a store was about to be made there.
        let is_empty = self.is_locked && rustix::fs::fstat(fd)?.st_size == 0;
        if is_empty {
            ftruncate(fd, new)?;
        }
        let holes = if reserved < old { reserve_holes(fd, old) } else { Ok(()) };
        match holes.and_then(|()| by_fallocate(fd, old..new)) {
            // Holes are not filled, because others may be writing to them.
            Err(Errno::OPNOTSUPP) if is_empty => by_zeros_behind(0, fd, old..new, self.grid()),
            Err(Errno::OPNOTSUPP) => by_zeros(fd, old..new, self.grid()),
            outcome => outcome,
        }
    }

    fn grid(&self) -> Grid {
        Grid {
            block_bytes: self.limits.logical_block_bytes.into(),
            memory_alignment_bytes: self.limits.memory_alignment_bytes as usize,
            direct: self.direct,
        }
    }

    pub(crate) fn needs_threads(&self) -> bool {
        needs_threads(&self.fd)
    }

    /// Truncates a writable file to `wanted` bytes, rounded up to whole blocks.
    pub(crate) fn shrink(&self, wanted: u64) -> Result<()> {
        let mut reserved = self.reserved_bytes.lock();
        let old = self.size_bytes();
        let new = wanted.next_multiple_of(u64::from(self.limits.logical_block_bytes));
        if new >= old || !self.limits.growable {
            return Ok(());
        }
        ftruncate(&self.fd, new).map_err(|cause| {
            let what = format!("shrinking {} from {old} to {new} bytes", self.name());
            Error::os(cause.into(), what)
        })?;
        *reserved = new.min(*reserved);
        self.size_bytes.store(new, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Unlock explicitly, because the kernel may keep the file open for a while after the
        // descriptor is closed.
        byte_locks::unlock_all(self.fd.as_fd());
        let _ = flock(&self.fd, FlockOperation::Unlock);
    }
}

impl ByteLocks for File {
    fn lock(&self, bytes: Range<u64>, exclusive: bool) -> Result<bool> {
        byte_locks::lock(self.fd.as_fd(), &bytes, exclusive, self.name())
    }

    fn unlock(&self, bytes: Range<u64>) -> Result<()> {
        byte_locks::unlock(self.fd.as_fd(), &bytes, self.name())
    }

    fn locked_by_others(&self, bytes: Range<u64>) -> Result<Option<Range<u64>>> {
        byte_locks::locked_by_others(self.fd.as_fd(), &bytes, self.name())
    }
}

fn grow_error(cause: Errno, name: &str, old: u64, new: u64) -> Error {
    let error = Error::os(cause.into(), format!("growing {name} from {old} to {new} bytes"));
    match cause {
        Errno::NOSPC | Errno::DQUOT => {
            error.hint("free space on the file system, or raise the quota")
        }
        _ => error,
    }
}

fn kind_of(path: &Path, name: &str) -> Result<Kind> {
    let metadata = std::fs::metadata(path).map_err(|cause| {
        let missing = cause.kind() == io::ErrorKind::NotFound;
        let error = Error::os(cause, format!("opening {name}"));
        if missing { error.hint("create it first, or check the path") } else { error }
    })?;
    let file_type = metadata.file_type();
    let other = if file_type.is_file() {
        return Ok(Kind::Regular);
    } else if file_type.is_block_device() {
        return Ok(Kind::BlockDevice);
    } else if file_type.is_dir() {
        "a directory"
    } else if file_type.is_char_device() {
        "a character device"
    } else {
        "a pipe or socket"
    };
    Err(Error::new(ErrorKind::Invalid, format!("{name} is {other}"))
        .hint("give a regular file or a block device"))
}

fn open_fd(options: &FileOptions, kind: Kind, name: &str) -> Result<OwnedFd> {
    let mut flags = libc::O_CLOEXEC;
    if options.direct {
        flags |= libc::O_DIRECT;
    }
    if kind == Kind::BlockDevice && options.exclusive_lock {
        // Without O_CREAT: refuse a device that is mounted or held.
        flags |= libc::O_EXCL;
    }
    let opened = OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .create_new(options.create.is_some())
        .mode(0o600)
        .custom_flags(flags)
        .open(&options.path);
    opened.map(OwnedFd::from).map_err(|cause| {
        let errno = cause.raw_os_error();
        if errno == Some(libc::EINVAL) && options.direct {
            if options.create.is_some() {
                // The kernel made the directory entry before it found the error.
                let _ = std::fs::remove_file(&options.path);
            }
            let what = format!("the file system of {name} has no direct I/O (O_DIRECT)");
            return Error::new(ErrorKind::Unsupported, what)
                .caused_by(cause)
                .of_direct_io()
                .hint("use a file system on a drive, such as ext4 or xfs, or open it buffered");
        }
        let error = Error::os(cause, format!("opening {name}"));
        match errno {
            Some(libc::EBUSY) => error.hint("it is mounted, or another program holds it"),
            Some(libc::EROFS) if options.create.is_some() => {
                error.hint("the file system takes no files: choose a place on another")
            }
            Some(libc::EROFS) => error.hint("open it read-only"),
            Some(libc::EEXIST) if !options.path.exists() => error.hint(
                "it is a symbolic link to a place where there is nothing: give that place, or remove the link",
            ),
            Some(libc::EACCES | libc::EPERM) => error.hint("check the permissions of the file"),
            _ => error,
        }
    })
}

pub(crate) fn lock(fd: &OwnedFd, shared: bool, name: &str) -> Result<()> {
    let operation = if shared {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    flock(fd, operation).map_err(|cause| match cause {
        Errno::WOULDBLOCK => busy(name, LockHolder::of_open(fd)),
        _ => Error::os(cause.into(), format!("locking {name}")),
    })
}

fn busy(name: &str, holder: Option<LockHolder>) -> Error {
    let by = match &holder {
        Some(LockHolder { process_id, name: Some(program) }) => {
            format!(", by process {process_id} ({program})")
        }
        Some(LockHolder { process_id, name: None }) => {
            format!(
                ": process {process_id} has ended, and the kernel has not let go of its files yet"
            )
        }
        None => String::new(),
    };
    Error::new(ErrorKind::Busy, format!("{name} is already open elsewhere{by}")).hint(
        match holder {
            Some(LockHolder { name: None, .. }) => "try again in a moment",
            _ => "close it there (a program lets it go with the last handle of it); only readers can have it open together",
        },
    )
}
