//! A medium in memory: one mapping, which any number of queues access at a time.

use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result, format_bytes};
use qpair_memory::{Mapping, SharedBytes};

use super::MediumResult;
use qpair_pci::model::DmaSpan;

#[derive(Debug)]
pub(crate) struct RamMedium {
    mapping: Arc<Mapping>,
}

impl RamMedium {
    pub(crate) fn new(size_bytes: u64) -> Result<Self> {
        let name = || format!("a namespace in memory cannot have {}", format_bytes(size_bytes));
        let system = rustix::system::sysinfo();
        let machine_bytes = system.totalram.saturating_mul(system.mem_unit.into());
        // The kernel would grant more memory than the machine has, and kill some process later.
        if size_bytes > machine_bytes {
            let machine = format_bytes(machine_bytes >> 20 << 20);
            return Err(Error::new(ErrorKind::NoSpace, name())
                .hint(format!("this machine has {machine} of memory")));
        }
        let len =
            usize::try_from(size_bytes).map_err(|_| Error::new(ErrorKind::NoSpace, name()))?;
        let mapping = Mapping::new_anonymous(len).map_err(|cause| Error::os(cause, name()))?;
        Ok(Self { mapping })
    }

    fn bytes(&self) -> SharedBytes<'_> {
        self.mapping.bytes()
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, at: u64) {
        self.bytes().prefetch_start(at as usize);
    }

    #[inline]
    pub(crate) fn read(&self, at: u64, into: DmaSpan<'_>) {
        let mut at = at as usize;
        for (bytes, offset, len) in into.pieces() {
            SharedBytes::copy_between(self.bytes(), at, bytes, offset, len);
            at += len;
        }
    }

    #[inline]
    pub(crate) fn write(&self, at: u64, from: DmaSpan<'_>) {
        let mut at = at as usize;
        for (bytes, offset, len) in from.pieces() {
            SharedBytes::copy_between(bytes, offset, self.bytes(), at, len);
            at += len;
        }
    }

    pub(crate) fn read_bytes(&self, at: u64, into: &mut [u8]) {
        self.bytes().copy_to(at as usize, into);
    }

    pub(crate) fn write_bytes(&self, at: u64, from: &[u8]) {
        self.bytes().copy_from(at as usize, from);
    }

    pub(crate) fn zero(&self, at: u64, len: u64) -> MediumResult {
        self.mapping.zero(at as usize, len as usize)
    }
}
