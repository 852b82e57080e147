//! One disk as the kernel sees it: `/sys/block/NAME`.

use std::path::Path;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::interrupts::Interrupts;
use crate::memory::chosen;
use crate::root::Root;
use crate::words::rounded;

/// A disk, or a layer that looks like one: `dm`, `md`, `loop`, `zram`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Disk {
    /// Its name: `nvme0n1`.
    pub name: String,
    /// What drives it: `nvme`, `virtio_blk`, `sd`, or the layer.
    pub driver: Option<String>,
    /// The driver of the host adapter below `sd`: `ahci`, `mpt3sas`.
    pub adapter: Option<String>,
    /// Its model, as it names itself.
    pub model: Option<String>,
    /// Size, bytes.
    pub size_bytes: Option<u64>,
    /// Where it is on the PCI bus.
    pub pci_address: Option<String>,
    /// The NUMA node it is attached to.
    pub numa_node: Option<u32>,
    /// Its queue.
    pub queue: Queue,
    /// Interrupts of its queues.
    pub interrupts: Option<Interrupts>,
    /// Disks it is made of.
    pub below: Vec<String>,
    /// The file it is made of (`loop`).
    pub backing_file: Option<String>,
}

/// How the kernel queues requests to a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Queue {
    /// Whether it says that it rotates. Virtual disks often do without being asked.
    pub rotational: Option<bool>,
    /// Smallest unit of addressing, bytes.
    pub logical_block_bytes: Option<u32>,
    /// Smallest unit that the medium writes at once, bytes.
    pub physical_block_bytes: Option<u32>,
    /// Queues of the hardware.
    pub hardware_queues: Option<u32>,
    /// Requests each of them holds.
    pub requests: Option<u32>,
    /// The scheduler in use.
    pub scheduler: Option<String>,
    /// All that could be.
    pub schedulers: Vec<String>,
    /// Whether completions can be polled for.
    pub io_poll: Option<bool>,
    /// Queues the driver was asked to keep for polling; `None` if it has no such parameter.
    pub poll_queues: Option<u32>,
    /// `write back`: completed writes may be lost with the power; `write through`: not.
    pub write_cache: Option<String>,
    /// Whether a single write can be made to survive power loss (FUA).
    pub force_unit_access: Option<bool>,
    /// Whether I/O is counted for `iostat`.
    pub statistics: Option<bool>,
    /// `nomerges`: 0 merges are looked for, 1 only the simple ones, 2 none.
    pub no_merges: Option<u32>,
    /// `rq_affinity`: where completions run. 0 anywhere, 1 near the submitter, 2 on its processor.
    pub completion_affinity: Option<u32>,
    /// Largest request now, bytes.
    pub transfer_bytes_max: Option<u64>,
    /// Largest request of the hardware, bytes.
    pub hardware_transfer_bytes_max: Option<u64>,
    /// Largest write that power loss leaves whole, bytes.
    pub atomic_write_bytes: Option<u64>,
}

impl Disk {
    /// Reads a disk, not a partition; `None` if there is none of that name.
    #[must_use]
    pub fn read(root: &Root, name: &str) -> Option<Self> {
        let directory = format!("/sys/block/{name}");
        if !root.exists(&directory) {
            return None;
        }
        let of = |leaf: &str| root.text(format!("{directory}/{leaf}"));
        let pci_address = pci_address(root, &directory);
        let driver = driver(root, &directory, name);
        let numa_node = pci_address
            .as_ref()
            .and_then(|address| root.number(format!("/sys/bus/pci/devices/{address}/numa_node")))
            .or_else(|| root.number(format!("{directory}/device/numa_node")));
        Some(Self {
            model: model(root, &directory),
            adapter: adapter(root, &directory),
            size_bytes: of("size")
                .and_then(|sectors| sectors.parse::<u64>().ok()?.checked_mul(512)),
            numa_node,
            queue: Queue::read(root, &directory, driver.as_deref()),
            interrupts: interrupts(root, &directory),
            below: root.names(format!("{directory}/slaves")).unwrap_or_default(),
            backing_file: of("loop/backing_file"),
            name: name.to_owned(),
            pci_address,
            driver,
        })
    }

    /// Whether it is an NVMe drive.
    #[must_use]
    pub fn is_nvme(&self) -> bool {
        self.driver.as_deref() == Some("nvme")
    }

    /// Whether it is a layer over other disks or files.
    #[must_use]
    pub fn is_layer(&self) -> bool {
        !self.below.is_empty() || self.backing_file.is_some()
    }

    /// Whether it has a medium that turns, as far as one can believe it: disks of hypervisors are not asked.
    #[must_use]
    pub fn turns(&self) -> bool {
        self.queue.rotational == Some(true) && self.driver.as_deref() == Some("sd")
    }

    /// The disk in one line: "nvme0n1 (nvme, SAMSUNG MZWLR3T8, 3.5 TiB)".
    #[must_use]
    pub fn one_line(&self) -> String {
        let driver = match (&self.driver, &self.adapter) {
            (Some(driver), Some(adapter)) => Some(format!("{driver} on {adapter}")),
            (driver, _) => driver.clone(),
        };
        let size = self.size_bytes.map(rounded);
        let words: Vec<String> = [driver, self.model.clone(), size].into_iter().flatten().collect();
        format!("{} ({})", self.name, words.join(", "))
    }
}

impl Queue {
    fn read(root: &Root, directory: &str, driver: Option<&str>) -> Self {
        let of = |leaf: &str| format!("{directory}/queue/{leaf}");
        let schedulers = root.text(of("scheduler"));
        let kib = |leaf: &str| root.number::<u64>(of(leaf)).and_then(|kib| kib.checked_mul(1024));
        Self {
            rotational: root.flag(of("rotational")),
            logical_block_bytes: root.number(of("logical_block_size")),
            physical_block_bytes: root.number(of("physical_block_size")),
            hardware_queues: root
                .names(format!("{directory}/mq"))
                .and_then(|names| u32::try_from(names.len()).ok()),
            requests: root.number(of("nr_requests")),
            scheduler: schedulers.as_deref().and_then(chosen),
            schedulers: schedulers.map_or(Vec::new(), |text| {
                text.split_whitespace()
                    .map(|word| word.trim_matches(['[', ']']).to_owned())
                    .collect()
            }),
            io_poll: root.flag(of("io_poll")),
            poll_queues: driver.and_then(|driver| {
                root.number(format!("/sys/module/{driver}/parameters/poll_queues"))
            }),
            write_cache: root.text(of("write_cache")),
            force_unit_access: root.flag(of("fua")),
            statistics: root.flag(of("iostats")),
            no_merges: root.number(of("nomerges")),
            completion_affinity: root.number(of("rq_affinity")),
            transfer_bytes_max: kib("max_sectors_kb"),
            hardware_transfer_bytes_max: kib("max_hw_sectors_kb"),
            atomic_write_bytes: root.number(of("atomic_write_max_bytes")),
        }
    }
}

/// Drivers of disks without hardware, by the beginning of the disk's name.
const LAYERS: [(&str, &str); 8] = [
    ("loop", "loop"),
    ("zram", "zram"),
    ("ram", "brd"),
    ("dm-", "device-mapper"),
    ("md", "md"),
    ("nbd", "nbd"),
    ("nullb", "null_blk"),
    ("ublkb", "ublk"),
];

fn driver(root: &Root, directory: &str, name: &str) -> Option<String> {
    if name.starts_with("nvme") {
        return Some("nvme".to_owned());
    }
    root.link_name(format!("{directory}/device/driver")).or_else(|| {
        let layer = LAYERS.iter().find(|(prefix, _)| name.starts_with(prefix));
        layer.map(|(_, driver)| (*driver).to_owned())
    })
}

fn model(root: &Root, directory: &str) -> Option<String> {
    let of = |leaf: &str| root.text(format!("{directory}/{leaf}"));
    if let Some(name) = of("dm/name") {
        return Some(name);
    }
    if let Some(level) = of("md/level") {
        return Some(level);
    }
    let model = of("device/model")?;
    // "ATA" is no vendor.
    let vendor = of("device/vendor").filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x"));
    Some(vendor.map_or(model.clone(), |vendor| format!("{vendor} {model}")))
}

/// The driver of the SCSI host that a disk is on.
fn adapter(root: &Root, directory: &str) -> Option<String> {
    let path = root.canonical(format!("{directory}/device"))?;
    let host =
        path.iter().filter_map(|part| part.to_str()).find(|part| is_numbered(part, "host"))?;
    root.text(format!("/sys/class/scsi_host/{host}/proc_name"))
}

/// The last PCI address on the way to the disk.
fn pci_address(root: &Root, directory: &str) -> Option<String> {
    let of = |path: &Path| {
        let mut parts = path.iter().filter_map(|part| part.to_str()).filter(|part| is_pci(part));
        parts.next_back().map(str::to_owned)
    };
    let direct = root.canonical(format!("{directory}/device")).and_then(|path| of(&path));
    // A drive with several paths hangs below its subsystem, its controllers beside it.
    direct.or_else(|| {
        let names = root.names(format!("{directory}/device"))?;
        let controllers = names.iter().filter(|name| is_numbered(name, "nvme"));
        controllers
            .filter_map(|name| root.canonical(format!("{directory}/device/{name}")))
            .find_map(|path| of(&path))
    })
}

/// "0000:01:00.0".
fn is_pci(part: &str) -> bool {
    let bytes = part.as_bytes();
    bytes.len() == 12
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b':',
            10 => *byte == b'.',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn is_numbered(name: &str, word: &str) -> bool {
    name.strip_prefix(word)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

fn interrupts(root: &Root, directory: &str) -> Option<Interrupts> {
    let device = root.canonical(format!("{directory}/device"))?;
    let name = device.file_name()?.to_str()?;
    if is_numbered(name, "nvme") {
        Interrupts::read(root, &format!("{name}q"))
    } else if is_numbered(name, "virtio") {
        Interrupts::read(root, &format!("{name}-req."))
    } else {
        None
    }
}
