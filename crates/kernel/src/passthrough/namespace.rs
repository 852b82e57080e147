//! Opens an NVMe namespace's character device and finds out its capabilities.
//!
//! Invariant: while a namespace is open for writing and locked, its block device is claimed too, so
//! that no process mounts it and no kernel driver takes it. The character device itself cannot be
//! claimed.

use std::fs::{self, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use qpair_block::{ByteLocks, DeviceInfo, Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, flock};

use super::identify::{self, Controller, NamespaceData};
use crate::byte_locks;
use crate::file::{FileOptions, lock};
use crate::io_uring::buffers::PIECE_SHIFT_MAX;
use crate::io_uring::poll_queues::way_out;

const BLOCKS_MAX: u64 = 65536;
/// A memory alignment that every controller accepts, bytes: a dword (Base §4.3).
const MEMORY_ALIGNMENT_LEAST: u32 = 4;
/// The page size of the PRPs built here, bytes.
pub(super) const PAGE_BYTES: u64 = 4096;
/// The maximum number of requests that one channel can have in flight. One entry of the largest
/// ring is left for the poll on the wake event.
const DEPTH_MAX: u32 = 16384;

#[derive(Debug)]
pub(crate) struct Namespace {
    fd: OwnedFd,
    /// The block device of the same namespace, held so that no other process claims it.
    _claim: Option<OwnedFd>,
    locked: bool,
    /// The capabilities; interface and mode are left empty here.
    pub(crate) limits: DeviceInfo,
    pub(crate) size_bytes: u64,
    pub(super) nsid: u32,
    pub(super) block_shift: u32,
    /// The maximum number of segments of one command that the kernel accepts.
    pub(super) segments_max: u64,
    /// log2 of the bytes of one registered buffer.
    pub(super) piece_shift: u32,
    pub(super) has_discard: bool,
    pub(super) has_write_zeroes: bool,
    pub(super) has_poll_queues: bool,
    pub(crate) drive: String,
}

/// The kernel's limits for a namespace's queue: /sys/block/nvmeXnY/queue.
struct Queue {
    folder: Option<PathBuf>,
}

impl Queue {
    fn number(&self, name: &str) -> Option<u64> {
        let path = self.folder.as_ref()?.join(name);
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// Returns the maximum number of bytes of one command that the kernel accepts. It refuses
    /// larger ones with EINVAL.
    fn transfer_bytes_max(&self) -> u64 {
        let bytes = self.number("max_hw_sectors_kb").map_or(128 << 10, |kib| kib << 10);
        // Each page may be a separate segment, and the first may begin in the middle of a page.
        bytes.min((self.segments_max() - 1) * PAGE_BYTES)
    }

    fn segments_max(&self) -> u64 {
        self.number("max_segments").unwrap_or(33).max(2)
    }
}

/// Whether a path is the character device of an NVMe namespace, according to the kernel's device
/// class.
pub(crate) fn is_namespace(path: &Path) -> bool {
    class_of(path).is_some_and(|class| class == "nvme-generic")
}

/// Returns the class of a character device: `nvme-generic` for namespaces, `nvme` for controllers.
fn class_of(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok().filter(|it| it.file_type().is_char_device())?;
    let class = fs::canonicalize(sys_folder(metadata.rdev()).join("subsystem")).ok()?;
    Some(class.file_name()?.to_string_lossy().into_owned())
}

fn sys_folder(number: u64) -> PathBuf {
    format!("/sys/dev/char/{}:{}", libc::major(number), libc::minor(number)).into()
}

impl Namespace {
    pub(crate) fn open(options: &FileOptions) -> Result<Self> {
        let name = options.path.display().to_string();
        if options.create.is_some() {
            return Err(Error::new(ErrorKind::Invalid, format!("{name} cannot be created"))
                .hint("io_uring_cmd needs a namespace that is there: /dev/ngXnY"));
        }
        let number = check_kind(&options.path, &name)?;
        let fd: OwnedFd = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .custom_flags(libc::O_CLOEXEC)
            .open(&options.path)
            .map_err(|cause| denied(cause, format!("opening {name}")))?
            .into();
        let nsid = identify::namespace_id(fd.as_fd()).map_err(|cause| {
            Error::new(ErrorKind::Invalid, format!("{name} is not an NVMe namespace"))
                .caused_by(cause)
                .hint("give /dev/ngXnY: X is the controller, Y the namespace")
        })?;
        let sibling = sibling(number);
        let mut claim = None;
        if options.exclusive_lock {
            lock(&fd, options.read_only, &name)?;
            if !options.read_only {
                let block =
                    sibling.as_deref().ok_or_else(|| unclaimed(&name, "its block device"))?;
                claim = Some(claim_block(block, &name)?);
            }
        }
        let asked = |what: &str| {
            let context = format!("reading the {what} of {name}");
            move |cause| denied(cause, context)
        };
        let controller = identify::controller(fd.as_fd()).map_err(asked("controller's limits"))?;
        let namespace = identify::namespace(fd.as_fd(), nsid).map_err(asked("size and format"))?;
        check_format(&namespace, &name)?;
        let queue =
            Queue { folder: sibling.map(|it| Path::new("/sys/block").join(it).join("queue")) };
        Ok(Self {
            limits: limits(name, options.read_only, &controller, &namespace, &queue),
            fd,
            _claim: claim,
            locked: options.exclusive_lock,
            size_bytes: namespace.blocks << namespace.block_shift,
            nsid,
            block_shift: namespace.block_shift,
            segments_max: queue.segments_max(),
            piece_shift: PIECE_SHIFT_MAX,
            has_discard: controller.has_dataset_management,
            has_write_zeroes: controller.has_write_zeroes,
            has_poll_queues: queue.number("io_poll") == Some(1),
            drive: format!(
                "{} (serial {}, firmware {}), namespace {nsid}",
                controller.model, controller.serial, controller.firmware
            ),
        })
    }

    /// Returns the descriptor's number, valid while `self` lives.
    #[inline]
    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) fn check_polling(&self) -> Result<()> {
        if self.has_poll_queues {
            return Ok(());
        }
        let what =
            format!("{} cannot be polled (+p): its drive has no poll queues", self.limits.name);
        Err(Error::new(ErrorKind::Unsupported, what).hint(way_out("nvme", Path::new(""))))
    }

    /// Succeeds if `wanted` bytes are no more than the namespace's fixed size.
    pub(crate) fn grow(&self, wanted: u64) -> Result<()> {
        if wanted <= self.size_bytes {
            return Ok(());
        }
        let (name, has) = (&self.limits.name, self.size_bytes);
        let what = format!("{name} has {has} bytes and cannot have {wanted}");
        Err(Error::new(ErrorKind::NoSpace, what).hint("a namespace has a fixed size"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        byte_locks::unlock_all(self.fd.as_fd());
        if self.locked {
            // Unlock explicitly, because the kernel may keep the file open for a while after the
            // descriptor is closed.
            let _ = flock(&self.fd, FlockOperation::Unlock);
        }
    }
}

impl ByteLocks for Namespace {
    fn lock(&self, bytes: Range<u64>, exclusive: bool) -> Result<bool> {
        byte_locks::lock(self.fd.as_fd(), &bytes, exclusive, &self.limits.name)
    }

    fn unlock(&self, bytes: Range<u64>) -> Result<()> {
        byte_locks::unlock(self.fd.as_fd(), &bytes, &self.limits.name)
    }

    fn locked_by_others(&self, bytes: Range<u64>) -> Result<Option<Range<u64>>> {
        byte_locks::locked_by_others(self.fd.as_fd(), &bytes, &self.limits.name)
    }
}

/// Returns the device's number, if it may be a namespace.
fn check_kind(path: &Path, name: &str) -> Result<u64> {
    let metadata =
        fs::metadata(path).map_err(|cause| Error::os(cause, format!("opening {name}")))?;
    let refuse = |what: &str, hint: String| {
        Err(Error::new(
            ErrorKind::Invalid,
            format!("{name} is {what}: io_uring_cmd sends NVMe commands"),
        )
        .hint(hint))
    };
    let general = || "give the character device of a namespace, /dev/ngXnY".to_owned();
    if metadata.file_type().is_block_device() {
        let device = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        return match device.strip_prefix("nvme").filter(|rest| !rest.contains('p')) {
            Some(rest) => {
                refuse("a block device", format!("its character device is /dev/ng{rest}"))
            }
            None => refuse("a block device", general()),
        };
    }
    if !metadata.file_type().is_char_device() {
        return refuse("not a character device", general());
    }
    match class_of(path).as_deref() {
        // Without /sys, the driver's own answer decides.
        Some("nvme-generic") | None => Ok(metadata.rdev()),
        Some("nvme") => refuse("a controller, not a namespace", general()),
        Some(_) => refuse("not an NVMe device", general()),
    }
}

/// Returns the name of the block device of the same namespace: `nvme0n1` for `ng0n1`.
fn sibling(number: u64) -> Option<String> {
    let folder = fs::canonicalize(sys_folder(number)).ok()?;
    let name = folder.file_name()?.to_str()?;
    Some(format!("nvme{}", name.strip_prefix("ng")?))
}

/// Makes the error for a namespace without a block device to claim. Its other users may be
/// invisible here, for example mounts in a container's own mount namespace.
fn unclaimed(name: &str, block: &str) -> Error {
    let what = format!("{name} cannot be written: {block} is missing, so it cannot be claimed");
    Error::new(ErrorKind::Busy, what)
        .hint("make the block device beside it available here too, or open it read-only")
}

/// Claims the block device of a namespace, so that no other process can mount or claim it.
fn claim_block(block: &str, name: &str) -> Result<OwnedFd> {
    let path = Path::new("/dev").join(block);
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_EXCL)
        .open(&path)
        .map(OwnedFd::from);
    let cause = match opened {
        Ok(claim) => return Ok(claim),
        Err(cause) => cause,
    };
    let (errno, users) = (cause.raw_os_error(), users_of(block));
    let out_of_reach = matches!(errno, Some(libc::ENOENT | libc::EACCES | libc::EPERM));
    if out_of_reach && users.is_empty() {
        return Err(unclaimed(name, &path.display().to_string()).caused_by(cause));
    }
    let path = path.display();
    if out_of_reach || errno == Some(libc::EBUSY) {
        let users = if users.is_empty() { users } else { format!(" ({users})") };
        let what = format!("{name} cannot be written: its block device {path} is in use{users}");
        return Err(Error::new(ErrorKind::Busy, what)
            .caused_by(cause)
            .hint("unmount it and stop what holds it, or open it read-only"));
    }
    Err(denied(cause, format!("claiming {path}, the block device of {name}, against mounts")))
}

/// Describes the users of a block device or of its partitions: "mounted at /mnt". Empty if none is
/// found.
fn users_of(block: &str) -> String {
    let mut users = Vec::new();
    let folder = Path::new("/sys/block").join(block);
    let mut devices = vec![folder.clone()];
    let parts = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    devices.extend(parts.filter(|path| path.join("partition").exists()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    for device in devices {
        let number = fs::read_to_string(device.join("dev")).unwrap_or_default();
        // In mountinfo, the third word is the device's number, and the fifth the mount point.
        for mount in mounts.lines() {
            let words: Vec<&str> = mount.split(' ').collect();
            if let [_, _, device, _, place, ..] = words[..]
                && device == number.trim()
            {
                users.push(format!("mounted at {place}"));
            }
        }
        let node = device.file_name().map(|name| Path::new("/dev").join(name)).unwrap_or_default();
        if swaps.lines().any(|swap| swap.split(' ').next().is_some_and(|it| Path::new(it) == node))
        {
            users.push(format!("swap on {}", node.display()));
        }
        let holders = fs::read_dir(device.join("holders")).into_iter().flatten().flatten();
        users.extend(holders.map(|holder| format!("held by {}", holder.file_name().display())));
    }
    users.join(", ")
}

fn check_format(namespace: &NamespaceData, name: &str) -> Result<()> {
    let unusable = |what: String, hint: &str| {
        Err(Error::new(ErrorKind::Unsupported, format!("{name} {what}")).hint(hint))
    };
    if namespace.metadata_bytes > 0 {
        let bytes = namespace.metadata_bytes;
        return unusable(
            format!("has {bytes} bytes of metadata with each block"),
            "format it without (nvme format --lbaf=N erases it), or use its block device",
        );
    }
    if namespace.blocks == 0 || !(9..=16).contains(&namespace.block_shift) {
        let (blocks, shift) = (namespace.blocks, namespace.block_shift);
        return unusable(
            format!("has {blocks} blocks of 2^{shift} bytes"),
            "a namespace with blocks of 512 bytes to 64 KiB is needed",
        );
    }
    if namespace.blocks > u64::MAX >> namespace.block_shift {
        return unusable("is larger than can be addressed in bytes".to_owned(), "use another");
    }
    Ok(())
}

fn limits(
    name: String,
    read_only: bool,
    controller: &Controller,
    namespace: &NamespaceData,
    queue: &Queue,
) -> DeviceInfo {
    let block_bytes = 1u64 << namespace.block_shift;
    let transfer = controller
        .transfer_bytes_max
        .unwrap_or(u64::MAX)
        .min(queue.transfer_bytes_max())
        .min(BLOCKS_MAX * block_bytes)
        .max(block_bytes);
    let alignment = queue.number("dma_alignment").map_or(0, |mask| mask as u32 + 1);
    DeviceInfo {
        name,
        interface: String::new(),
        mode: String::new(),
        logical_block_bytes: block_bytes as u32,
        memory_alignment_bytes: alignment.max(MEMORY_ALIGNMENT_LEAST).next_power_of_two(),
        transfer_bytes_max: (transfer / block_bytes * block_bytes).min(1 << 30) as u32,
        atomic_write_bytes_min: block_bytes as u32,
        atomic_write_bytes: identify::atomic_bytes(controller, namespace).min(transfer) as u32,
        volatile_write_cache: controller.volatile_write_cache,
        read_only,
        discards: controller.has_dataset_management,
        writes_zeroes: controller.has_write_zeroes,
        growable: false,
        depth_max: DEPTH_MAX,
        shared_memory: false,
    }
}

fn denied(cause: io::Error, context: String) -> Error {
    let errno = cause.raw_os_error();
    let error = Error::os(cause, context);
    match errno {
        Some(libc::EACCES | libc::EPERM) => error.hint(
            "NVMe commands take root, or CAP_SYS_ADMIN, or (Linux 6.2 and later) permission on /dev/ngXnY for reads, writes and Identify",
        ),
        Some(libc::ENOENT) => error.hint("check the path"),
        _ => error,
    }
}

#[cfg(test)]
impl Namespace {
    /// Returns a fictitious namespace of 1 MiB with blocks of 512 bytes and commands of at most 8
    /// KiB.
    pub(super) fn imagined(volatile_write_cache: bool, knows_all_verbs: bool) -> Self {
        let fd = std::fs::File::open("/dev/null").unwrap();
        Self {
            fd: fd.into(),
            _claim: None,
            locked: false,
            limits: DeviceInfo {
                name: "imagined".into(),
                interface: String::new(),
                mode: String::new(),
                logical_block_bytes: 512,
                memory_alignment_bytes: MEMORY_ALIGNMENT_LEAST,
                transfer_bytes_max: 8192,
                atomic_write_bytes_min: 512,
                atomic_write_bytes: 512,
                volatile_write_cache,
                read_only: false,
                discards: knows_all_verbs,
                writes_zeroes: knows_all_verbs,
                growable: false,
                depth_max: DEPTH_MAX,
                shared_memory: false,
            },
            size_bytes: 1 << 20,
            nsid: 1,
            block_shift: 9,
            segments_max: 127,
            piece_shift: PIECE_SHIFT_MAX,
            has_discard: knows_all_verbs,
            has_write_zeroes: knows_all_verbs,
            has_poll_queues: false,
            drive: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &str) -> String {
        let error = Namespace::open(&FileOptions::new(path)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound), "{error}");
        error.to_string()
    }

    #[test]
    fn polling_takes_poll_queues() {
        let error = Namespace::imagined(true, true).check_polling().unwrap_err();
        assert!(error.way_out().unwrap().contains("nvme.poll_queues="), "{error}");
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        assert!(refusal("/dev/null").contains("not an NVMe device"));
        assert!(refusal("/").contains("not a character device"));
        assert!(refusal("/dev/ng-not-there").contains("No such file"));
        assert!(!is_namespace(Path::new("/dev/null")));
        let new = FileOptions { create: Some(4096), ..FileOptions::new("/dev/null") };
        assert_eq!(Namespace::open(&new).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
