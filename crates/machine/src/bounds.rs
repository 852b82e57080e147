//! [`Bounds`]: how much memory and how many processors this process can really have.
//!
//! A machine's size says little in a container: the smallest limit holds. What a store takes by default follows from the bounds alone,
//! and `qpair doctor` shows the same figures.

use std::fmt;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::cgroup;
use crate::limits::Process;
use crate::memory::Memory;
use crate::processors::Processors;
use crate::root::Root;
use crate::words::rounded;

/// What a bound on memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum BoundSource {
    /// A control group, by its path: the process's own, or one above it.
    ControlGroup(String),
    /// The limit on addresses that the process may map (`ulimit -v`).
    AddressSpace,
    /// Memory that the machine has free.
    FreeMemory,
}

/// One bound on the memory of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct MemoryBound {
    /// What sets it.
    pub source: BoundSource,
    /// The limit, bytes.
    pub limit_bytes: u64,
    /// The part of the limit that is not used yet, bytes.
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

/// The bounds on memory and processors of this process.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Bounds {
    /// All bounds on memory that the kernel tells.
    pub memory: Vec<MemoryBound>,
    /// Processors that the process can keep busy: its affinity, and the processor time of its control groups.
    pub processors: Option<u32>,
}

/// Memory that a store takes for pages by default where nothing bounds it, bytes.
pub const STORE_MEMORY_BYTES: u64 = 256 << 20;

/// The part of what is left that a store's pages take by default: the rest is for older values, transactions, buffers and the caller.
const PAGES_PART: u64 = 2;
/// Least memory that a store takes for pages by default, however little is left, bytes.
const PAGES_BYTES_MIN: u64 = 4 << 20;
/// Memory that a command takes beside a store's pages, bytes: a load of a small store has 40 MiB of records and buffers.
const BESIDE_BYTES: u64 = 48 << 20;
/// Addresses that a store maps beside its pages, bytes: older values, transactions, libraries. A thread on each processor has a stack and an
/// allocator's heap, whose addresses are mapped long before they are used.
const ADDRESSES_BESIDE_BYTES: u64 = 192 << 20;
const ADDRESSES_OF_THREAD_BYTES: u64 = 72 << 20;

impl Bounds {
    /// Reads the bounds of this process.
    #[must_use]
    pub fn read() -> Self {
        Self::read_at(&Root::system())
    }

    /// Reads the bounds of the process that a tree describes.
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

    /// The bound on memory that leaves least for a store's pages; `None` if the kernel tells of none.
    #[must_use]
    pub fn tightest(&self) -> Option<&MemoryBound> {
        self.memory.iter().min_by_key(|bound| self.pages_bytes_of(bound))
    }

    /// Memory that a store takes for pages if nobody says how much: `usual_bytes`, or what the tightest bound justifies, in MiB.
    #[must_use]
    pub fn pages_bytes(&self, usual_bytes: u64) -> u64 {
        let justified = self.tightest().map_or(u64::MAX, |bound| self.pages_bytes_of(bound));
        let whole = (justified.max(PAGES_BYTES_MIN) >> 20) << 20;
        usual_bytes.min(whole)
    }

    /// The same of memory that a store may come to use beside its pages: at most one part in `parts` of what is left.
    #[must_use]
    pub fn beside_bytes(&self, usual_bytes: u64, parts: u64) -> u64 {
        let left = self.memory.iter().map(|bound| bound.left_bytes).min().unwrap_or(u64::MAX);
        usual_bytes.min((left / parts.max(1)).max(1 << 20))
    }

    /// The bound that memory of so many bytes is above, if it is above one.
    #[must_use]
    pub fn exceeded_by(&self, bytes: u64) -> Option<&MemoryBound> {
        let exceeded = self.memory.iter().filter(|bound| bytes > bound.left_bytes);
        exceeded.min_by_key(|bound| bound.left_bytes)
    }

    /// Memory for pages that one bound justifies, bytes.
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
        // Addresses are not memory, but there have to be enough of them for all else that a store maps.
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
