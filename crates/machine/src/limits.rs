//! Kernel settings and limits of this process.

use qpair_sysfs::Root;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::processors::field;

/// A limit of this process: the value in force, and the maximum to which the process may raise it.
/// `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Limit {
    /// The limit in force.
    pub soft: Option<u64>,
    /// The highest value that the process can set without privilege.
    pub hard: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Process {
    /// The effective user id; 0 is root.
    pub user_id: Option<u32>,
    pub locked_memory_bytes: Option<Limit>,
    /// Whether the process is exempt from the limit on locked memory (`CAP_IPC_LOCK`).
    pub locks_without_limit: Option<bool>,
    pub open_files: Option<Limit>,
    /// The seccomp mode: 0 off, 1 strict, 2 a filter.
    pub seccomp: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct KernelSettings {
    /// `kernel.io_uring_disabled`: 0: io_uring is enabled for all processes, 1: for one group and
    /// root, 2: for none.
    pub io_uring_disabled: Option<u32>,
    /// `kernel.io_uring_group`: the group that may use io_uring if `io_uring_disabled` is 1; -1: no
    /// group.
    pub io_uring_group: Option<i64>,
    /// `fs.aio-max-nr`: the most requests that all contexts of libaio together may hold.
    pub aio_requests_max: Option<u64>,
    /// `fs.aio-nr`: the number of requests that they hold at present.
    pub aio_requests: Option<u64>,
    /// `nvme.poll_queues`: the number of queues that each NVMe drive was asked to reserve for
    /// polling; `None` without the driver.
    pub nvme_poll_queues: Option<u32>,
    /// The value of `mitigations` on the kernel's command line: `off`, `auto,nosmt`.
    pub mitigations: Option<String>,
}

/// The bit of `CAP_IPC_LOCK` in a set of capabilities: linux/capability.h.
const CAP_IPC_LOCK: u32 = 14;

impl Process {
    pub(crate) fn read(root: &Root) -> Self {
        let status = root.text("/proc/self/status").unwrap_or_default();
        let limits = root.text("/proc/self/limits").unwrap_or_default();
        let capabilities =
            field(&status, "CapEff").and_then(|digits| u64::from_str_radix(&digits, 16).ok());
        Self {
            // The values are: real, effective, saved, and file system id.
            user_id: field(&status, "Uid")
                .and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok()),
            locked_memory_bytes: limit(&limits, "Max locked memory"),
            locks_without_limit: capabilities
                .map(|set| set >> CAP_IPC_LOCK & 1 == 1 && !in_user_namespace(root)),
            open_files: limit(&limits, "Max open files"),
            seccomp: field(&status, "Seccomp").and_then(|mode| mode.parse().ok()),
        }
    }

    /// Returns the limit on the process's address space in bytes; `None` without a limit.
    pub(crate) fn address_space_bytes(root: &Root) -> Option<u64> {
        limit(&root.text("/proc/self/limits")?, "Max address space")?.soft
    }

    /// Returns the size of the process's mapped address space in bytes.
    pub(crate) fn mapped_bytes(root: &Root) -> Option<u64> {
        let size = field(&root.text("/proc/self/status")?, "VmSize")?;
        size.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    #[must_use]
    pub fn is_root(&self) -> bool {
        self.user_id == Some(0)
    }
}

/// Whether this process's capabilities apply only to its own user namespace.
fn in_user_namespace(root: &Root) -> bool {
    let map = root.text("/proc/self/uid_map").unwrap_or_default();
    let all = ["0", "0", "4294967295"];
    !map.is_empty() && !map.split_whitespace().eq(all)
}

fn limit(limits: &str, name: &str) -> Option<Limit> {
    let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = values.split_whitespace().map(|word| match word {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    });
    Some(Limit { soft: words.next()??, hard: words.next()?? })
}

impl KernelSettings {
    pub(crate) fn read(root: &Root) -> Self {
        let line = root.text("/proc/cmdline").unwrap_or_default();
        Self {
            io_uring_disabled: root.number("/proc/sys/kernel/io_uring_disabled"),
            io_uring_group: root.number("/proc/sys/kernel/io_uring_group"),
            aio_requests_max: root.number("/proc/sys/fs/aio-max-nr"),
            aio_requests: root.number("/proc/sys/fs/aio-nr"),
            nvme_poll_queues: root.number("/sys/module/nvme/parameters/poll_queues"),
            mitigations: line
                .split_whitespace()
                .rev()
                .find_map(|word| word.strip_prefix("mitigations="))
                .map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 unlimited            files     \n";
        assert_eq!(limit(text, "Max open files"), Some(Limit { soft: Some(1024), hard: None }));
        assert_eq!(limit(text, "Max locked memory"), None);
    }
}
