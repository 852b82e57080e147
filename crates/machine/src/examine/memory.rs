//! Findings about locked memory, huge pages, swap, open files, and the bounds on a store.

use super::command::{UNTIL_RESTART, limit, sysctl, write};
use super::not_available;
use crate::bounds::{BoundSource, STORE_MEMORY_BYTES};
use crate::finding::{Area, Finding, Severity};
use crate::machine::Machine;
use crate::words::rounded;

/// The number of file descriptors that many workers on many drives need.
const OPEN_FILES: u64 = 1024;

pub(super) fn examine(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![
        locked_memory(machine),
        open_files(machine),
        huge_pages(machine),
        transparent_huge_pages(machine),
        swap(machine),
    ];
    findings.extend(bounds(machine));
    findings
}

fn locked_memory(machine: &Machine) -> Finding {
    let subject = "memlock";
    let finding =
        |state: String, severity, why| Finding::new(Area::Memory, subject, state, severity, why);
    let Some(limits) = machine.process.locked_memory_bytes else {
        return not_available(
            Area::Memory,
            subject,
            "whether buffers can be registered shows by trying",
        );
    };
    let Some(soft) = limits.soft else {
        let why = "io_uring can register all buffers";
        return finding("unlimited".to_owned(), Severity::Good, why);
    };
    if machine.process.locks_without_limit == Some(true) {
        let why = "the limit does not bind this process (CAP_IPC_LOCK): io_uring can register all buffers";
        return finding(rounded(soft), Severity::Good, why);
    }
    let why = "io_uring can register no more than this; buffers beyond are pinned for every request, \
               which costs processor time. In a unit of systemd: LimitMEMLOCK=infinity";
    let finding = finding(rounded(soft), Severity::Hint, why);
    limit(machine, finding, ("memlock", "memlock"), "unlimited")
}

fn open_files(machine: &Machine) -> Finding {
    let subject = "open files";
    let Some(limits) = machine.process.open_files else {
        return not_available(
            Area::Memory,
            subject,
            "too few show as errors when devices are opened",
        );
    };
    match limits.soft {
        Some(soft) if soft < OPEN_FILES => {
            let why = "each worker has a descriptor or two for each device; many of both need more";
            let finding = Finding::new(Area::Memory, subject, soft, Severity::Hint, why);
            limit(machine, finding, ("nofile", "nofile"), "65536")
        }
        soft => {
            let state = soft.map_or("unlimited".to_owned(), |soft| soft.to_string());
            Finding::new(
                Area::Memory,
                subject,
                state,
                Severity::Good,
                "enough for every worker's queues",
            )
        }
    }
}

fn huge_pages(machine: &Machine) -> Finding {
    const MIB_2: u64 = 2 << 20;
    const GIB_1: u64 = 1 << 30;
    let subject = "huge pages";
    let Some(small) =
        machine.memory.huge_pages_of(MIB_2).or(machine.memory.huge_pages.first().copied())
    else {
        return not_available(Area::Memory, subject, "the kernel has none");
    };
    let mut state =
        format!("{} of {} free ({})", small.free, small.total, rounded(small.size_bytes));
    if let Some(large) = machine.memory.huge_pages_of(GIB_1).filter(|pages| pages.total > 0) {
        state += &format!(", {} of {} free ({})", large.free, large.total, rounded(GIB_1));
    }
    if small.free > 0 {
        let why = "a store takes them only when asked to (--huge-pages), and a job of `bench io` with mem=mmaphuge; memory is \
                   then never split into small pages, and cheap to pin";
        return Finding::new(Area::Memory, subject, state, Severity::Good, why);
    }
    let transparent = machine.memory.transparent_huge_pages.as_deref().unwrap_or("never");
    let (severity, why) = if transparent == "never" {
        (Severity::Hint, "buffers have small pages only: more misses of the TLB, slower to pin")
    } else {
        (
            Severity::Info,
            "none reserved, and none needed: memory has transparent ones. Only --huge-pages and mem=mmaphuge take reserved ones",
        )
    };
    let finding = Finding::new(Area::Memory, subject, state, severity, why);
    let gib = (GIB_1 / small.size_bytes.max(1)).max(1) + small.total;
    sysctl(machine, finding, "vm.nr_hugepages", &gib.to_string())
}

fn transparent_huge_pages(machine: &Machine) -> Finding {
    let subject = "transparent huge pages";
    match machine.memory.transparent_huge_pages.as_deref() {
        None => not_available(Area::Memory, subject, "the kernel has none"),
        Some("never") => {
            let why = "buffers ask for them (madvise) and are not given any";
            let path = "/sys/kernel/mm/transparent_hugepage/enabled";
            Finding::new(Area::Memory, subject, "never", Severity::Hint, why)
                .mend(write(machine, "madvise", path), UNTIL_RESTART)
        }
        Some(state) => {
            let why = "buffers get them where memory is not fragmented";
            Finding::new(Area::Memory, subject, state, Severity::Good, why)
        }
    }
}

fn swap(machine: &Machine) -> Finding {
    let Some(size) = machine.memory.swap_bytes else {
        return not_available(Area::Memory, "swap", "pages may be swapped out, or not");
    };
    if size == 0 {
        return Finding::new(
            Area::Memory,
            "swap",
            "none",
            Severity::Good,
            "no buffer is ever swapped out",
        );
    }
    let used = machine.memory.swap_used_bytes.unwrap_or(0);
    let state = format!("{} of {} used", rounded(used), rounded(size));
    let why =
        "a page of the pool that was swapped out costs two reads, not one; leave memory to spare";
    let severity = if used > 0 { Severity::Hint } else { Severity::Info };
    let finding = Finding::new(Area::Memory, "swap", state, severity, why);
    finding.mend(super::command::as_root(machine, "swapoff -a"), UNTIL_RESTART)
}

/// Returns findings about the bounds of this process, and the resulting defaults of a store.
fn bounds(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    for bound in &machine.bounds.memory {
        let (subject, why) = match &bound.source {
            BoundSource::ControlGroup(_) => (
                "control group",
                "the kernel kills a process that goes beyond; memory of a store, and all else in the group, must fit",
            ),
            BoundSource::AddressSpace => (
                "address space",
                "the process may map no more (ulimit -v): memory of a store, stacks and libraries must fit",
            ),
            BoundSource::FreeMemory => continue,
        };
        let (limit, left) = (rounded(bound.limit_bytes), rounded(bound.left_bytes));
        let state = match &bound.source {
            BoundSource::ControlGroup(group) => format!("{limit}, {left} left ({group})"),
            _ => format!("{limit}, {left} left"),
        };
        findings.push(Finding::new(Area::Memory, subject, state, Severity::Info, why));
    }
    if let Some(bound) = machine.bounds.tightest() {
        let taken = machine.bounds.pages_bytes(STORE_MEMORY_BYTES);
        let why = match taken < STORE_MEMORY_BYTES {
            true => format!("by default for pages, not {}: {bound}", rounded(STORE_MEMORY_BYTES)),
            false => "by default for pages; --memory says otherwise".to_owned(),
        };
        let finding = Finding::new(
            Area::Memory,
            "memory of a store",
            rounded(taken),
            if taken < STORE_MEMORY_BYTES { Severity::Hint } else { Severity::Good },
            why,
        );
        findings.push(finding);
    }
    findings
}
