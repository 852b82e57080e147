//! Machines that are directory trees: the data read from them, and the findings.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::os::unix::fs::symlink;
use std::path::Path;

use qpair_machine::{Area, Device, DeviceKind, Finding, Machine, Root, Severity, examine};
use tempfile::TempDir;

struct Tree(TempDir);

impl Tree {
    /// Makes a server of two cores with good settings and no disks.
    fn new() -> Self {
        let tree = Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        tree.file("proc/sys/kernel/osrelease", "6.18.1-generic\n")
            .file("proc/sys/kernel/io_uring_disabled", "0\n")
            .file("proc/sys/kernel/io_uring_group", "-1\n")
            .file("proc/sys/fs/aio-max-nr", "65536\n")
            .file("proc/sys/fs/aio-nr", "0\n")
            .file("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t: fpu\n")
            .file("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
            .file("proc/self/status", "Uid:\t1000\t1000\t1000\t1000\nSeccomp:\t0\nCapEff:\t0\nCpus_allowed_list:\t0-1\n")
            .file("proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\nMax open files            4096                 524288               files\n")
            .file("proc/self/mountinfo", "1 0 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n2 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
            .file("proc/self/cgroup", "0::/user.slice/a.scope\n")
            .file("sys/devices/system/cpu/online", "0-1\n")
            .file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
            .file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n")
            .file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n")
            .file("sys/kernel/iommu_groups/0/type", "DMA\n");
        for cpu in 0..2 {
            let at = format!("sys/devices/system/cpu/cpu{cpu}");
            tree.file(format!("{at}/topology/physical_package_id"), "0\n")
                .file(format!("{at}/topology/core_cpus_list"), format!("{cpu}\n"))
                .file(format!("{at}/cpufreq/scaling_governor"), "performance\n");
        }
        tree
    }

    fn file(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> &Self {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// Adds a link; `target` is a path of the machine.
    fn link(&self, path: &str, target: &str) -> &Self {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.0.path().join(target), path).unwrap();
        self
    }

    /// Adds an NVMe drive with default settings: 4 queues, no polling, a partition mounted at /.
    fn nvme(&self) -> &Self {
        let pci = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
        let disk = format!("{pci}/nvme/nvme0/nvme0n1");
        self.file(format!("{disk}/dev"), "259:0\n")
            .file(format!("{disk}/size"), "7501476528\n")
            .file(format!("{disk}/nvme0n1p1/partition"), "1\n")
            .file(format!("{disk}/nvme0n1p1/dev"), "259:1\n")
            .file(format!("{disk}/nvme0n1p1/size"), "2048\n")
            .file(format!("{disk}/queue/io_poll"), "0\n")
            .file(format!("{disk}/queue/iostats"), "1\n")
            .file(format!("{disk}/queue/scheduler"), "none [mq-deadline] kyber\n")
            .file(format!("{disk}/queue/rotational"), "0\n")
            .file(format!("{disk}/queue/logical_block_size"), "512\n")
            .file(format!("{disk}/queue/write_cache"), "write through\n")
            .file(format!("{disk}/queue/nr_requests"), "1023\n")
            .file(format!("{pci}/nvme/nvme0/model"), "SAMSUNG MZWLR3T8HBLS-00007  \n")
            .file("sys/bus/pci/devices/0000:01:00.0/numa_node", "-1\n")
            .file("sys/module/nvme/parameters/poll_queues", "0\n")
            .file("proc/interrupts", "     CPU0 CPU1\n 30: 9 0 PCI-MSIX-0000:01:00.0 0-edge nvme0q0\n 31: 5 0 PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n 32: 0 7 PCI-MSIX-0000:01:00.0 2-edge nvme0q2\n");
        for queue in 0..4 {
            self.file(format!("{disk}/mq/{queue}/cpu_list"), "0\n");
        }
        self.link(&format!("{disk}/device"), &format!("{pci}/nvme/nvme0"))
            .link("sys/block/nvme0n1", &disk)
            .link("sys/class/block/nvme0n1p1", &format!("{disk}/nvme0n1p1"))
            .link("sys/dev/block/259:0", &disk)
            .link("sys/dev/block/259:1", &format!("{disk}/nvme0n1p1"))
    }

    fn root(&self) -> Root {
        Root::at(self.0.path())
    }

    fn machine(&self) -> Machine {
        Machine::read_at(&self.root())
    }

    fn findings(&self) -> Vec<Finding> {
        examine(&self.machine(), &[])
    }
}

#[track_caller]
fn find<'a>(findings: &'a [Finding], subject: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.subject == subject);
    found.unwrap_or_else(|| panic!("nothing about {subject} in {findings:#?}"))
}

fn commands(finding: &Finding) -> Vec<&str> {
    finding.mend.iter().map(|mend| mend.command.as_str()).collect()
}

#[test]
fn a_machine_with_nothing_in_the_way() {
    let tree = Tree::new();
    let machine = tree.machine();
    assert_eq!(machine.processors.usable(), Some(2));
    assert_eq!((machine.processors.sockets, machine.processors.cores), (Some(1), Some(2)));
    assert_eq!(machine.memory.total_bytes, Some(16 << 30));
    assert_eq!(machine.process.locked_memory_bytes.unwrap().soft, None);
    assert!(
        machine.one_line().starts_with("Xeon, 2 cores, 16 GiB, Linux 6.18.1-generic"),
        "{}",
        machine.one_line()
    );
    let findings = examine(&machine, &[]);
    let bad: Vec<&Finding> = findings
        .iter()
        .filter(|finding| finding.area != Area::UserSpaceDrivers)
        .filter(|finding| finding.severity >= Severity::Hint)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn a_machine_that_tells_nothing() {
    let tree = Tree(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let machine = tree.machine();
    assert_eq!(machine.processors.usable(), None);
    let findings = examine(&machine, &Device::all(&tree.root()));
    for finding in &findings {
        assert_eq!(finding.state, "not available", "{finding:#?}");
        assert_eq!(finding.severity, Severity::Info, "{finding:#?}");
    }
}

#[test]
fn reads_back_what_it_wrote() {
    let tree = Tree::new();
    tree.nvme();
    let machine = tree.machine();
    let text = serde_json::to_string(&machine).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
    let devices = Device::all(&tree.root());
    let text = serde_json::to_string(&devices).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Device>>(&text).unwrap(), devices);
}

#[test]
fn io_uring_switched_off() {
    let tree = Tree::new();
    tree.file("proc/sys/kernel/io_uring_disabled", "2\n");
    let findings = tree.findings();
    let finding = find(&findings, "kernel.io_uring_disabled");
    assert_eq!(finding.severity, Severity::Problem);
    assert_eq!(commands(finding)[0], "sudo sysctl -w kernel.io_uring_disabled=0");
    // A group is configured: processes outside of it are told its name.
    tree.file("proc/sys/kernel/io_uring_disabled", "1\n")
        .file("proc/sys/kernel/io_uring_group", "980\n");
    let findings = tree.findings();
    assert!(commands(find(&findings, "kernel.io_uring_disabled"))[0].contains("getent group 980"));
}

#[test]
fn an_old_kernel() {
    let tree = Tree::new();
    tree.file("proc/sys/kernel/osrelease", "5.15.0-91-generic\n");
    let findings = tree.findings();
    let version = find(&findings, "version");
    assert_eq!(version.severity, Severity::Hint);
    assert!(version.why.contains("DEFER_TASKRUN"), "{}", version.why);
    assert!(!version.why.contains("io_uring itself"), "{}", version.why);
    tree.file("proc/sys/kernel/osrelease", "4.19.0\n");
    assert_eq!(find(&tree.findings(), "version").severity, Severity::Problem);
}

#[test]
fn limits() {
    let tree = Tree::new();
    tree.file(
        "proc/self/limits",
        "Max locked memory 8388608 8388608 bytes\nMax open files 256 256 files\n",
    )
    .file("proc/sys/fs/aio-nr", "65536\n");
    let findings = tree.findings();
    let memlock = find(&findings, "memlock");
    assert_eq!((memlock.severity, memlock.state.as_str()), (Severity::Hint, "8 MiB"));
    assert_eq!(commands(memlock)[0], "sudo prlimit --pid $$ --memlock=unlimited");
    assert_eq!(find(&findings, "open files").severity, Severity::Hint);
    let aio = find(&findings, "fs.aio-max-nr");
    assert_eq!(aio.severity, Severity::Problem);
    assert_eq!(commands(aio)[0], "sudo sysctl -w fs.aio-max-nr=1048576");

    // Root is exempt, except in a user namespace.
    let root = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-1\n";
    tree.file("proc/self/status", root);
    assert_eq!(find(&tree.findings(), "memlock").severity, Severity::Good);
    tree.file("proc/self/uid_map", "0 100000 65536\n");
    let findings = tree.findings();
    let memlock = find(&findings, "memlock");
    assert_eq!(memlock.severity, Severity::Hint);
    assert_eq!(commands(memlock)[0], "prlimit --pid $$ --memlock=unlimited");
}

#[test]
fn a_control_group() {
    let tree = Tree::new();
    tree.file("sys/fs/cgroup/user.slice/a.scope/cpu.max", "max 100000\n")
        .file("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n")
        .file("sys/fs/cgroup/user.slice/memory.max", "1073741824\n");
    let machine = tree.machine();
    assert_eq!(machine.processors.quota, Some(1.5));
    assert_eq!(machine.processors.usable(), Some(1));
    assert_eq!(machine.memory.limit_bytes, Some(1 << 30));
    let findings = examine(&machine, &[]);
    assert_eq!(find(&findings, "control group").state, "1.5 processors");
    let usable = find(&findings, "usable");
    assert_eq!((usable.severity, usable.state.as_str()), (Severity::Hint, "1 of 2"));
    assert!(usable.why.contains("collapses"), "{}", usable.why);
}

#[test]
fn a_control_group_of_version_1() {
    let tree = Tree::new();
    tree.file(
        "proc/self/mountinfo",
        "3 1 0:31 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
    )
    .file("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n0::/\n")
    .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n")
    .file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_eq!(tree.machine().processors.quota, Some(0.5));
}

#[test]
fn a_container_in_a_virtual_machine() {
    let tree = Tree::new();
    tree.file(".dockerenv", "")
        .file(
            "proc/self/status",
            "Uid:\t0\t0\t0\t0\nSeccomp:\t2\nCapEff:\t00000000a80425fb\nCpus_allowed_list:\t0\n",
        )
        .file("proc/cpuinfo", "processor\t: 0\nmodel name\t: EPYC\nflags\t: fpu hypervisor\n")
        .file("sys/class/dmi/id/sys_vendor", "QEMU\n");
    let findings = tree.findings();
    assert_eq!(find(&findings, "container").state, "docker");
    assert_eq!(find(&findings, "hypervisor").state, "QEMU");
    let seccomp = find(&findings, "seccomp");
    assert_eq!(seccomp.severity, Severity::Hint);
    assert!(commands(seccomp)[0].contains("--security-opt seccomp="));
    assert_eq!(find(&findings, "usable").severity, Severity::Hint);

    // A machine installed from a container image has the mark, but is not a container.
    let namespace = tree.0.path().join("proc/self/ns/pid");
    std::fs::create_dir_all(namespace.parent().unwrap()).unwrap();
    symlink("pid:[4026531836]", namespace).unwrap();
    assert_eq!(tree.machine().virtualization.container, None);
}

#[test]
fn slow_processors_and_swap() {
    let tree = Tree::new();
    tree.file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n")
        .file("proc/meminfo", "MemTotal: 1024 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n")
        .file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    let findings = tree.findings();
    let governor = find(&findings, "governor");
    assert_eq!(governor.state, "performance, powersave");
    assert_eq!(commands(governor)[0], "sudo cpupower frequency-set -g performance");
    let swap = find(&findings, "swap");
    assert_eq!((swap.state.as_str(), swap.severity), ("1 MiB of 2 MiB used", Severity::Hint));
    let transparent = find(&findings, "transparent huge pages");
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    assert_eq!(commands(transparent), [format!("echo madvise | sudo tee {path}")]);
}

#[test]
fn an_nvme_drive_as_it_comes() {
    let tree = Tree::new();
    tree.nvme();
    let machine = tree.machine();
    let devices = Device::all(&tree.root());
    assert_eq!(devices.len(), 1);
    let device = &devices[0];
    assert_eq!(device.in_use, ["nvme0n1p1 is mounted at /"]);
    let disk = &device.disks[0];
    assert_eq!(disk.one_line(), "nvme0n1 (nvme, SAMSUNG MZWLR3T8HBLS-00007, 3.5 TiB)");
    assert_eq!(disk.pci_address.as_deref(), Some("0000:01:00.0"));
    assert_eq!((disk.numa_node, disk.queue.hardware_queues), (None, Some(4)));
    let interrupts = disk.interrupts.as_ref().unwrap();
    assert_eq!((interrupts.vectors, interrupts.count), (2, 12));
    let findings = examine(&machine, &devices);
    assert_eq!(
        commands(find(&findings, "scheduler"))[0],
        "echo none | sudo tee /sys/block/nvme0n1/queue/scheduler"
    );
    assert_eq!(
        commands(find(&findings, "iostats")),
        ["echo 0 | sudo tee /sys/block/nvme0n1/queue/iostats"]
    );
    let queues = find(&findings, "nvme.poll_queues");
    assert_eq!(queues.severity, Severity::Hint);
    assert!(commands(queues).iter().all(|command| command.contains("nvme.poll_queues=2")));
    // The drive is mounted, so the finding does not suggest taking it from its users.
    let polling = find(&findings, "polling");
    assert!(commands(polling).iter().all(|command| !command.contains("unbind")), "{polling:#?}");
    assert_eq!(find(&findings, "write cache").severity, Severity::Good);
}

#[test]
fn an_nvme_drive_that_is_free() {
    let tree = Tree::new();
    tree.nvme().file("proc/self/mountinfo", "1 0 0:20 / / rw - tmpfs tmpfs rw\n");
    let devices = Device::all(&tree.root());
    assert!(devices[0].in_use.is_empty());
    let findings = examine(&tree.machine(), &devices);
    let now = commands(find(&findings, "polling"))[0];
    assert!(
        now.starts_with("sudo sh -c 'echo 2 > /sys/module/nvme/parameters/poll_queues"),
        "{now}"
    );
    assert!(now.contains("echo 0000:01:00.0 > /sys/bus/pci/drivers/nvme/unbind"), "{now}");

    let disk = "sys/block/nvme0n1/queue";
    tree.file(format!("{disk}/io_poll"), "1\n")
        .file(format!("{disk}/scheduler"), "[none] mq-deadline\n")
        .file(format!("{disk}/iostats"), "0\n")
        .file("sys/module/nvme/parameters/poll_queues", "2\n");
    let findings = examine(&tree.machine(), &Device::all(&tree.root()));
    for subject in ["polling", "scheduler", "iostats", "nvme.poll_queues"] {
        assert_eq!(find(&findings, subject).severity, Severity::Good, "{subject}");
        assert!(find(&findings, subject).mend.is_empty());
    }
}

#[test]
fn layers_below_a_file() {
    let tree = Tree::new();
    tree.nvme()
        .file("proc/self/mountinfo", "1 0 252:0 / / rw,sync - xfs /dev/mapper/data rw\n")
        .file("sys/devices/virtual/block/dm-0/dev", "252:0\n")
        .file("sys/devices/virtual/block/dm-0/dm/name", "data\n")
        .link("sys/devices/virtual/block/dm-0/slaves/nvme0n1p1", "sys/class/block/nvme0n1p1")
        .link("sys/block/dm-0", "sys/devices/virtual/block/dm-0")
        .link("sys/dev/block/252:0", "sys/devices/virtual/block/dm-0");
    let device = Device::read_at(&tree.root(), Path::new("/data/file"), DeviceKind::File, (252, 0));
    let names: Vec<&str> = device.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["dm-0", "nvme0n1"]);
    let findings = examine(&tree.machine(), std::slice::from_ref(&device));
    assert_eq!(find(&findings, "layers").state, "dm-0 over nvme0n1");
    assert_eq!(find(&findings, "file system").severity, Severity::Good);
    assert_eq!(find(&findings, "mount options").state, "sync");
    assert_eq!(find(&findings, "nvme0n1 scheduler").severity, Severity::Hint);
}

#[test]
fn a_file_whose_number_is_of_no_device() {
    // btrfs gives each subvolume its own device number.
    let tree = Tree::new();
    tree.nvme().file("proc/self/mountinfo", "1 0 0:40 / /x rw - btrfs /dev/nvme0n1p1 rw\n");
    let device = Device::read_at(&tree.root(), Path::new("/x/file"), DeviceKind::File, (0, 41));
    assert_eq!(device.disks[0].name, "nvme0n1");
    assert_eq!(device.partition.as_deref(), Some("nvme0n1p1"));
    let findings = examine(&tree.machine(), std::slice::from_ref(&device));
    assert_eq!(find(&findings, "file system").severity, Severity::Hint);
}

#[test]
fn numa() {
    let tree = Tree::new();
    tree.nvme()
        .file("sys/bus/pci/devices/0000:01:00.0/numa_node", "1\n")
        .file("sys/devices/system/node/node0/cpulist", "0-1\n")
        .file("sys/devices/system/node/node1/cpulist", "2-3\n");
    let findings = examine(&tree.machine(), &Device::all(&tree.root()));
    let numa = findings.iter().find(|f| f.subject == "NUMA" && f.area != Area::Processors).unwrap();
    assert_eq!(numa.severity, Severity::Hint);
    assert!(commands(numa)[0].starts_with("numactl --cpunodebind=1"));
}

/// A SAS controller is reported with its disks. A controller whose disks are in use stays with the
/// kernel, and its users are named.
#[test]
fn sas_controllers() {
    let tree = Tree::new();
    for (number, address) in [(0, "0000:03:00.0"), (1, "0000:04:00.0")] {
        let pci = format!("sys/devices/pci0000:00/{address}");
        let disk = format!("{pci}/host{number}/target{number}:0:0/block/sd{number}");
        tree.file(format!("{pci}/class"), "0x010700\n")
            .file(format!("{disk}/dev"), format!("8:{number}\n"))
            .file(format!("{disk}/size"), "2048\n")
            .link(&format!("sys/bus/pci/devices/{address}"), &pci)
            .link(&format!("{disk}/device"), &format!("{pci}/host{number}"))
            .link(&format!("sys/block/sd{number}"), &disk)
            .link(&format!("sys/dev/block/8:{number}"), &disk)
            .file("sys/bus/pci/drivers/mpt3sas/bind", "")
            .link(&format!("{pci}/driver"), "sys/bus/pci/drivers/mpt3sas");
    }
    tree.file(
        "proc/self/mountinfo",
        "1 0 8:1 / /srv rw - ext4 /dev/sd1 rw\n2 1 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    );
    let findings = tree.findings();
    let free = find(&findings, "SAS controller 0000:03:00.0");
    assert_eq!(free.state, "mpt3sas");
    assert!(free.why.contains("sd0"), "{free:?}");
    assert_eq!(commands(free), ["sudo qpair nvme bind 0000:03:00.0"]);
    let used = find(&findings, "SAS controller 0000:04:00.0");
    assert!(used.why.contains("sd1 is mounted at /srv"), "{used:?}");
    assert!(commands(used).is_empty());
}
