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

/// Returns the interrupts of a PCI function since its driver set them up, of all vectors; `None` if
/// there is no such function.
#[must_use]
pub fn function_interrupts(root: &Root, address: &str) -> Option<u64> {
    let folder = format!("/sys/bus/pci/devices/{address}");
    if !root.exists(&folder) {
        return None;
    }
    let mut vectors = root.names(format!("{folder}/msi_irqs"));
    if vectors.is_empty() {
        // Without vectors only a line can interrupt, if a driver has asked for it.
        vectors.extend(root.text(format!("{folder}/irq")));
    }
    let text = root.text("/proc/interrupts")?;
    let mut lines = text.lines();
    let cpus = lines.next()?.split_whitespace().count();
    let count = |line: &str| -> Option<u64> {
        let (number, counts) = line.split_once(':')?;
        let is_its = vectors.iter().any(|vector| vector.trim() == number.trim());
        let counts =
            counts.split_whitespace().take(cpus).map_while(|word| word.parse::<u64>().ok());
        is_its.then(|| counts.sum())
    };
    Some(lines.filter_map(count).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_a_function_are_summed() {
        let folder = tempfile::tempdir().unwrap();
        let irqs = folder.path().join("sys/bus/pci/devices/0000:03:00.0/msi_irqs");
        std::fs::create_dir_all(&irqs).unwrap();
        std::fs::create_dir_all(folder.path().join("proc")).unwrap();
        for vector in ["28", "30"] {
            std::fs::write(irqs.join(vector), "msix\n").unwrap();
        }
        let text = "           CPU0       CPU1\n 28:  10  5  PCI-MSIX mpt3sas0-msix0\n \
            29:  7  7  PCI-MSIX other\n 30:  0  2  PCI-MSIX mpt3sas0-msix1\nNMI:  1  1  Non-maskable\n";
        std::fs::write(folder.path().join("proc/interrupts"), text).unwrap();
        let root = Root::at(folder.path());
        assert_eq!(function_interrupts(&root, "0000:03:00.0"), Some(17));
        assert_eq!(function_interrupts(&root, "0000:04:00.0"), None);
        // A driver that polls has no vectors.
        std::fs::remove_dir_all(&irqs).unwrap();
        assert_eq!(function_interrupts(&root, "0000:03:00.0"), Some(0));
    }
}
