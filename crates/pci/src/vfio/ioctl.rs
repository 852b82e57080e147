//! The system calls of VFIO and iommufd (linux/vfio.h, linux/iommufd.h).
//!
//! - Arguments are bytes, written and read with bounds checks. All calls except the oldest take a
//!   structure that begins with its own size, which the kernel does not exceed: [`Argument`].
//! - The two calls that take an address in this program's memory are separate functions.

use std::ffi::{CString, c_int, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use qpair_memory::{Arena, Mapping};

/// The ioctl type of both interfaces.
const TYPE: c_ulong = b';' as c_ulong;

/// A call whose argument is an [`Argument`] without addresses.
#[derive(Clone, Copy)]
pub(super) struct Sized(c_ulong);

/// A call whose argument is a number.
#[derive(Clone, Copy)]
pub(super) struct Plain(c_ulong);

const fn vfio(number: c_ulong) -> c_ulong {
    TYPE << 8 | (100 + number)
}

const fn iommufd(number: c_ulong) -> c_ulong {
    TYPE << 8 | number
}

pub(super) const GET_API_VERSION: Plain = Plain(vfio(0));
pub(super) const CHECK_EXTENSION: Plain = Plain(vfio(1));
pub(super) const SET_IOMMU: Plain = Plain(vfio(2));
pub(super) const GROUP_GET_STATUS: Sized = Sized(vfio(3));
const GROUP_SET_CONTAINER: c_ulong = vfio(4);
const GROUP_GET_DEVICE_FD: c_ulong = vfio(6);
pub(super) const DEVICE_GET_INFO: Sized = Sized(vfio(7));
pub(super) const DEVICE_GET_REGION_INFO: Sized = Sized(vfio(8));
pub(super) const DEVICE_GET_IRQ_INFO: Sized = Sized(vfio(9));
pub(super) const DEVICE_SET_IRQS: Sized = Sized(vfio(10));
pub(super) const DEVICE_RESET: Plain = Plain(vfio(11));
pub(super) const IOMMU_GET_INFO: Sized = Sized(vfio(12));
const IOMMU_MAP_DMA: c_ulong = vfio(13);
/// Used with flags of 0: no bitmap follows.
pub(super) const IOMMU_UNMAP_DMA: Sized = Sized(vfio(14));
/// Used with flags of 0: no token follows.
pub(super) const DEVICE_BIND_IOMMUFD: Sized = Sized(vfio(18));
pub(super) const DEVICE_ATTACH_IOMMUFD_PT: Sized = Sized(vfio(19));
pub(super) const IOAS_ALLOC: Sized = Sized(iommufd(0x81));
const IOAS_IOVA_RANGES: c_ulong = iommufd(0x84);
const IOAS_MAP: c_ulong = iommufd(0x85);
pub(super) const IOAS_UNMAP: Sized = Sized(iommufd(0x86));

/// `VFIO_TYPE1v2_IOMMU`.
pub(super) const TYPE1V2: usize = 3;

/// A structure that begins with its size in bytes.
pub(super) struct Argument(Vec<u8>);

impl Argument {
    /// Makes a structure that is zero except for its size.
    pub(super) fn new(len: u32) -> Self {
        let mut bytes = vec![0; len as usize];
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        Self(bytes)
    }

    #[must_use]
    pub(super) fn with_u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    #[must_use]
    pub(super) fn with_u64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32_at(&self.0, at)
    }

    #[cfg(test)]
    pub(super) fn u64(&self, at: usize) -> u64 {
        u64_at(&self.0, at)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the integer at an offset, or 0 if it does not lie inside.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u64::from_ne_bytes(*word))
}

fn answer(status: c_int) -> io::Result<u32> {
    u32::try_from(status).map_err(|_| io::Error::last_os_error())
}

pub(super) fn plain(fd: BorrowedFd<'_>, call: Plain, value: usize) -> io::Result<u32> {
    // SAFETY: `Plain` calls take a number or nothing, and access no memory of this program.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), call.0 as _, value) })
}

pub(super) fn sized(fd: BorrowedFd<'_>, call: Sized, argument: &mut Argument) -> io::Result<u32> {
    // An earlier call may have let the kernel change the size.
    let len = argument.0.len() as u32;
    argument.0[..4].copy_from_slice(&len.to_ne_bytes());
    // SAFETY: `Sized` calls read and write at most as many bytes as the first word says, which is
    // the length of the vector. They access no other memory, because their structures hold no
    // addresses with the flags in use here.
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), call.0 as _, argument.0.as_mut_ptr()) })
}

pub(super) fn set_container(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
    let container: c_int = container.as_raw_fd();
    // SAFETY: the call reads one int.
    let status =
        unsafe { libc::ioctl(group.as_raw_fd(), GROUP_SET_CONTAINER as _, &raw const container) };
    answer(status).map(drop)
}

pub(super) fn device_of(group: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    // SAFETY: the call reads a zero-terminated text, which `name` is.
    let fd = unsafe { libc::ioctl(group.as_raw_fd(), GROUP_GET_DEVICE_FD as _, name.as_ptr()) };
    answer(fd)?;
    // SAFETY: the call has created this descriptor, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The address space in which memory is opened to devices.
pub(super) enum Opening<'a> {
    Container(&'a OwnedFd),
    Ioas(&'a OwnedFd, u32),
}

/// Memory that is opened to devices as a whole mapping.
#[derive(Clone, Copy, Debug)]
pub(super) enum Memory<'a> {
    Arena(&'a Arena),
    Region(&'a Mapping),
}

impl Memory<'_> {
    /// Returns the first address and the number of bytes.
    pub(super) fn range(self) -> (u64, u64) {
        match self {
            Self::Arena(arena) => (arena.region().0 as u64, arena.mapped_bytes() as u64),
            Self::Region(region) => {
                let (address, len) = region.region();
                (address as u64, len as u64)
            }
        }
    }
}

/// Opens memory to devices for reading and writing.
pub(super) fn map(opening: &Opening<'_>, memory: Memory<'_>, iova: u64) -> io::Result<()> {
    let (address, len) = memory.range();
    let (fd, call, argument) = match opening {
        Opening::Container(fd) => (fd, IOMMU_MAP_DMA, type1_map(address, iova, len)),
        Opening::Ioas(fd, ioas) => (fd, IOAS_MAP, ioas_map(*ioas, address, iova, len)),
    };
    // SAFETY: the structures have the sizes that they state. The address range is a whole mapping.
    // The kernel pins its pages until they are closed to devices, so a device never accesses
    // anything else, even if the mapping is removed first. The position of a device's writes
    // follows from its driver's commands (qpair-memory, point 6).
    answer(unsafe { libc::ioctl(fd.as_raw_fd(), call as _, argument.0.as_ptr()) }).map(drop)
}

/// Makes a `struct vfio_iommu_type1_dma_map` for reading and writing.
fn type1_map(address: u64, iova: u64, len: u64) -> Argument {
    Argument::new(32).with_u32(4, 1 | 2).with_u64(8, address).with_u64(16, iova).with_u64(24, len)
}

/// Makes a `struct iommu_ioas_map` for reading and writing at exactly this address.
fn ioas_map(ioas: u32, address: u64, iova: u64, len: u64) -> Argument {
    Argument::new(40)
        .with_u32(4, 1 | 2 | 4)
        .with_u32(8, ioas)
        .with_u64(16, address)
        .with_u64(24, len)
        .with_u64(32, iova)
}

/// Returns the addresses that an iommufd address space can give to devices: the first and last
/// address of each range.
pub(super) fn ioas_ranges(fd: &OwnedFd, ioas: u32) -> io::Result<Vec<(u64, u64)>> {
    let mut found: Vec<[u64; 2]> = vec![[0; 2]; 64];
    let argument = Argument::new(32)
        .with_u32(4, ioas)
        .with_u32(8, found.len() as u32)
        .with_u64(16, found.as_mut_ptr() as u64);
    let mut argument = argument;
    // SAFETY: the structure has the size that it states, and the vector that it points to has room
    // for the stated number of ranges of two 8-byte words.
    let status = unsafe {
        let at = argument.0.as_mut_ptr();
        libc::ioctl(fd.as_fd().as_raw_fd(), IOAS_IOVA_RANGES as _, at)
    };
    answer(status)?;
    found.truncate(argument.u32(8) as usize);
    Ok(found.into_iter().map(|[first, last]| (first, last)).collect())
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use vfio_bindings::bindings::vfio as c;

    use super::*;

    /// The offsets used in this folder match the kernel's headers.
    #[test]
    fn layouts_are_the_kernels() {
        assert_eq!(size_of::<c::vfio_group_status>(), 8);
        assert_eq!(offset_of!(c::vfio_group_status, flags), 4);
        assert_eq!(offset_of!(c::vfio_device_info, flags), 4);
        assert_eq!(offset_of!(c::vfio_device_info, num_regions), 8);
        assert_eq!(offset_of!(c::vfio_device_info, num_irqs), 12);
        assert_eq!(size_of::<c::vfio_region_info>(), 32);
        assert_eq!(offset_of!(c::vfio_region_info, index), 8);
        assert_eq!(offset_of!(c::vfio_region_info, cap_offset), 12);
        assert_eq!(offset_of!(c::vfio_region_info, size), 16);
        assert_eq!(offset_of!(c::vfio_region_info, offset), 24);
        assert_eq!(offset_of!(c::vfio_region_info_cap_sparse_mmap, nr_areas), 8);
        assert_eq!(size_of::<c::vfio_region_info_cap_sparse_mmap>(), 16);
        assert_eq!(offset_of!(c::vfio_info_cap_header, next), 4);
        assert_eq!(size_of::<c::vfio_irq_info>(), 16);
        assert_eq!(offset_of!(c::vfio_irq_info, index), 8);
        assert_eq!(offset_of!(c::vfio_irq_info, count), 12);
        assert_eq!(size_of::<c::vfio_irq_set>(), 20);
        assert_eq!(offset_of!(c::vfio_irq_set, start), 12);
        assert_eq!(offset_of!(c::vfio_irq_set, count), 16);
        assert_eq!(size_of::<c::vfio_iommu_type1_info>(), 24);
        assert_eq!(offset_of!(c::vfio_iommu_type1_info, cap_offset), 16);
        assert_eq!(size_of::<c::vfio_iommu_type1_info_cap_iova_range>(), 16);
        assert_eq!(offset_of!(c::vfio_iommu_type1_info_cap_iova_range, nr_iovas), 8);
        assert_eq!(size_of::<c::vfio_iommu_type1_dma_unmap>(), 24);
        assert_eq!(offset_of!(c::vfio_iommu_type1_dma_unmap, iova), 8);
        assert_eq!(offset_of!(c::vfio_iommu_type1_dma_unmap, size), 16);
        assert_eq!(size_of::<c::vfio_device_bind_iommufd>(), 24);
        assert_eq!(offset_of!(c::vfio_device_bind_iommufd, iommufd), 8);
        assert_eq!(offset_of!(c::vfio_device_attach_iommufd_pt, pt_id), 8);
        assert_eq!(c::VFIO_TYPE1v2_IOMMU as usize, TYPE1V2);
        assert_eq!(c::VFIO_PCI_MSIX_IRQ_INDEX, super::super::device::MSIX_INDEX);
        assert_eq!(c::VFIO_PCI_CONFIG_REGION_INDEX, super::super::region::CONFIG_INDEX);
    }

    #[test]
    fn mapping_for_a_container() {
        assert_eq!(size_of::<c::vfio_iommu_type1_dma_map>(), 32);
        assert_eq!(offset_of!(c::vfio_iommu_type1_dma_map, flags), 4);
        assert_eq!(offset_of!(c::vfio_iommu_type1_dma_map, vaddr), 8);
        assert_eq!(offset_of!(c::vfio_iommu_type1_dma_map, iova), 16);
        assert_eq!(offset_of!(c::vfio_iommu_type1_dma_map, size), 24);
        let both = c::VFIO_DMA_MAP_FLAG_READ | c::VFIO_DMA_MAP_FLAG_WRITE;
        let map = type1_map(1, 2, 3);
        assert_eq!((map.u32(0), map.u32(4)), (32, both));
        assert_eq!((map.u64(8), map.u64(16), map.u64(24)), (1, 2, 3));
    }

    /// The numbers match linux/iommufd.h: no dependency has them, and no available kernel supports
    /// these calls.
    #[test]
    fn mapping_for_iommufd() {
        #[repr(C)]
        struct Map {
            size: u32,
            flags: u32,
            ioas_id: u32,
            reserved: u32,
            user_va: u64,
            length: u64,
            iova: u64,
        }
        assert_eq!(size_of::<Map>(), 40);
        let map = ioas_map(9, 1, 2, 3);
        assert_eq!(map.u32(offset_of!(Map, size)), 40);
        assert_eq!(map.u32(offset_of!(Map, flags)), 7, "fixed, writable, readable");
        assert_eq!(map.u32(offset_of!(Map, ioas_id)), 9);
        assert_eq!(map.u32(offset_of!(Map, reserved)), 0);
        assert_eq!(map.u64(offset_of!(Map, user_va)), 1);
        assert_eq!(map.u64(offset_of!(Map, iova)), 2);
        assert_eq!(map.u64(offset_of!(Map, length)), 3);
    }

    #[test]
    fn numbers_of_calls() {
        assert_eq!(GET_API_VERSION.0, 0x3b64);
        assert_eq!(DEVICE_ATTACH_IOMMUFD_PT.0, 0x3b77);
        assert_eq!(IOAS_ALLOC.0, 0x3b81);
        assert_eq!(IOAS_MAP, 0x3b85);
    }

    #[test]
    fn nothing_is_read_outside() {
        let argument = Argument::new(8);
        assert_eq!((argument.u32(4), argument.u32(6), argument.u64(4)), (0, 0, 0));
        assert_eq!(argument.u32(usize::MAX), 0);
    }

    #[test]
    fn a_file_that_is_no_vfio_refuses() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(plain(null.as_fd(), GET_API_VERSION, 0).is_err());
        assert!(sized(null.as_fd(), DEVICE_GET_INFO, &mut Argument::new(24)).is_err());
        assert!(set_container(null.as_fd(), null.as_fd()).is_err());
        assert!(device_of(null.as_fd(), "0000:00:00.0").is_err());
        let null = OwnedFd::from(null);
        assert!(ioas_ranges(&null, 0).is_err());
        let options = qpair_memory::ArenaOptions::ordinary_pages();
        let arena = Arena::new(4096, 1, options).unwrap();
        assert!(map(&Opening::Container(&null), Memory::Arena(&arena), 1 << 32).is_err());
        assert!(map(&Opening::Ioas(&null, 1), Memory::Arena(&arena), 1 << 32).is_err());
    }
}
