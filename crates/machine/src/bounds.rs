//! [`Bounds`]: the memory and processors that this process can actually use.
//!
//! In a container, the machine's size says little: the smallest limit applies. The defaults of a
//! store are derived from the bounds alone, and `qpair doctor` shows the same figures.

use std::fmt;

use qpair_sysfs::Root;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::limits::Process;
use crate::memory::Memory;
use crate::processors::Processors;
use crate::words::rounded;

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum BoundSource {
    /// A control group, by its path: the group of the process, or one above it.
    ControlGroup(String),
    /// The limit on the process's address space (`ulimit -v`).
    AddressSpace,
    FreeMemory,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct MemoryBound {
    pub source: BoundSource,
    pub limit_bytes: u64,
    /// The unused part of the limit in bytes.
    pub left_bytes: u64,
}

impl fmt::Display for MemoryBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, left) = (rounded(self.limit_bytes), rounded(self.left_bytes));
        match &self.source {
            BoundSource::ControlGroup(group) => {
                write!(f, "the control group {group} allows {limit}, of which {left} are left")
            }
            BoundSource::AddressSpace => {
                write!(f, "the process may map {limit}, of which {left} are left (ulimit -v)")
            }
            BoundSource::FreeMemory => {
                write!(f, "the machine has {limit}, of which {left} are free")
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Bounds {
    pub memory: Vec<MemoryBound>,
    /// The number of processors that the process can keep busy, by its affinity and the processor
    /// time of its control groups.
    pub processors: Option<u32>,
}

/// The default memory for a store's pages in bytes, if there are no bounds.
pub const STORE_MEMORY_BYTES: u64 = 256 << 20;

/// The divisor of the unused memory that gives the default for a store's pages. The rest is for
/// older values, transactions, buffers and the caller.
const PAGES_PART: u64 = 2;
/// The minimum of the default memory for a store's pages in bytes.
const PAGES_BYTES_MIN: u64 = 4 << 20;
/// Memory that a command uses in addition to a store's pages, in bytes: a load of a small store has
/// 40 MiB of records and buffers.
const BESIDE_BYTES: u64 = 48 << 20;
/// Address space that a store uses in addition to its pages, in bytes: older values, transactions,
/// libraries. A thread on each processor has a stack and an allocator's heap, whose addresses are
/// mapped long before they are used.
const ADDRESSES_BESIDE_BYTES: u64 = 192 << 20;
const ADDRESSES_OF_THREAD_BYTES: u64 = 72 << 20;

impl Bounds {
    #[must_use]
    pub fn read() -> Self {
        Self::read_at(&Root::system())
    }

    /// Reads the bounds of the process that a directory tree describes.
    #[must_use]
    pub fn read_at(root: &Root) -> Self {
        Self::of(root, &Memory::read(root), Processors::usable_at(root))
    }

    fn of(root: &Root, machine: &Memory, processors: Option<u32>) -> Self {
        let mut memory = Vec::new();
        for group in cgroup::memory_limits(root, machine.total_bytes) {
            memory.push(MemoryBound {
                source: BoundSource::ControlGroup(group.group),
                limit_bytes: group.limit_bytes,
                left_bytes: group.limit_bytes.saturating_sub(group.used_bytes),
            });
        }
        if let Some(limit_bytes) = Process::address_space_bytes(root) {
            let mapped_bytes = Process::mapped_bytes(root).unwrap_or(0);
            memory.push(MemoryBound {
                source: BoundSource::AddressSpace,
                limit_bytes,
                left_bytes: limit_bytes.saturating_sub(mapped_bytes),
            });
        }
        if let (Some(limit_bytes), Some(left_bytes)) =
            (machine.total_bytes, machine.available_bytes)
        {
            memory.push(MemoryBound { source: BoundSource::FreeMemory, limit_bytes, left_bytes });
        }
        Self { memory, processors }
    }

    /// Returns the bound that leaves the least memory for a store's pages; `None` if the kernel
    /// reports no bound.
    #[must_use]
    pub fn tightest(&self) -> Option<&MemoryBound> {
        self.memory.iter().min_by_key(|bound| self.pages_bytes_of(bound))
    }

    /// Returns the default memory for a store's pages in bytes: `usual_bytes`, or as much as the
    /// tightest bound permits, in whole MiB.
    #[must_use]
    pub fn pages_bytes(&self, usual_bytes: u64) -> u64 {
        let justified = self.tightest().map_or(u64::MAX, |bound| self.pages_bytes_of(bound));
        let whole = (justified.max(PAGES_BYTES_MIN) >> 20) << 20;
        usual_bytes.min(whole)
    }

    /// Returns the default memory that a store may use in addition to its pages: at most one part
    /// in `parts` of the unused memory.
    #[must_use]
    pub fn beside_bytes(&self, usual_bytes: u64, parts: u64) -> u64 {
        let left = self.memory.iter().map(|bound| bound.left_bytes).min().unwrap_or(u64::MAX);
        usual_bytes.min((left / parts.max(1)).max(1 << 20))
    }

    /// Returns the bound that `bytes` of memory would exceed; `None` if they exceed none.
    #[must_use]
    pub fn exceeded_by(&self, bytes: u64) -> Option<&MemoryBound> {
        let exceeded = self.memory.iter().filter(|bound| bytes > bound.left_bytes);
        exceeded.min_by_key(|bound| bound.left_bytes)
    }

    /// Returns the memory for pages that one bound permits, in bytes.
    fn pages_bytes_of(&self, bound: &MemoryBound) -> u64 {
        let beside_bytes = match bound.source {
            BoundSource::AddressSpace => {
                let threads = u64::from(self.processors.unwrap_or(1));
                ADDRESSES_BESIDE_BYTES + threads * ADDRESSES_OF_THREAD_BYTES
            }
            BoundSource::ControlGroup(_) | BoundSource::FreeMemory => BESIDE_BYTES,
        };
        (bound.left_bytes / PAGES_PART).min(bound.left_bytes.saturating_sub(beside_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(source: BoundSource, left_mib: u64) -> MemoryBound {
        MemoryBound { source, limit_bytes: left_mib << 21, left_bytes: left_mib << 20 }
    }

    #[test]
    fn the_smallest_limit_holds() {
        let group = BoundSource::ControlGroup("/a".into());
        let bounds = Bounds {
            memory: vec![
                bound(BoundSource::FreeMemory, 8192),
                bound(group.clone(), 100),
                bound(BoundSource::AddressSpace, 1024),
            ],
            processors: Some(2),
        };
        assert_eq!(bounds.tightest().unwrap().source, group);
        assert_eq!(bounds.pages_bytes(256 << 20), 50 << 20);
        assert_eq!(bounds.pages_bytes(16 << 20), 16 << 20);
        assert_eq!(bounds.beside_bytes(256 << 20, 8), (100 << 20) / 8);
        assert_eq!(bounds.exceeded_by(100 << 20), None);
        assert_eq!(bounds.exceeded_by((100 << 20) + 1).unwrap().source, group);
        // Address space is not memory, but a store needs enough of it for everything else that it
        // maps.
        let narrow = Bounds { memory: vec![bound(BoundSource::AddressSpace, 400)], ..bounds };
        assert_eq!(narrow.pages_bytes(256 << 20), 64 << 20);
    }

    #[test]
    fn there_is_always_a_little() {
        assert_eq!(Bounds::default().pages_bytes(256 << 20), 256 << 20);
        let bounds = Bounds { memory: vec![bound(BoundSource::FreeMemory, 1)], processors: None };
        assert_eq!(bounds.pages_bytes(256 << 20), PAGES_BYTES_MIN);
        assert_eq!(bounds.pages_bytes(1 << 20), 1 << 20);
        assert_eq!(bounds.beside_bytes(64 << 20, 8), 1 << 20);
    }

    #[test]
    fn real_texts() {
        let tree = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file(
            "proc/meminfo",
            "MemTotal:        8145332 kB\nMemFree:          210044 kB\nMemAvailable:    5120000 kB\n",
        );
        file(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max cpu time              unlimited            unlimited            seconds   \n\
             Max address space         1073741824           unlimited            bytes     \n",
        );
        file(
            "proc/self/status",
            "Name:\tqpair\nVmPeak:\t  310000 kB\nVmSize:\t  307200 kB\nCpus_allowed_list:\t0-3\n",
        );
        file("proc/self/cgroup", "0::/a\n");
        file(
            "proc/self/mountinfo",
            "26 23 0:23 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n",
        );
        file("sys/fs/cgroup/cpu.max", "150000 100000\n");
        let bounds = Bounds::read_at(&Root::at(tree.path()));
        let free = MemoryBound {
            source: BoundSource::FreeMemory,
            limit_bytes: 8_145_332 << 10,
            left_bytes: 5_120_000 << 10,
        };
        let addresses = MemoryBound {
            source: BoundSource::AddressSpace,
            limit_bytes: 1 << 30,
            left_bytes: (1 << 30) - (300 << 20),
        };
        assert_eq!(bounds.memory, [addresses, free]);
        assert_eq!(bounds.processors, Some(1));
    }
}
