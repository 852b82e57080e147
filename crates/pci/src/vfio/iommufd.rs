//! The newer interface: the function's own file, and iommufd.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use qpair_block::{Error, Result};
use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::io::Errno;

use super::check::busy;
use super::dma::{Dma, Iommu};
use super::group::{is, open_file};
use super::ioctl::{Argument, DEVICE_ATTACH_IOMMUFD_PT, DEVICE_BIND_IOMMUFD, IOAS_ALLOC, sized};
use crate::sysfs::{Function, PciAddress, Root};

const IOMMU: &str = "/dev/iommu";

/// Returns the path of the function's own file, if the kernel has created one.
pub(super) fn file_of(root: &Root, address: PciAddress) -> Option<String> {
    let names = root.names(format!("/sys/bus/pci/devices/{address}/vfio-dev"));
    let path = format!("/dev/vfio/devices/{}", names.first()?);
    root.exists(&path).then_some(path)
}

/// Returns the path of the function's own file, if this process may use both it and iommufd.
pub(super) fn usable(root: &Root, address: PciAddress) -> Option<String> {
    let may = |path: &str| access(root.path(path), Access::READ_OK | Access::WRITE_OK).is_ok();
    file_of(root, address).filter(|path| may(path) && may(IOMMU))
}

/// Opens a function by its own file. Returns its descriptor, whose lock excludes other users, and
/// its addresses.
pub(super) fn open(root: &Root, function: &Function, path: &str) -> Result<(OwnedFd, Arc<Dma>)> {
    let address = function.address;
    let failed = |what: &'static str| move |cause| Error::os(cause, format!("{address}: {what}"));
    let fd = open_file(path).map_err(|cause| match is(&cause, Errno::BUSY) {
        true => busy(root, function),
        false => failed("opening its file")(cause),
    })?;
    // The kernel would answer a second opening only with EINVAL.
    flock(&fd, FlockOperation::NonBlockingLockExclusive).map_err(|cause| match cause {
        Errno::AGAIN => busy(root, function),
        cause => failed("locking its file")(cause.into()),
    })?;
    let iommu = open_file(IOMMU).map_err(failed("opening /dev/iommu"))?;
    sized(fd.as_fd(), DEVICE_BIND_IOMMUFD, &mut bind_argument(iommu.as_raw_fd()))
        .map_err(failed("binding it to iommufd"))?;
    let mut space = Argument::new(12);
    sized(iommu.as_fd(), IOAS_ALLOC, &mut space).map_err(failed("allocating an address space"))?;
    let ioas = space.u32(8);
    let mut attach = Argument::new(12).with_u32(8, ioas);
    sized(fd.as_fd(), DEVICE_ATTACH_IOMMUFD_PT, &mut attach)
        .map_err(failed("attaching it to an address space"))?;
    Ok((fd, Arc::new(Dma::new(Iommu::Ioas(iommu, ioas))?)))
}

/// Makes a `struct vfio_device_bind_iommufd` in the size of the first kernels, without the token's
/// address.
fn bind_argument(iommu: i32) -> Argument {
    Argument::new(16).with_u32(8, iommu as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::bind_tests::Machine;

    #[test]
    fn is_used_where_its_files_are() {
        let machine = Machine::new();
        let (root, address) = (machine.root(), PciAddress::parse("0000:03:00.0").unwrap());
        assert_eq!(usable(&root, address), None);
        machine.folder("sys/bus/pci/devices/0000:03:00.0/vfio-dev/vfio3");
        assert_eq!(file_of(&root, address), None, "not without the file");
        machine.folder("dev/vfio/devices");
        machine.file("dev/vfio/devices/vfio3", "");
        assert_eq!(file_of(&root, address).as_deref(), Some("/dev/vfio/devices/vfio3"));
        assert_eq!(usable(&root, address), None, "not without /dev/iommu");
        machine.file("dev/iommu", "");
        assert_eq!(usable(&root, address).as_deref(), Some("/dev/vfio/devices/vfio3"));
    }

    #[test]
    fn binding_as_the_headers_have_it() {
        use vfio_bindings::bindings::vfio as c;
        let argument = bind_argument(7);
        let iommufd = std::mem::offset_of!(c::vfio_device_bind_iommufd, iommufd);
        assert_eq!((argument.u32(0), argument.u32(4), argument.u32(iommufd)), (16, 0, 7));
        assert_eq!(
            size_of::<c::vfio_device_attach_iommufd_pt>(),
            16,
            "with a PASID, which comes last"
        );
        assert_eq!(std::mem::offset_of!(c::vfio_device_attach_iommufd_pt, pasid), 12);
    }
}
