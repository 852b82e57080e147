//! The older interface: containers and groups.
//!
//! - The kernel lets a group be opened only once. Functions of one group in this program share it
//!   through a list of the open groups.
//! - A function of a group can be opened only once, although the kernel would allow more.

use qpair_memory::locks::Mutex;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};

use qpair_block::{Error, ErrorKind, Result};
use rustix::io::Errno;

use super::check::{busy, denied, group_path, modprobe, not_viable};
use super::dma::{Dma, Iommu};
use super::ioctl::{
    Argument, CHECK_EXTENSION, GET_API_VERSION, GROUP_GET_STATUS, SET_IOMMU, TYPE1V2, device_of,
    plain, set_container, sized,
};
use crate::sysfs::{Function, PciAddress, Root};

const CONTAINER: &str = "/dev/vfio/vfio";
const STATUS_VIABLE: u32 = 1;

#[derive(Debug)]
struct Group {
    fd: OwnedFd,
    number: u32,
    dma: Arc<Dma>,
    open: Mutex<Vec<PciAddress>>,
}

/// The claim that this program has a function of a group open. Dropping it releases the function.
#[derive(Debug)]
pub(super) struct Claim {
    group: Arc<Group>,
    address: PciAddress,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut open = self.group.open.lock();
        open.retain(|address| *address != self.address);
    }
}

static OPEN: Mutex<Vec<Weak<Group>>> = Mutex::new(Vec::new());

/// Opens a function by its group. Returns its descriptor, its addresses and the claim that excludes
/// other users.
pub(super) fn open(root: &Root, function: &Function) -> Result<(OwnedFd, Arc<Dma>, Claim)> {
    let address = function.address;
    // Held until the group is in the list, so that two threads do not open it twice.
    let mut groups = OPEN.lock();
    groups.retain(|group| group.strong_count() > 0);
    let known = groups.iter().filter_map(Weak::upgrade);
    let group = match known.into_iter().find(|group| Some(group.number) == function.iommu_group) {
        Some(group) => group,
        None => {
            let group = Arc::new(Group::open(root, function)?);
            groups.push(Arc::downgrade(&group));
            group
        }
    };
    drop(groups);
    {
        let mut open = group.open.lock();
        if open.contains(&address) {
            return Err(busy(root, function));
        }
        open.push(address);
    }
    let dma = group.dma.clone();
    let claim = Claim { group, address };
    let fd = device_of(claim.group.fd.as_fd(), &address.to_string())
        .map_err(|cause| Error::os(cause, format!("{address}: taking it from its group")))?;
    Ok((fd, dma, claim))
}

impl Group {
    fn open(root: &Root, function: &Function) -> Result<Self> {
        let address = function.address;
        let number = function.iommu_group.unwrap_or_default();
        let container = open_container(address)?;
        let path = group_path(number);
        let group = open_file(&path).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::PermissionDenied => denied(address, &path, cause),
            _ if is(&cause, Errno::BUSY) => busy(root, function),
            _ => Error::os(cause, format!("{address}: opening {path}")),
        })?;
        let failed = |what: &'static str| {
            move |cause| Error::os(cause, format!("{address}: {what} (group {number})"))
        };
        let mut status = Argument::new(8);
        sized(group.as_fd(), GROUP_GET_STATUS, &mut status)
            .map_err(failed("reading the state of its group"))?;
        if status.u32(4) & STATUS_VIABLE == 0 {
            return Err(not_viable(function));
        }
        set_container(group.as_fd(), container.as_fd())
            .map_err(failed("adding its group to a container"))?;
        plain(container.as_fd(), SET_IOMMU, TYPE1V2).map_err(|cause| {
            let unsafe_interrupts = is(&cause, Errno::PERM);
            let error = failed("setting up the IOMMU")(cause);
            match unsafe_interrupts {
                true => error.hint(
                    "the IOMMU does not check interrupts (no interrupt remapping): turn it on in the firmware, or in QEMU by \
                     intremap=on; or trust the drive: modprobe vfio_iommu_type1 allow_unsafe_interrupts=1",
                ),
                false => error,
            }
        })?;
        let dma = Arc::new(Dma::new(Iommu::Container(container))?);
        Ok(Self { fd: group, number, dma, open: Mutex::default() })
    }
}

fn open_container(address: PciAddress) -> Result<OwnedFd> {
    let container = open_file(CONTAINER).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::PermissionDenied => denied(address, CONTAINER, cause),
        std::io::ErrorKind::NotFound => {
            let context = format!("{address}: VFIO is not there ({CONTAINER})");
            Error::new(ErrorKind::Unsupported, context).hint(modprobe())
        }
        _ => Error::os(cause, format!("{address}: opening {CONTAINER}")),
    })?;
    let version = plain(container.as_fd(), GET_API_VERSION, 0)
        .map_err(|cause| Error::os(cause, format!("{CONTAINER}: asking for its version")))?;
    let type1 = plain(container.as_fd(), CHECK_EXTENSION, TYPE1V2).unwrap_or(0);
    if version != 0 || type1 == 0 {
        let context = format!("{CONTAINER} has no IOMMU of a kind known here (version {version})");
        return Err(Error::new(ErrorKind::Unsupported, context)
            .hint("modprobe vfio_iommu_type1; other than x86 and ARM are not supported"));
    }
    Ok(container)
}

pub(super) fn open_file(path: impl AsRef<Path>) -> std::io::Result<OwnedFd> {
    File::options().read(true).write(true).open(path).map(OwnedFd::from)
}

pub(super) fn is(cause: &std::io::Error, errno: Errno) -> bool {
    cause.raw_os_error() == Some(errno.raw_os_error())
}
