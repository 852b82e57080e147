//! The memory that devices can access, and its addresses.

use qpair_memory::locks::Mutex;
use std::os::fd::{AsFd, OwnedFd};

use qpair_block::{Error, ErrorKind, Result};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::ioctl::{
    Argument, IOAS_UNMAP, IOMMU_GET_INFO, IOMMU_UNMAP_DMA, Memory, Opening, ioas_ranges, map,
    sized, u32_at, u64_at,
};
use super::iova::IovaSpace;
use super::region::capability;

/// The size of `struct vfio_iommu_type1_info` in bytes.
const INFO_BYTES: u32 = 24;
const INFO_CAPS: u32 = 1 << 1;
const CAP_IOVA_RANGE: u16 = 1;

#[derive(Debug)]
pub(super) enum Iommu {
    Container(OwnedFd),
    /// An address space of iommufd, with its number.
    Ioas(OwnedFd, u32),
}

/// The addresses of the devices behind one IOMMU domain.
#[derive(Debug)]
pub(super) struct Dma {
    iommu: Iommu,
    addresses: Mutex<Addresses>,
}

#[derive(Debug)]
struct Addresses {
    space: IovaSpace,
    /// The bytes that are open now. The kernel locks them in memory.
    open_bytes: u64,
}

impl Dma {
    /// Asks the kernel for the usable addresses. A device must be attached already.
    pub(super) fn new(iommu: Iommu) -> Result<Self> {
        let ranges = match &iommu {
            Iommu::Container(fd) => type1_ranges(fd),
            Iommu::Ioas(fd, ioas) => ioas_ranges(fd, *ioas).map(Some),
        };
        let ranges =
            ranges.map_err(|cause| Error::os(cause, "reading the address ranges of the IOMMU"))?;
        let space = IovaSpace::new(ranges.as_deref());
        Ok(Self { iommu, addresses: Mutex::new(Addresses { space, open_bytes: 0 }) })
    }

    pub(super) fn open(&self, memory: Memory<'_>) -> Result<u64> {
        let (_, len) = memory.range();
        let mut addresses = self.addresses.lock();
        let iova = addresses.space.take(len).ok_or_else(|| {
            let context = format!("the addresses of the IOMMU have no room for {len} bytes");
            Error::new(ErrorKind::Limit, context).hint("use less memory")
        })?;
        let opening = match &self.iommu {
            Iommu::Container(fd) => Opening::Container(fd),
            Iommu::Ioas(fd, ioas) => Opening::Ioas(fd, *ioas),
        };
        if let Err(cause) = map(&opening, memory, iova) {
            addresses.space.give_back(iova, len);
            return Err(refused(cause, len, addresses.open_bytes, memlock()));
        }
        addresses.open_bytes += len;
        Ok(iova)
    }

    /// Closes memory. On return no device can access it.
    pub(super) fn close(&self, iova: u64, len: u64) -> Result<()> {
        let (fd, call, mut argument) = match &self.iommu {
            Iommu::Container(fd) => {
                (fd, IOMMU_UNMAP_DMA, Argument::new(24).with_u64(8, iova).with_u64(16, len))
            }
            Iommu::Ioas(fd, ioas) => {
                let argument = Argument::new(24).with_u32(4, *ioas);
                (fd, IOAS_UNMAP, argument.with_u64(8, iova).with_u64(16, len))
            }
        };
        let mut addresses = self.addresses.lock();
        let done = sized(fd.as_fd(), call, &mut argument);
        done.map_err(|cause| Error::os(cause, format!("unmapping {len} bytes at {iova:#x}")))?;
        addresses.open_bytes = addresses.open_bytes.saturating_sub(len);
        addresses.space.give_back(iova, len);
        Ok(())
    }
}

/// Returns the limit of memory that this process may lock, in bytes; `None`: no limit.
fn memlock() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Makes the error for memory that could not be opened. `open` is the memory that is open already,
/// `limit` the maximum of locked memory.
fn refused(cause: std::io::Error, len: u64, open: u64, limit: Option<u64>) -> Error {
    let need = open.saturating_add(len);
    let errno = cause.raw_os_error().map(Errno::from_raw_os_error);
    match (errno, limit) {
        (Some(Errno::NOMEM), Some(limit)) if limit < need => {
            let context = format!(
                "{len} bytes cannot be opened to the device: with the {open} that are open it takes {need} bytes of locked memory, and this \
                 process may have {limit} (RLIMIT_MEMLOCK)"
            );
            let kib = need.div_ceil(1024);
            Error::new(ErrorKind::Limit, context).caused_by(cause).hint(format!(
                "ulimit -l {kib} (if the hard limit lets you), \"sudo prlimit --memlock={need} --pid $$\" in this shell, \
                 LimitMEMLOCK= of a systemd unit, or \"USER - memlock {kib}\" in /etc/security/limits.d; or use less memory"
            ))
        }
        (Some(Errno::NOMEM), _) => {
            let context = format!(
                "{len} bytes cannot be opened to the device: the kernel has no memory for that"
            );
            Error::os(cause, context).hint("use less memory")
        }
        (Some(Errno::NOSPC), _) => {
            let context = format!(
                "{len} bytes cannot be opened to the device: the kernel takes no more pieces"
            );
            Error::new(ErrorKind::Limit, context)
                .caused_by(cause)
                .hint("the parameter dma_entry_limit of the module vfio_iommu_type1 is too small")
        }
        _ => Error::os(cause, format!("mapping {len} bytes for the device")),
    }
}

/// Returns the addresses that a container can translate; `None` if the kernel does not report them
/// (before Linux 5.4).
fn type1_ranges(fd: &OwnedFd) -> std::io::Result<Option<Vec<(u64, u64)>>> {
    let mut info = Argument::new(INFO_BYTES);
    sized(fd.as_fd(), IOMMU_GET_INFO, &mut info)?;
    // The first answer contains the length of the full answer.
    let mut info = Argument::new(info.u32(0).clamp(INFO_BYTES, 1 << 20));
    sized(fd.as_fd(), IOMMU_GET_INFO, &mut info)?;
    Ok(parse_ranges(info.bytes()))
}

fn parse_ranges(info: &[u8]) -> Option<Vec<(u64, u64)>> {
    if u32_at(info, 4) & INFO_CAPS == 0 {
        return None;
    }
    let cap = capability(info, u32_at(info, 16), CAP_IOVA_RANGE)?;
    let count = u32_at(cap, 8) as usize;
    let ranges = cap.get(16..)?.chunks_exact(16).take(count);
    Some(ranges.map(|range| (u64_at(range, 0), u64_at(range, 8))).collect())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn ranges_of_a_container() {
        let mut info = vec![0u8; 24];
        assert_eq!(parse_ranges(&info), None);
        info[4] = 2;
        info[16] = 24;
        // The capability: number, version, next; count, reserved; two ranges.
        info.extend([1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        for word in [0u64, 0xfedf_ffff, 0xfef0_0000, (1 << 39) - 1] {
            info.extend(word.to_ne_bytes());
        }
        let ranges = [(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)];
        assert_eq!(parse_ranges(&info).unwrap(), ranges);
        info.truncate(45);
        assert_eq!(parse_ranges(&info).unwrap(), []);
    }

    #[test]
    fn too_little_locked_memory_says_what_it_takes() {
        let no_memory = || io::Error::from_raw_os_error(12);
        let error = refused(no_memory(), 4 << 20, 6 << 20, Some(8 << 20));
        assert_eq!(error.kind(), ErrorKind::Limit);
        let text = error.to_string();
        for part in ["10485760", "8388608", "ulimit -l 10240", "RLIMIT_MEMLOCK"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for limit in [None, Some(1 << 30)] {
            let error = refused(no_memory(), 4 << 20, 0, limit);
            assert!(error.to_string().contains("no memory"), "{error}");
        }
        let error = refused(io::Error::from_raw_os_error(28), 4096, 0, None);
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.to_string().contains("dma_entry_limit"), "{error}");
    }
}
