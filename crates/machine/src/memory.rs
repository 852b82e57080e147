//! Memory, huge pages and swap.

use qpair_sysfs::Root;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::processors::field;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Memory {
    pub total_bytes: Option<u64>,
    /// The memory that is available without swapping, in bytes.
    pub available_bytes: Option<u64>,
    /// The memory limit of the control group in bytes; `None` without a limit.
    pub limit_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    pub swap_used_bytes: Option<u64>,
    /// Reserved huge pages, one entry for each size.
    pub huge_pages: Vec<HugePages>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct HugePages {
    pub size_bytes: u64,
    pub total: u64,
    pub free: u64,
}

impl Memory {
    pub(crate) fn read(root: &Root) -> Self {
        let info = root.text("/proc/meminfo").unwrap_or_default();
        let bytes = |name: &str| -> Option<u64> {
            let value = field(&info, name)?;
            let kib: u64 = value.strip_suffix(" kB")?.trim().parse().ok()?;
            kib.checked_mul(1024)
        };
        let total_bytes = bytes("MemTotal");
        let swap_bytes = bytes("SwapTotal");
        Self {
            total_bytes,
            available_bytes: bytes("MemAvailable"),
            limit_bytes: crate::cgroup::memory_limit_bytes(root, total_bytes),
            swap_bytes,
            swap_used_bytes: swap_bytes
                .zip(bytes("SwapFree"))
                .map(|(all, free)| all - free.min(all)),
            huge_pages: huge_pages(root),
            transparent_huge_pages: root
                .text("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text)),
        }
    }

    #[must_use]
    pub fn huge_pages_of(&self, size_bytes: u64) -> Option<HugePages> {
        self.huge_pages.iter().copied().find(|pages| pages.size_bytes == size_bytes)
    }
}

fn huge_pages(root: &Root) -> Vec<HugePages> {
    let directory = "/sys/kernel/mm/hugepages";
    let names = root.names(directory);
    let of = |name: &String| {
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        Some(HugePages {
            size_bytes: kib.checked_mul(1024)?,
            total: root.number(format!("{directory}/{name}/nr_hugepages"))?,
            free: root.number(format!("{directory}/{name}/free_hugepages"))?,
        })
    };
    let mut pages: Vec<HugePages> = names.iter().filter_map(of).collect();
    pages.sort_by_key(|pages| pages.size_bytes);
    pages
}

/// Returns the word in brackets, or the only word.
pub(crate) fn chosen(text: &str) -> Option<String> {
    let words = || text.split_whitespace();
    let bracketed = words().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let only = words().next().filter(|_| words().count() == 1);
    bracketed.or(only).map(str::to_owned)
}
