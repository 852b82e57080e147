//! Findings about processors: how many can be kept busy, and how fast they run.

use super::command::{UNTIL_RESTART, as_root};
use super::not_available;
use crate::finding::{Area, Finding, Severity};
use crate::machine::Machine;
use crate::words::counted;

pub(super) fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![usable(machine)];
    findings.extend(quota(machine));
    findings.extend(siblings(machine));
    findings.push(governor(machine));
    findings.extend(numa(machine));
    findings.extend(mitigations(machine));
    findings
}

fn usable(machine: &Machine) -> Finding {
    let processors = &machine.processors;
    let Some(usable) = processors.usable() else {
        return not_available(
            Area::Processors,
            "usable",
            "workers will be as many as the kernel says",
        );
    };
    let state = match processors.threads.filter(|&threads| threads != usable) {
        Some(threads) => format!("{usable} of {threads}"),
        None => usable.to_string(),
    };
    if usable > 1 {
        let pairs = counted(usable / 2, "such pair");
        let why = format!(
            "io_uring+k wants a processor for its kernel thread beside each worker's: {pairs} here"
        );
        return Finding::new(Area::Processors, "usable", state, Severity::Good, why);
    }
    let why = "io_uring+k collapses: its kernel thread and the program take turns on one processor. Use \
               io_uring";
    let finding = Finding::new(Area::Processors, "usable", state, Severity::Hint, why);
    // A process can widen only an affinity that was set for itself.
    let narrowed = processors.allowed.as_ref().is_some_and(|allowed| allowed.count() == 1);
    match processors.threads {
        Some(threads) if threads > 1 && narrowed => finding
            .mend(format!("taskset -pc 0-{} $$", threads - 1), "now, in this shell, if it is let"),
        _ => finding,
    }
}

fn quota(machine: &Machine) -> Option<Finding> {
    let quota = machine.processors.quota?;
    let why = "the control group stops all workers for the rest of each period once it is spent; \
               threads that poll spend it without working";
    Some(
        Finding::new(
            Area::Processors,
            "control group",
            format!("{quota:.1} processors"),
            Severity::Hint,
            why,
        )
        .mend("docker update --cpus=0 CONTAINER", "on the host, for a container of docker")
        .mend("systemctl set-property UNIT CPUQuota=", "for a unit of systemd"),
    )
}

fn siblings(machine: &Machine) -> Option<Finding> {
    machine.processors.has_smt()?.then(|| {
        let processors = &machine.processors;
        let (threads, cores) = (processors.threads.unwrap_or(0), processors.cores.unwrap_or(0));
        let state = format!("{threads} on {cores} cores");
        let why = "two threads of a core share it: workers on both give less than twice as much";
        Finding::new(Area::Processors, "threads", state, Severity::Info, why)
    })
}

fn governor(machine: &Machine) -> Finding {
    let governors = &machine.processors.governors;
    if governors.is_empty() {
        let why = "the frequency is not the kernel's to set: firmware or a hypervisor does";
        return not_available(Area::Processors, "governor", why);
    }
    let state = match &machine.processors.frequency_driver {
        Some(driver) => format!("{} ({driver})", governors.join(", ")),
        None => governors.join(", "),
    };
    if governors.iter().all(|governor| governor == "performance") {
        let why = "processors run at full speed";
        return Finding::new(Area::Processors, "governor", state, Severity::Good, why);
    }
    let why = "processors slow down while they wait for the device, and each request pays for it";
    let files = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
    Finding::new(Area::Processors, "governor", state, Severity::Hint, why)
        .mend(as_root(machine, "cpupower frequency-set -g performance"), UNTIL_RESTART)
        .mend(
            as_root(machine, &format!("sh -c 'for f in {files}; do echo performance > $f; done'")),
            "the same, without cpupower",
        )
}

fn numa(machine: &Machine) -> Option<Finding> {
    let nodes = &machine.processors.numa_nodes;
    let state: Vec<String> =
        nodes.iter().map(|node| format!("node {}: {}", node.id, node.cpus)).collect();
    let why = "memory and drives of another node are farther away";
    (nodes.len() > 1)
        .then(|| Finding::new(Area::Processors, "NUMA", state.join("; "), Severity::Info, why))
}

fn mitigations(machine: &Machine) -> Option<Finding> {
    let all = &machine.processors.mitigations;
    let active: Vec<&str> = all
        .iter()
        .filter(|mitigation| mitigation.state.starts_with("Mitigation"))
        .map(|mitigation| mitigation.name.as_str())
        .collect();
    let why = "each makes system calls dearer; interfaces that make fewer of them feel it less";
    (!active.is_empty()).then(|| {
        Finding::new(Area::Processors, "mitigations", active.join(", "), Severity::Info, why)
    })
}
