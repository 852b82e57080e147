//! The processors that handle a drive's interrupts: `/proc/interrupts`.

use qpair_sysfs::Root;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::cpu_list::CpuList;

/// The interrupts of a drive's queues since the machine started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Interrupts {
    /// The number of vectors: queues with an interrupt of their own.
    pub vectors: u32,
    /// The processors that handled at least one interrupt.
    pub cpus: CpuList,
    pub count: u64,
}

impl Interrupts {
    /// Reads the interrupts whose name is `prefix` followed by a number: `nvme0q`, `virtio1-req.`.
    pub(crate) fn read(root: &Root, prefix: &str) -> Option<Self> {
        let text = root.text("/proc/interrupts")?;
        let mut lines = text.lines();
        let cpus: Vec<u32> = lines
            .next()?
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("CPU")?.parse().ok())
            .collect();
        let mut found = Self::default();
        let mut taken = Vec::new();
        for line in lines {
            let name = line.split_whitespace().next_back().unwrap_or_default();
            let number = name.strip_prefix(prefix).and_then(|rest| rest.parse::<u32>().ok());
            // The queue 0 of NVMe is for administration.
            if number.is_none_or(|number| number == 0 && prefix.starts_with("nvme")) {
                continue;
            }
            found.vectors += 1;
            let counts = line.split_whitespace().skip(1);
            for (&cpu, count) in cpus.iter().zip(counts.map_while(|word| word.parse::<u64>().ok()))
            {
                found.count += count;
                taken.extend((count > 0).then_some(cpu));
            }
        }
        found.cpus = taken.into_iter().collect();
        (found.vectors > 0).then_some(found)
    }
}
