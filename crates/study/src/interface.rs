//! The names of interfaces, and of other things that take the place of an interface in a point.

use std::path::PathBuf;

use qpair_block::{DeviceSpec, Result};
use qpair_kernel::Mode;

/// An interface that experiments may compare.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The name, as it is written after `--interface` and in every result.
    pub name: &'static str,
    /// The papers' name for the interface, with a description.
    pub about: &'static str,
}

/// The kernel interfaces, in the order of the papers. `posix` stands for one thread for each
/// request in flight.
pub const INTERFACES: [Candidate; 7] = [
    Candidate { name: "posix", about: "S4's syncio: pread, a thread for each outstanding request" },
    Candidate { name: "libaio", about: "libaio: io_submit, completions from the mapped ring" },
    Candidate { name: "io_uring", about: "S1's iou: interrupts" },
    Candidate { name: "io_uring+p", about: "S1's iou+p: the submitter polls the driver" },
    Candidate { name: "io_uring+k", about: "S1's iou+k: a kernel thread submits" },
    Candidate { name: "io_uring_cmd", about: "NVMe passthrough" },
    Candidate { name: "io_uring_cmd+p", about: "NVMe passthrough, polled" },
];

/// The name of the user-space driver's series. The papers call it SPDK.
pub const USER_SPACE: &str = "nvme";

/// The name of the series of the user-space SCSI stack.
pub const USER_SCSI: &str = "scsi";

/// Stands for the interfaces that open on the devices, over which stores are made.
pub const STORE_KERNEL: &str = "kernel";

/// The prefix of the series names of the user-space driver over a soft drive.
pub const SOFT_DRIVE: &str = "softnvme";

/// The soft drive of stores over the user-space driver, where the driver has no other drive. It has
/// the times of a flash drive of a data centre.
pub(crate) const STORE_MODEL: &str = "softnvme:profile=tlc";

/// The size of a single soft drive in MiB: larger than the processor's caches, and small enough to
/// fill quickly.
const SOFT_DRIVE_MIB: usize = 256;

/// The size of each further soft drive in MiB, if there are several.
const SOFT_DRIVES_MIB: usize = 64;

/// libaio as the papers' tools use it: completions come by a separate call.
pub(crate) const LIBAIO_CALLS: &str = "libaio:mapped=off";

/// A system call that does nothing, in place of I/O.
pub(crate) const BARE_CALL: &str = "call";

/// A search for completions where no request is in flight, by the user-space driver on a soft
/// drive.
pub(crate) const EMPTY_POLL: &str = "empty poll";

/// The switch from one thread to another on one core.
pub(crate) const THREAD_SWITCH: &str = "thread switch";

/// The switch from one task of the storage engine to another.
pub const TASK_SWITCH: &str = "task switch";

/// The prefix of points that fio runs: `fio:libaio`.
pub(crate) const FIO: &str = "fio:";

/// The prefix of durable writes to a file system, or to the block device below.
pub(crate) const DURABLE: &str = "durable:";

/// The block device below the file systems.
pub(crate) const DURABLE_RAW: &str = "durable:raw";

/// Prebuilt commands, run by the user-space driver on the first device; with a suffix, on a soft
/// drive.
pub const FLOOR: &str = "floor";
pub const SOFT_FLOOR: &str = "floor:softnvme";

/// Synchronous I/O: the submitting thread makes the call and waits.
pub(crate) const SYNC: &str = "posix:threads=0";

/// `io_uring` without registered buffers, files and rings, for S4's comparison of the savings by
/// registration.
pub const UNREGISTERED: &str = "io_uring:buffers=off,file=off,ring=off";

/// Whether an interface is a kernel interface, with any options.
pub(crate) fn is_kernel_s(interface: &str) -> bool {
    let name = interface.split(':').next().unwrap_or_default();
    INTERFACES.iter().any(|candidate| candidate.name == name)
}

/// Whether an interface is the user-space driver over a soft drive.
pub(crate) fn is_soft(interface: &str) -> bool {
    interface.starts_with(SOFT_DRIVE)
}

/// Returns the mode that runs an interface at a depth. `kernel_thread_cpu` is the processor of its
/// kernel thread.
///
/// # Errors
/// `Invalid` if there is no mode of that name, which can happen in a stored report.
pub(crate) fn mode(interface: &str, depth: u32, kernel_thread_cpu: Option<usize>) -> Result<Mode> {
    let mut mode: Mode = match (interface, depth) {
        // The interface is this program's own driver; modes exist only for kernel interfaces.
        (soft, _) if is_soft(soft) => Mode::default(),
        // With one request in flight, the submitter makes the calls itself; with more, each has a
        // thread.
        ("posix", 1) => "posix:threads=0".parse()?,
        ("posix", depth) => format!("posix:threads={}", depth.min(POSIX_THREADS_MAX)).parse()?,
        (other, _) => match other.parse() {
            Ok(mode) => mode,
            // The name is the kind of a device that bypasses the kernel; modes exist only for
            // kernel interfaces.
            Err(_) if !other.contains([':', '+']) => Mode::default(),
            Err(error) => return Err(error),
        },
    };
    if let Some(thread) = &mut mode.submission_thread {
        thread.cpu = kernel_thread_cpu.and_then(|cpu| u16::try_from(cpu).ok());
    }
    Ok(mode)
}

/// The maximum number of threads that are started for `posix` at any depth.
pub(crate) const POSIX_THREADS_MAX: u32 = 128;

/// Returns the soft drive number `drive` for `softnvme:OPTIONS`; `None` for other interfaces.
#[must_use]
pub(crate) fn soft_drive(interface: &str, drive: usize) -> Option<DeviceSpec> {
    let options = interface.strip_prefix(SOFT_DRIVE)?.replacen(':', ",", 1);
    if let Some(sized) = options.strip_prefix(",").filter(|it| it.starts_with("size=")) {
        return Some(DeviceSpec::Driven { driver: SOFT_DRIVE, name: sized.to_owned() });
    }
    // Equal specifiers would name the same drive, so sizes differ.
    let mib = if drive == 0 { SOFT_DRIVE_MIB } else { SOFT_DRIVES_MIB + drive };
    let name = format!("size={mib}MiB{options}");
    Some(DeviceSpec::Driven { driver: SOFT_DRIVE, name })
}

/// Returns the device by which an interface reaches a namespace: `/dev/ng0n1` for `/dev/nvme0n1`
/// with passthrough, otherwise the device itself.
#[must_use]
pub(crate) fn spec_for(spec: &DeviceSpec, interface: &str) -> DeviceSpec {
    let DeviceSpec::File(path) = spec else { return spec.clone() };
    let Some(name) = path.to_str().and_then(|path| path.strip_prefix("/dev/nvme")) else {
        return spec.clone();
    };
    if interface.starts_with("io_uring_cmd") {
        return DeviceSpec::File(PathBuf::from(format!("/dev/ng{name}")));
    }
    spec.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_has_a_mode() {
        for candidate in INTERFACES {
            mode(candidate.name, 16, Some(1)).unwrap();
        }
        mode(UNREGISTERED, 1, None).unwrap();
        assert_eq!(mode("posix", 1, None).unwrap().to_string(), "posix:threads=0");
        assert_eq!(mode("posix", 999, None).unwrap().to_string(), "posix:threads=128");
        assert_eq!(mode("io_uring+k", 4, Some(3)).unwrap().to_string(), "io_uring+k:cpu=3");
        assert_eq!(mode("io_uring", 4, Some(3)).unwrap().to_string(), "io_uring");
        assert_eq!(mode("ram", 4, None).unwrap(), Mode::default());
        assert!(mode("io_uring:nonsense", 4, None).is_err());
    }

    #[test]
    fn passthrough_has_a_device_of_its_own() {
        let spec = DeviceSpec::parse("/dev/nvme0n1").unwrap();
        assert_eq!(spec_for(&spec, "io_uring_cmd+p").to_string(), "/dev/ng0n1");
        assert_eq!(spec_for(&spec, "io_uring+p").to_string(), "/dev/nvme0n1");
        let spec = DeviceSpec::parse("/data/file").unwrap();
        assert_eq!(spec_for(&spec, "io_uring_cmd").to_string(), "/data/file");
    }
}
