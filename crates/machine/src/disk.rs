//! One disk as the kernel sees it: `/sys/block/NAME`.

use std::path::Path;

use qpair_sysfs::Root;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::interrupts::Interrupts;
use crate::memory::chosen;
use crate::words::rounded;

/// A disk, or a layer that looks like one: `dm`, `md`, `loop`, `zram`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Disk {
    /// The name of the disk: `nvme0n1`.
    pub name: String,
    /// The driver of the disk (`nvme`, `virtio_blk`, `sd`), or the layer.
    pub driver: Option<String>,
    /// The driver of the host adapter below `sd`: `ahci`, `mpt3sas`.
    pub adapter: Option<String>,
    pub model: Option<String>,
    pub size_bytes: Option<u64>,
    pub pci_address: Option<String>,
    pub numa_node: Option<u32>,
    pub queue: Queue,
    pub interrupts: Option<Interrupts>,
    /// The disks that the disk consists of.
    pub below: Vec<String>,
    /// The file that backs a `loop` device.
    pub backing_file: Option<String>,
}

/// The kernel's request queue of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Queue {
    /// Whether the disk claims to be rotational. Virtual disks often do so wrongly.
    pub rotational: Option<bool>,
    pub logical_block_bytes: Option<u32>,
    /// The smallest unit that the medium writes at once, in bytes.
    pub physical_block_bytes: Option<u32>,
    pub hardware_queues: Option<u32>,
    /// The number of requests that each hardware queue holds.
    pub requests: Option<u32>,
    pub scheduler: Option<String>,
    pub schedulers: Vec<String>,
    pub io_poll: Option<bool>,
    /// The number of queues that the driver was asked to reserve for polling; `None` if it has no
    /// such parameter.
    pub poll_queues: Option<u32>,
    /// `write back`: a loss of power may lose completed writes; `write through`: it does not.
    pub write_cache: Option<String>,
    /// Whether the disk supports force unit access (FUA): a single write that survives power loss.
    pub force_unit_access: Option<bool>,
    /// Whether the kernel counts I/O for `iostat`.
    pub statistics: Option<bool>,
    /// `nomerges`: 0: all merges are tried, 1: only simple ones, 2: none.
    pub no_merges: Option<u32>,
    /// `rq_affinity`: the processor on which completions run. 0: any, 1: one near the submitter, 2:
    /// the submitter's.
    pub completion_affinity: Option<u32>,
    /// The largest request at present, in bytes.
    pub transfer_bytes_max: Option<u64>,
    /// The largest request of the hardware, in bytes.
    pub hardware_transfer_bytes_max: Option<u64>,
    /// The largest write that a loss of power does not tear, in bytes.
    pub atomic_write_bytes: Option<u64>,
}

impl Disk {
    /// Reads a disk, which must not be a partition; `None` if there is no disk of that name.
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
            below: root.names(format!("{directory}/slaves")),
            backing_file: of("loop/backing_file"),
            name: name.to_owned(),
            pci_address,
            driver,
        })
    }

    #[must_use]
    pub fn is_nvme(&self) -> bool {
        self.driver.as_deref() == Some("nvme")
    }

    /// Whether the disk is a layer over other disks or files.
    #[must_use]
    pub fn is_layer(&self) -> bool {
        !self.below.is_empty() || self.backing_file.is_some()
    }

    /// Whether the disk has a rotating medium. Claims of virtual disks are ignored.
    #[must_use]
    pub fn turns(&self) -> bool {
        self.queue.rotational == Some(true) && self.driver.as_deref() == Some("sd")
    }

    /// Describes the disk in one line: "nvme0n1 (nvme, SAMSUNG MZWLR3T8, 3.5 TiB)".
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
            hardware_queues: root.count(format!("{directory}/mq")),
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

/// Drivers of disks without hardware, by the prefix of the disk's name.
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
    // "ATA" is not a vendor.
    let vendor = of("device/vendor").filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x"));
    Some(vendor.map_or(model.clone(), |vendor| format!("{vendor} {model}")))
}

fn adapter(root: &Root, directory: &str) -> Option<String> {
    let path = root.canonical(format!("{directory}/device"))?;
    let host =
        path.iter().filter_map(|part| part.to_str()).find(|part| is_numbered(part, "host"))?;
    root.text(format!("/sys/class/scsi_host/{host}/proc_name"))
}

/// Returns the last PCI address in the path of the disk.
fn pci_address(root: &Root, directory: &str) -> Option<String> {
    let of = |path: &Path| {
        let mut parts = path.iter().filter_map(|part| part.to_str()).filter(|part| is_pci(part));
        parts.next_back().map(str::to_owned)
    };
    let direct = root.canonical(format!("{directory}/device")).and_then(|path| of(&path));
    // A drive with several paths is below its subsystem, with its controllers beside it.
    direct.or_else(|| {
        let names = root.names(format!("{directory}/device"));
        let controllers = names.iter().filter(|name| is_numbered(name, "nvme"));
        controllers
            .filter_map(|name| root.canonical(format!("{directory}/device/{name}")))
            .find_map(|path| of(&path))
    })
}

/// Whether a part of a path is a PCI address such as "0000:01:00.0".
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
