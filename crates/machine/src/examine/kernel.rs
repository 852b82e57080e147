//! Findings about the kernel: its version, whether it permits io_uring and libaio, and its
//! virtualization.

use super::command::{as_root, at_boot, sysctl};
use super::not_available;
use crate::finding::{Area, Finding, Severity};
use crate::machine::Machine;
use crate::release::Release;

/// The features of io_uring that qpair uses, by kernel version.
const FEATURES: [(Release, &str); 9] = [
    (Release { major: 5, minor: 1 }, "io_uring itself"),
    (Release { major: 5, minor: 13 }, "submission threads (+k) without privilege"),
    (Release { major: 5, minor: 18 }, "registered rings"),
    (Release { major: 5, minor: 19 }, "NVMe passthrough (io_uring_cmd), COOP_TASKRUN"),
    (Release { major: 6, minor: 1 }, "DEFER_TASKRUN, polled passthrough"),
    (Release { major: 6, minor: 6 }, "rings without an index array"),
    (Release { major: 6, minor: 12 }, "waiting for a batch (min_wait)"),
    (Release { major: 6, minor: 13 }, "hybrid polling"),
    (Release { major: 6, minor: 15 }, "vectors in registered memory"),
];

/// The first version in which io_uring completes requests on demand, which qpair prefers.
const RECOMMENDED: Release = Release { major: 6, minor: 1 };

/// The most libaio requests that a worker may want in flight.
const AIO_REQUESTS_PER_WORKER: u64 = 1024;

pub(super) fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![version(machine), io_uring_disabled(machine), aio(machine)];
    findings.extend(poll_queues(machine));
    findings.extend(seccomp(machine));
    findings.extend(virtualization(machine));
    findings
}

fn version(machine: &Machine) -> Finding {
    let (Some(name), Some(release)) = (&machine.kernel, machine.release()) else {
        return not_available(
            Area::Kernel,
            "version",
            "what the kernel can do will show by trying",
        );
    };
    let missing: Vec<String> = FEATURES
        .iter()
        .filter(|(since, _)| *since > release)
        .map(|(since, what)| format!("{what} ({since})"))
        .collect();
    let (severity, why) = if missing.is_empty() {
        (Severity::Good, "it has all that qpair uses of io_uring".to_owned())
    } else {
        let why = format!("by its version it lacks: {}", missing.join("; "));
        match release {
            _ if release < FEATURES[0].0 => (Severity::Problem, why),
            _ if release < RECOMMENDED => {
                (Severity::Hint, format!("{why}. {RECOMMENDED} or newer is recommended"))
            }
            _ => (Severity::Good, why),
        }
    };
    Finding::new(Area::Kernel, "version", name, severity, why)
}

fn io_uring_disabled(machine: &Machine) -> Finding {
    let subject = "kernel.io_uring_disabled";
    let finding =
        |state: u32, severity, why: &str| Finding::new(Area::Kernel, subject, state, severity, why);
    let mend = |finding| sysctl(machine, finding, "kernel.io_uring_disabled", "0");
    match machine.settings.io_uring_disabled {
        None => not_available(Area::Kernel, subject, "the kernel has no such switch (before 6.6)"),
        Some(0) => finding(0, Severity::Good, "io_uring is switched on"),
        Some(1) if machine.process.is_root() => {
            mend(finding(1, Severity::Hint, "io_uring is for root and one group only"))
        }
        Some(1) => {
            let group = machine.settings.io_uring_group.filter(|&group| group >= 0);
            let finding = finding(
                1,
                Severity::Problem,
                "io_uring is for root and the group of kernel.io_uring_group only",
            );
            match group {
                Some(group) => {
                    let join = format!("usermod -aG $(getent group {group} | cut -d: -f1) $USER");
                    mend(finding.mend(as_root(machine, &join), "from the next login"))
                }
                None => mend(finding),
            }
        }
        Some(state) => mend(finding(
            state,
            Severity::Problem,
            "io_uring is switched off for everybody; libaio and posix remain",
        )),
    }
}

fn aio(machine: &Machine) -> Finding {
    let subject = "fs.aio-max-nr";
    let (Some(max), Some(used)) =
        (machine.settings.aio_requests_max, machine.settings.aio_requests)
    else {
        return not_available(Area::Kernel, subject, "the kernel may have no libaio");
    };
    let free = max.saturating_sub(used);
    let wanted = AIO_REQUESTS_PER_WORKER * u64::from(machine.processors.usable().unwrap_or(1));
    let state = format!("{free} of {max} free");
    if free >= wanted {
        let why = "libaio has room for the requests of all workers";
        return Finding::new(Area::Kernel, subject, state, Severity::Good, why);
    }
    let severity = if free == 0 { Severity::Problem } else { Severity::Hint };
    let why = format!("{wanted} requests in flight may be wanted; past the limit libaio refuses");
    let finding = Finding::new(Area::Kernel, subject, state, severity, why);
    let enough = (max.max(1 << 20)).max(used + wanted).to_string();
    sysctl(machine, finding, "fs.aio-max-nr", &enough)
}

fn poll_queues(machine: &Machine) -> Option<Finding> {
    let subject = "nvme.poll_queues";
    let queues = machine.settings.nvme_poll_queues?;
    if queues > 0 {
        let why = "NVMe drives keep queues for polling: io_uring+p and io_uring_cmd+p";
        return Some(Finding::new(Area::Kernel, subject, queues, Severity::Good, why));
    }
    let why = "NVMe drives have no queue for polling: io_uring+p and io_uring_cmd+p cannot work";
    let finding = Finding::new(Area::Kernel, subject, 0, Severity::Hint, why);
    let wanted = machine.processors.usable().unwrap_or(1);
    Some(at_boot(machine, finding, &format!("nvme.poll_queues={wanted}")))
}

fn seccomp(machine: &Machine) -> Option<Finding> {
    let state = match machine.process.seccomp? {
        0 => return None,
        1 => "strict",
        _ => "a filter",
    };
    let contained = machine.virtualization.container.is_some();
    let severity = if contained { Severity::Hint } else { Severity::Info };
    let why = "it may forbid io_uring to this process; whether it does shows under interfaces";
    let finding = Finding::new(Area::Kernel, "seccomp", state, severity, why);
    Some(match machine.virtualization.container.as_deref() {
        Some("docker") => finding.mend(
            "docker run --security-opt seccomp=unconfined IMAGE",
            "a new container, without the filter",
        ),
        Some("podman") => finding.mend(
            "podman run --security-opt seccomp=unconfined IMAGE",
            "a new container, without the filter",
        ),
        _ => finding,
    })
}

fn virtualization(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(name) = &machine.virtualization.container {
        let why = "settings of the kernel are the host's: commands for them belong there";
        findings.push(Finding::new(Area::Kernel, "container", name, Severity::Info, why));
    }
    if machine.virtualization.is_virtual == Some(true) {
        let vendor = machine.virtualization.vendor.as_deref().unwrap_or("unnamed");
        let why = "others may share the hardware, and drives are behind the hypervisor: figures are \
                   noisy, and part of each latency is not the drive's";
        findings.push(Finding::new(Area::Kernel, "hypervisor", vendor, Severity::Hint, why));
    }
    findings
}
