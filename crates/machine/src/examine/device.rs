//! Findings about a device: its file system, the layers below, and each disk's queue.

use super::command::{UNTIL_RESTART, all_as_root, at_boot, write};
use crate::cpu_list::CpuList;
use crate::device::{Device, DeviceKind};
use crate::disk::Disk;
use crate::finding::{Area, Finding, Severity};
use crate::machine::Machine;
use crate::mount::Mount;
use crate::words::{counted, rounded};

/// The smallest acceptable limit on the size of requests, in bytes. A lower one splits sequential
/// I/O into small pieces.
const TRANSFER_BYTES: u64 = 128 << 10;

pub(super) fn examine(machine: &Machine, device: &Device) -> Vec<Finding> {
    let area = || Area::Device(device.path.clone());
    let mut findings = Vec::new();
    if let Some(mount) = &device.mount {
        findings.extend(file_system(area(), device, mount));
    }
    if !device.in_use.is_empty() {
        let why = "it can be read and measured; qpair refuses to write to it";
        findings.push(Finding::new(area(), "use", device.in_use.join(", "), Severity::Info, why));
    }
    if device.disks.len() > 1 || device.disks.first().is_some_and(Disk::is_layer) {
        let layers: Vec<&str> = device.disks.iter().map(|disk| disk.name.as_str()).collect();
        let why = "each layer costs processor time on every request; polling passes only if all of them do";
        findings.push(Finding::new(area(), "layers", layers.join(" over "), Severity::Hint, why));
    }
    for disk in &device.disks {
        let one = Examined { machine, device, disk };
        let of_disk = [
            one.polling(),
            one.scheduler(),
            one.statistics(),
            one.queues(),
            one.interrupts(),
            one.completion_affinity(),
            one.merges(),
            one.write_cache(),
            one.blocks(),
            one.transfer(),
            one.numa(),
        ];
        findings.extend(of_disk.into_iter().flatten());
    }
    findings
}

fn file_system(area: Area, device: &Device, mount: &Mount) -> Vec<Finding> {
    let finding = |severity, why: &str| {
        Finding::new(area.clone(), "file system", &mount.file_system, severity, why)
    };
    let mut findings = vec![match mount.file_system.as_str() {
        "ext4" | "xfs" => finding(Severity::Good, "direct I/O reaches the disk without a copy"),
        "btrfs" | "bcachefs" | "zfs" => finding(
            Severity::Hint,
            "copy on write: every change of a page goes to a new place and changes the index too",
        ),
        "tmpfs" | "ramfs" => finding(
            Severity::Hint,
            "it is memory: figures say nothing of a drive, and nothing is durable",
        ),
        "overlay" => finding(
            Severity::Hint,
            "a container's layer over another file system: give qpair a volume or a device",
        ),
        "nfs" | "nfs4" | "cifs" | "9p" | "virtiofs" | "fuse" | "fuseblk" => {
            finding(Severity::Hint, "another program or machine is on the way of every request")
        }
        _ => finding(
            Severity::Info,
            "qpair is best served by fallocate (without it, growth writes zeros) and direct I/O",
        ),
    }];
    if mount.file_system == "btrfs" && device.kind == DeviceKind::Directory {
        let command = format!("chattr +C {}", quoted(&device.path));
        findings[0] = findings[0].clone().mend(command, "for files made there from now on");
    }
    let slow: Vec<&str> = ["sync", "data=journal"]
        .into_iter()
        .filter(|slow| mount.options.iter().any(|option| option == slow))
        .collect();
    if !slow.is_empty() {
        let why = "every write waits for the disk, or goes through the journal twice";
        findings.push(Finding::new(area, "mount options", slow.join(","), Severity::Hint, why));
    }
    findings
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

struct Examined<'a> {
    machine: &'a Machine,
    device: &'a Device,
    disk: &'a Disk,
}

impl Examined<'_> {
    fn finding(
        &self,
        what: &str,
        state: impl std::fmt::Display,
        severity: Severity,
        why: impl Into<String>,
    ) -> Finding {
        let subject = if self.device.disks.len() > 1 {
            format!("{} {what}", self.disk.name)
        } else {
            what.to_owned()
        };
        Finding::new(Area::Device(self.device.path.clone()), &subject, state, severity, why)
    }

    fn set(&self, leaf: &str, word: impl std::fmt::Display) -> String {
        let path = format!("/sys/block/{}/queue/{leaf}", self.disk.name);
        write(self.machine, &word.to_string(), &path)
    }

    fn driver(&self) -> &str {
        self.disk.driver.as_deref().unwrap_or("unknown")
    }

    fn usable(&self) -> u32 {
        self.machine.processors.usable().unwrap_or(1)
    }

    fn polling(&self) -> Option<Finding> {
        let what = "polling";
        if self.disk.queue.io_poll? {
            let why = "completions can be polled for: io_uring+p";
            return Some(self.finding(what, "on", Severity::Good, why));
        }
        Some(match self.driver() {
            "nvme" => self.mend_nvme(self.finding(
                what,
                "off",
                Severity::Hint,
                "the drive keeps no queue for polling (nvme.poll_queues): io_uring+p cannot work",
            )),
            "virtio_blk" if self.disk.queue.hardware_queues.is_some_and(|queues| queues > 1) => {
                let finding = self.finding(
                    what,
                    "off",
                    Severity::Hint,
                    "the drive keeps no queue for polling (virtio_blk.poll_queues): io_uring+p cannot work",
                );
                at_boot(self.machine, finding, "virtio_blk.poll_queues=1")
            }
            "virtio_blk" => self.finding(
                what,
                "off",
                Severity::Info,
                "the hypervisor gives one queue, and none can be kept for polling: io_uring+p cannot work",
            ),
            driver => {
                let why = format!("{driver} has no poll queues: io_uring+p cannot work");
                self.finding(what, "off", Severity::Info, why)
            }
        })
    }

    fn mend_nvme(&self, finding: Finding) -> Finding {
        let wanted = self.usable();
        let finding = match &self.disk.pci_address {
            Some(address) if self.device.in_use.is_empty() && self.device.mount.is_none() => {
                let driver = "/sys/bus/pci/drivers/nvme";
                let commands = [
                    format!("echo {wanted} > /sys/module/nvme/parameters/poll_queues"),
                    format!("echo {address} > {driver}/unbind"),
                    format!("echo {address} > {driver}/bind"),
                ];
                let note =
                    "now: the drive goes away and comes back; nothing may use any part of it";
                finding.mend(all_as_root(self.machine, &commands), note)
            }
            _ => finding,
        };
        at_boot(self.machine, finding, &format!("nvme.poll_queues={wanted}"))
    }

    fn scheduler(&self) -> Option<Finding> {
        let queue = &self.disk.queue;
        let scheduler = queue.scheduler.as_deref()?;
        if scheduler == "none" {
            let why = "requests go to the drive as they come";
            return Some(self.finding("scheduler", scheduler, Severity::Good, why));
        }
        if self.disk.turns() {
            let why = "a disk that turns gains from an order of requests";
            return Some(self.finding("scheduler", scheduler, Severity::Good, why));
        }
        let why = "a drive that does not turn gains nothing from an order of requests, and every one pays \
                   for it and its lock";
        let finding = self.finding("scheduler", scheduler, Severity::Hint, why);
        let rule = format!(
            "'ACTION==\"add|change\", KERNEL==\"{}\", ATTR{{queue/scheduler}}=\"none\"'",
            self.disk.name
        );
        let file = format!("/etc/udev/rules.d/90-{}-scheduler.rules", self.disk.name);
        let offers_none = queue.schedulers.iter().any(|name| name == "none");
        Some(if offers_none {
            finding
                .mend(self.set("scheduler", "none"), UNTIL_RESTART)
                .mend(write(self.machine, &rule, &file), "from the next start")
        } else {
            finding
        })
    }

    fn statistics(&self) -> Option<Finding> {
        if !self.disk.queue.statistics? {
            let why = "no time is spent on counting; iostat shows nothing of this disk";
            return Some(self.finding("iostats", "off", Severity::Good, why));
        }
        let why = "two clock readings and some counting for every request; without, iostat shows nothing of this disk";
        let finding = self.finding("iostats", "on", Severity::Hint, why);
        Some(finding.mend(self.set("iostats", 0), UNTIL_RESTART))
    }

    fn queues(&self) -> Option<Finding> {
        let queues = self.disk.queue.hardware_queues.filter(|&queues| queues > 0)?;
        let state = match self.disk.queue.requests {
            Some(requests) => format!("{queues} of {}", counted(requests, "request")),
            None => queues.to_string(),
        };
        let usable = self.usable();
        let (severity, why) = if queues >= usable {
            (Severity::Good, "each processor has a queue of the hardware to itself".to_owned())
        } else {
            let why = format!("{usable} processors share {}", counted(queues, "queue"));
            let more = match self.driver() {
                "virtio_blk" => ": the hypervisor could give more (num-queues)",
                _ => "",
            };
            (Severity::Info, format!("{why}{more}"))
        };
        Some(self.finding("hardware queues", state, severity, why))
    }

    fn interrupts(&self) -> Option<Finding> {
        let interrupts = self.disk.interrupts.as_ref()?;
        let state = match interrupts.cpus.count() {
            0 => "none yet".to_owned(),
            1 => format!("processor {}", interrupts.cpus),
            _ => format!("processors {}", interrupts.cpus),
        };
        let why = if interrupts.vectors == 1 && self.usable() > 1 {
            "one processor takes them all: a worker on it has less time than the others"
        } else {
            "which processors have taken the drive's interrupts since the start"
        };
        Some(self.finding("interrupts", state, Severity::Info, why))
    }

    fn completion_affinity(&self) -> Option<Finding> {
        Some(match self.disk.queue.completion_affinity? {
            0 => self
                .finding(
                    "rq_affinity",
                    0,
                    Severity::Hint,
                    "requests end wherever the interrupt came, far from the worker's caches",
                )
                .mend(self.set("rq_affinity", 1), UNTIL_RESTART),
            1 => self.finding(
                "rq_affinity",
                1,
                Severity::Good,
                "requests end near the processor that submitted them",
            ),
            n => self.finding(
                "rq_affinity",
                n,
                Severity::Good,
                "requests end on the processor that submitted them",
            ),
        })
    }

    fn merges(&self) -> Option<Finding> {
        let state = self.disk.queue.no_merges?;
        if state == 2 {
            let why = "no time is spent on looking for neighbours to merge";
            return Some(self.finding("nomerges", state, Severity::Good, why));
        }
        let why = "every request looks for a neighbour to merge with; random ones find none";
        let finding = self.finding("nomerges", state, Severity::Info, why);
        Some(
            finding.mend(self.set("nomerges", 2), "now, until the next start; for random I/O only"),
        )
    }

    fn write_cache(&self) -> Option<Finding> {
        let queue = &self.disk.queue;
        let state = queue.write_cache.as_deref()?;
        Some(if state == "write back" {
            let why = match queue.force_unit_access {
                Some(true) => "a commit costs a flush or a write with FUA",
                _ => "a commit costs a flush of the whole drive",
            };
            self.finding("write cache", state, Severity::Info, why)
        } else {
            let why = "what was written is durable; a flush costs nothing";
            self.finding("write cache", state, Severity::Good, why)
        })
    }

    fn blocks(&self) -> Option<Finding> {
        let logical = self.disk.queue.logical_block_bytes?;
        let physical = self.disk.queue.physical_block_bytes?;
        (physical > logical).then(|| {
            let state = format!("{logical} bytes, {physical} inside");
            let why = "a write that is not of whole inner blocks makes the drive read them first";
            self.finding("blocks", state, Severity::Info, why)
        })
    }

    fn transfer(&self) -> Option<Finding> {
        let queue = &self.disk.queue;
        let (now, most) = (queue.transfer_bytes_max?, queue.hardware_transfer_bytes_max?);
        (now < TRANSFER_BYTES && now < most).then(|| {
            let state = rounded(now);
            let why = format!("larger requests are cut up; the hardware takes {}", rounded(most));
            let kib = most.min(1 << 20) >> 10;
            self.finding("largest request", state, Severity::Hint, why)
                .mend(self.set("max_sectors_kb", kib), UNTIL_RESTART)
        })
    }

    fn numa(&self) -> Option<Finding> {
        let processors = &self.machine.processors;
        let id = self.disk.numa_node.filter(|_| processors.numa_nodes.len() > 1)?;
        let node = processors.numa_nodes.iter().find(|node| node.id == id)?;
        let near: CpuList = node.cpus.common(processors.allowed.as_ref().unwrap_or(&node.cpus));
        let state = format!("node {id}");
        Some(if near.is_empty() {
            let why = "this process may not run on any processor near the drive";
            let command = format!("numactl --cpunodebind={id} --membind={id} qpair");
            self.finding("NUMA", state, Severity::Hint, why)
                .mend(command, "before qpair's arguments")
        } else {
            let why = format!("processors {near} are near the drive");
            self.finding("NUMA", state, Severity::Info, why)
        })
    }
}
