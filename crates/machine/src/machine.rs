//! [`Machine`]: the description of a machine in reports.

use qpair_sysfs::Root;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::adapter::Adapter;
use crate::bounds::Bounds;
use crate::iommu::Iommu;
use crate::limits::{KernelSettings, Process};
use crate::memory::Memory;
use crate::processors::Processors;
use crate::release::Release;
use crate::virtualization::Virtualization;
use crate::words::{counted, rounded};

/// A machine as its kernel describes it to this process. Information that the kernel does not
/// provide is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Machine {
    /// The kernel's release: "6.1.0-13-amd64".
    pub kernel: Option<String>,
    /// The architecture that this program was built for.
    pub architecture: String,
    pub processors: Processors,
    pub memory: Memory,
    pub virtualization: Virtualization,
    pub settings: KernelSettings,
    pub process: Process,
    #[cfg_attr(feature = "serde", serde(default))]
    pub bounds: Bounds,
    pub iommu: Iommu,
    #[cfg_attr(feature = "serde", serde(default))]
    pub adapters: Vec<Adapter>,
}

impl Machine {
    #[must_use]
    pub fn read() -> Self {
        Self::read_at(&Root::system())
    }

    /// Reads the machine that a directory tree describes.
    #[must_use]
    pub fn read_at(root: &Root) -> Self {
        Self {
            kernel: root.text("/proc/sys/kernel/osrelease"),
            architecture: std::env::consts::ARCH.to_owned(),
            processors: Processors::read(root),
            memory: Memory::read(root),
            virtualization: Virtualization::read(root),
            settings: KernelSettings::read(root),
            process: Process::read(root),
            bounds: Bounds::read_at(root),
            iommu: Iommu::read(root),
            adapters: Adapter::all(root),
        }
    }

    #[must_use]
    pub fn release(&self) -> Option<Release> {
        Release::parse(self.kernel.as_deref()?)
    }

    /// Describes the machine in one line: "AMD EPYC, 2 cores, 24.0 GiB, Linux 6.18.4 (x86_64),
    /// virtual machine".
    #[must_use]
    pub fn one_line(&self) -> String {
        let processors = &self.processors;
        let mut parts: Vec<String> = Vec::new();
        parts.extend(processors.model.clone());
        if let Some(cores) = processors.cores.or(processors.threads) {
            let mut text = counted(cores, "core");
            if let Some(threads) = processors.threads.filter(|_| processors.has_smt() == Some(true))
            {
                text += &format!(" ({threads} threads)");
            }
            if let Some(sockets) = processors.sockets.filter(|&sockets| sockets > 1) {
                text += &format!(" in {sockets} sockets");
            }
            let usable = processors.usable();
            if let Some(usable) = usable.filter(|&usable| Some(usable) < processors.threads) {
                text += &format!(", {usable} of them usable here");
            }
            parts.push(text);
        }
        parts.extend(self.memory.total_bytes.map(rounded));
        if let Some(kernel) = &self.kernel {
            parts.push(format!("Linux {kernel} ({})", self.architecture));
        }
        let virtualization = &self.virtualization;
        if virtualization.is_virtual == Some(true) {
            let vendor = virtualization.vendor.as_ref().map(|vendor| format!(" ({vendor})"));
            parts.push(format!("virtual machine{}", vendor.unwrap_or_default()));
        }
        parts.extend(virtualization.container.as_ref().map(|name| format!("{name} container")));
        parts.join(", ")
    }
}
