//! [`Device`]: a path given by the user, and everything below it.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use qpair_sysfs::Root;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::mount::{Mount, parse_number};
use crate::words::rounded;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum DeviceKind {
    File,
    /// A directory: describes a file that would be created in it.
    Directory,
    BlockDevice,
    /// A character device: `/dev/ng0n1`.
    CharacterDevice,
}

/// A file or device, and what lies below it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Device {
    pub path: String,
    pub kind: DeviceKind,
    pub size_bytes: Option<u64>,
    pub mount: Option<Mount>,
    pub partition: Option<String>,
    /// The users of a block device: "mounted at /".
    pub in_use: Vec<String>,
    /// The disks below, the uppermost layer first. Empty for file systems without a disk.
    pub disks: Vec<Disk>,
}

impl Device {
    /// Describes a path of this machine.
    ///
    /// # Errors
    /// The errors of `stat(2)`, and `InvalidInput` for a pipe or socket.
    pub fn read(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        let file_type = metadata.file_type();
        let (kind, number) = if file_type.is_block_device() {
            (DeviceKind::BlockDevice, metadata.rdev())
        } else if file_type.is_char_device() {
            (DeviceKind::CharacterDevice, metadata.rdev())
        } else if file_type.is_file() {
            (DeviceKind::File, metadata.dev())
        } else if file_type.is_dir() {
            (DeviceKind::Directory, metadata.dev())
        } else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or socket"));
        };
        let number = (rustix::fs::major(number), rustix::fs::minor(number));
        let absolute = path.canonicalize()?;
        let mut device = Self::read_at(&Root::system(), &absolute, kind, number);
        device.path = path.display().to_string();
        if kind == DeviceKind::File {
            device.size_bytes = Some(metadata.size());
        }
        Ok(device)
    }

    /// Describes an absolute path of the machine that a directory tree describes. `number`: the
    /// major and minor number of the device, or of the file's file system.
    #[must_use]
    pub fn read_at(root: &Root, path: &Path, kind: DeviceKind, number: (u32, u32)) -> Self {
        let mut device = Self {
            path: path.display().to_string(),
            kind,
            size_bytes: None,
            mount: None,
            partition: None,
            in_use: Vec::new(),
            disks: Vec::new(),
        };
        let node = match kind {
            DeviceKind::BlockDevice => Node::of_number(root, number),
            DeviceKind::CharacterDevice => Node::of_character_device(root, number),
            DeviceKind::File | DeviceKind::Directory => {
                let absolute = root.canonical(path).unwrap_or_else(|| path.to_owned());
                let mounts = Mount::all(root);
                device.mount = Mount::of_path(&mounts, &absolute).cloned();
                Node::of_number(root, number)
                    .or_else(|| Node::of_mount(root, device.mount.as_ref()?))
            }
        };
        if let Some(node) = node {
            gather(root, &node.disk, &mut device.disks);
            if kind == DeviceKind::BlockDevice {
                device.size_bytes =
                    root.number::<u64>(node.directory().join("size")).map(|sectors| sectors * 512);
                device.in_use = in_use(root, &node);
            }
            device.partition = node.partition;
        }
        device
    }

    /// Describes a disk by its name in `/sys/block`.
    #[must_use]
    pub fn named(root: &Root, name: &str) -> Option<Self> {
        let number = parse_number(&root.text(format!("/sys/block/{name}/dev"))?)?;
        let path = Path::new("/dev").join(name);
        Some(Self::read_at(root, &path, DeviceKind::BlockDevice, number))
    }

    /// Returns all disks of the machine that hardware or a hypervisor provides.
    #[must_use]
    pub fn all(root: &Root) -> Vec<Self> {
        let names = root.names("/sys/block");
        let real = names.iter().filter(|name| {
            let has = |leaf: &str| root.exists(format!("/sys/block/{name}/{leaf}"));
            let empty = root.number::<u64>(format!("/sys/block/{name}/size")) == Some(0);
            // A hidden disk is one path of a drive with several.
            let hidden = root.flag(format!("/sys/block/{name}/hidden")) == Some(true);
            has("device") && !empty && !hidden && !name.starts_with("sr")
        });
        real.filter_map(|name| Self::named(root, name)).collect()
    }

    #[must_use]
    pub fn one_line(&self) -> String {
        let size = self.size_bytes.map(rounded);
        let mut text = match (self.kind, &size) {
            (DeviceKind::File, Some(size)) => format!("file of {size}"),
            (DeviceKind::File, None) => "file".to_owned(),
            (DeviceKind::Directory, _) => "directory".to_owned(),
            (DeviceKind::BlockDevice, _) if self.partition.is_some() => {
                format!("partition {}", self.partition.as_deref().unwrap_or_default())
            }
            (DeviceKind::BlockDevice, _) => "block device".to_owned(),
            (DeviceKind::CharacterDevice, _) => "character device".to_owned(),
        };
        if let Some(mount) = &self.mount {
            text += &format!(" on {} at {}", mount.file_system, mount.point);
        }
        let disks: Vec<String> = self.disks.iter().map(Disk::one_line).collect();
        if !disks.is_empty() {
            text += &format!(", {}", disks.join(" over "));
        }
        text
    }
}

struct Node {
    disk: String,
    partition: Option<String>,
}

impl Node {
    fn of_number(root: &Root, (major, minor): (u32, u32)) -> Option<Self> {
        Self::of_path(root, &format!("/sys/dev/block/{major}:{minor}"))
    }

    fn of_name(root: &Root, name: &str) -> Option<Self> {
        Self::of_path(root, &format!("/sys/class/block/{name}"))
            .or_else(|| Self::of_path(root, &format!("/sys/block/{name}")))
    }

    fn of_path(root: &Root, path: &str) -> Option<Self> {
        let path = root.canonical(path)?;
        let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
        if root.exists(path.join("partition")) {
            return Some(Self { disk: name(path.parent()?)?, partition: name(&path) });
        }
        Some(Self { disk: name(&path)?, partition: None })
    }

    /// Returns the drive of a character device such as `/dev/ngXnY`.
    fn of_character_device(root: &Root, (major, minor): (u32, u32)) -> Option<Self> {
        let path = root.canonical(format!("/sys/dev/char/{major}:{minor}"))?;
        let drive = path.file_name()?.to_str()?.strip_prefix("ng")?;
        Self::of_name(root, &format!("nvme{drive}"))
    }

    /// Returns the device of a file system that gives its files a device number of its own, such as
    /// btrfs.
    fn of_mount(root: &Root, mount: &Mount) -> Option<Self> {
        let (major, minor) = mount.number;
        Self::of_number(root, (major, minor)).or_else(|| {
            let source = Path::new(&mount.source);
            let source = source.starts_with("/dev").then_some(source)?;
            let device = root.canonical(source).unwrap_or_else(|| source.to_owned());
            Self::of_name(root, device.file_name()?.to_str()?)
        })
    }

    fn name(&self) -> &str {
        self.partition.as_deref().unwrap_or(&self.disk)
    }

    fn directory(&self) -> PathBuf {
        let disk = Path::new("/sys/block").join(&self.disk);
        self.partition.as_ref().map_or(disk.clone(), |partition| disk.join(partition))
    }
}

/// Adds a disk and the disks below it, each once.
fn gather(root: &Root, name: &str, disks: &mut Vec<Disk>) {
    if disks.iter().any(|disk| disk.name == name) {
        return;
    }
    let Some(disk) = Disk::read(root, name) else { return };
    let mut below: Vec<String> =
        disk.below.iter().filter_map(|name| Some(Node::of_name(root, name)?.disk)).collect();
    if let Some(file) = &disk.backing_file {
        let mounts = Mount::all(root);
        let mount = Mount::of_path(&mounts, Path::new(file));
        below.extend(mount.and_then(|mount| Some(Node::of_mount(root, mount)?.disk)));
    }
    disks.push(disk);
    below.iter().for_each(|name| gather(root, name, disks));
}

/// Returns the name that the device mapper has for one of its devices: of a logical volume, or of
/// an encrypted disk.
fn mapping(root: &Root, node: &str) -> Option<String> {
    root.text(format!("/sys/class/block/{node}/dm/name")).map(|name| name.trim().to_owned())
}

/// Returns the users of a disk or partition. For a disk, the users of its partitions are included.
fn in_use(root: &Root, node: &Node) -> Vec<String> {
    let directory = node.directory();
    let mut nodes = vec![(node.name().to_owned(), directory.clone())];
    if node.partition.is_none() {
        let names = root.names(&directory);
        nodes.extend(
            names
                .into_iter()
                .map(|name| (name.clone(), directory.join(name)))
                .filter(|(_, path)| root.exists(path.join("partition"))),
        );
    }
    let mounts = Mount::all(root);
    let swaps = root.text("/proc/swaps").unwrap_or_default();
    let mut uses = Vec::new();
    for (name, directory) in nodes {
        let number = root.text(directory.join("dev")).and_then(|text| parse_number(&text));
        let path = format!("/dev/{name}");
        let points = mounts
            .iter()
            .filter(|mount| Some(mount.number) == number || mount.source == path)
            .map(|mount| format!("{name} is mounted at {}", mount.point));
        uses.extend(points);
        if swaps.lines().any(|line| line.split_whitespace().next() == Some(&path)) {
            uses.push(format!("{name} is swap space"));
        }
        let holders = root.names(directory.join("holders"));
        uses.extend(holders.iter().map(|holder| match mapping(root, holder) {
            Some(its) => format!("{name} is held by {holder} ({its})"),
            None => format!("{name} is held by {holder}"),
        }));
    }
    uses
}
