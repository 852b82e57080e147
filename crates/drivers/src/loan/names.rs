//! The names of drives that the kernel no longer has, and the specifiers that lead to them.
//!
//! A drive that was bound to vfio-pci has no node in `/dev`. Its names are noted before it leaves
//! the kernel's driver, so that programs that name it as before still find it.
//!
//! Invariant: a name leads to a drive only if nothing else has the name now, and vfio-pci has the
//! drive's controller now. A drive that the kernel has is never taken.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use qpair_block::{DeviceSpec, Error, ErrorKind, Result};
use qpair_pci::sysfs::{Function, PciAddress, Root};

use super::Unit;

/// The folder of the noted names: for each controller a file. It is in memory, as the machine's
/// next start gives every drive to its own driver.
const FOLDER: &str = "/run/qpair-lent";
/// The largest note that is read.
const NOTE_BYTES_MAX: u64 = 1 << 20;

/// A drive whose controller vfio-pci has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lent {
    pub address: PciAddress,
    /// The drive; `None` for the only one of the controller.
    pub unit: Option<Unit>,
}

impl Lent {
    /// Finds the lent drive that has, or had, this name: a path in `/dev`, or the address of a
    /// controller, perhaps with `/nsN`. Returns `None` if the path exists, or no lent drive had the
    /// name.
    ///
    /// # Errors
    /// `Invalid` if several lent drives had the name; `NotFound` for the address of a controller
    /// that vfio-pci does not have.
    pub fn find(root: &Root, path: &Path) -> Result<Option<Self>> {
        // A name that cannot be examined is left to the kernel, which reports why.
        if !matches!(root.path(path).try_exists(), Ok(false)) {
            return Ok(None);
        }
        let Some(text) = path.to_str() else { return Ok(None) };
        if let Some((address, unit)) = read_address(text) {
            let function = Function::read(root, address)?;
            return match function.is_bound_to_vfio() {
                true => Ok(Some(Self { address, unit })),
                false => Err(not_lent(&function)),
            };
        }
        let Some(name) = text.strip_prefix("/dev/") else { return Ok(None) };
        let mut found = Self::noted(root, name);
        if found.is_empty() {
            found.extend(read_by_path(name).filter(|lent| is_lent(root, lent.address)));
        }
        match &found[..] {
            [] | [_] => Ok(found.pop()),
            several => {
                let all: Vec<String> =
                    several.iter().map(|lent| lent.address.to_string()).collect();
                let what = format!("{text} was the name of drives on {}", all.join(" and "));
                Err(Error::new(ErrorKind::Invalid, what).hint("name the address of one of them"))
            }
        }
    }

    fn noted(root: &Root, name: &str) -> Vec<Self> {
        let addresses = root.names(FOLDER).into_iter().filter_map(|file| PciAddress::parse(&file));
        let lent = addresses.filter(|address| is_lent(root, *address));
        let find = |address| Self::in_note(root, address, &read_note(root, address)?, name);
        lent.filter_map(find).collect()
    }

    fn in_note(root: &Root, address: PciAddress, text: &str, name: &str) -> Option<Self> {
        let lines = || text.lines().filter_map(|line| line.split_once('='));
        // Another drive may have been plugged in since.
        let (_, inode) = lines().find(|(key, _)| *key == "inode")?;
        if inode.parse().ok() != inode_of(root, address) {
            return None;
        }
        let (unit, _) = lines().find(|(_, names)| names.split(' ').any(|its| its == name))?;
        Some(Self { address, unit: Some(read_unit(unit)?) })
    }

    /// Returns the name of the drive under this program's own driver. An NVMe drive waits as the
    /// load suggests (`wait=auto`).
    #[must_use]
    pub fn own_spec(&self) -> DeviceSpec {
        let address = self.address;
        match self.unit {
            Some(Unit::Sas(port)) => {
                DeviceSpec::Driven { driver: "scsi", name: format!("{address}/sas.{port:016x}") }
            }
            Some(Unit::Namespace(nsid)) => {
                DeviceSpec::Driven { driver: "nvme", name: format!("wait=auto:{address}/ns{nsid}") }
            }
            None => DeviceSpec::Driven { driver: "nvme", name: format!("wait=auto:{address}") },
        }
    }
}

/// Notes the names of all drives of a controller that is about to be bound to vfio-pci. The names
/// of a controller that is bound already stay as they are.
///
/// # Errors
/// The errors of writing below `/run`.
pub fn note_names(root: &Root, function: &Function) -> Result<()> {
    if function.nodes.is_empty() {
        return Ok(());
    }
    let Some(inode) = inode_of(root, function.address) else { return Ok(()) };
    let mut text = format!("inode={inode}\n");
    for node in &function.nodes {
        if let Ok(unit) = Unit::of_at(root, &node.name) {
            let names = names_of(root, &node.name).join(" ");
            text.push_str(&format!("{}={names}\n", unit_text(unit)));
        }
    }
    let path = root.path(note_path(function.address));
    let folder = root.path(FOLDER);
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, text));
    written.map_err(|cause| Error::os(cause, format!("writing {}", path.display())))
}

/// Forgets the names of a controller's drives, because the kernel has them again.
pub fn forget_names(root: &Root, address: PciAddress) {
    // A note that stays does no harm: vfio-pci does not have the controller.
    let _ = fs::remove_file(root.path(note_path(address)));
}

/// Replaces, in a specifier, each file that is the name of a lent drive by the drive under this
/// program's driver. Returns the new specifier, and a sentence for each drive.
///
/// # Errors
/// As [`Lent::find`].
pub(crate) fn with_lent(root: &Root, spec: &DeviceSpec) -> Result<(DeviceSpec, Vec<String>)> {
    let mut reasons = Vec::new();
    let spec = spec.try_map_files(&mut |path| {
        let Some(lent) = Lent::find(root, path)? else { return Ok(None) };
        let own = lent.own_spec();
        let address = lent.address;
        reasons.push(format!(
            "{}: auto chose {own}, because vfio-pci has the controller {address} and the kernel has no such device",
            path.display()
        ));
        Ok(Some(own))
    })?;
    Ok((spec, reasons))
}

fn not_lent(function: &Function) -> Error {
    let address = function.address;
    let what = match &function.driver {
        Some(driver) => format!("the kernel's driver {driver} has {address}"),
        None => format!("no driver has {address}"),
    };
    let names: Vec<String> =
        function.nodes.iter().map(|node| format!("/dev/{}", node.name)).collect();
    let lend = format!("lend it: sudo qpair nvme bind {address}");
    Error::new(ErrorKind::NotFound, what).hint(match names.is_empty() {
        true => lend,
        false => format!("name {}, or {lend}", names.join(" or ")),
    })
}

fn is_lent(root: &Root, address: PciAddress) -> bool {
    Function::read(root, address).is_ok_and(|function| function.is_bound_to_vfio())
}

/// Returns the inode of a function's folder, which stays while the function is plugged in.
fn inode_of(root: &Root, address: PciAddress) -> Option<u64> {
    let folder = root.path(format!("/sys/bus/pci/devices/{address}"));
    fs::metadata(folder).ok().map(|about| about.ino())
}

fn note_path(address: PciAddress) -> String {
    format!("{FOLDER}/{address}")
}

/// Reads a note, if it is root's or this user's.
fn read_note(root: &Root, address: PciAddress) -> Option<String> {
    let path = root.path(note_path(address));
    let about = fs::metadata(&path).ok()?;
    let own = rustix::process::geteuid().as_raw();
    let is_trusted = about.uid() == 0 || about.uid() == own;
    if !is_trusted || !about.is_file() || about.len() > NOTE_BYTES_MAX {
        return None;
    }
    fs::read_to_string(path).ok()
}

/// Returns the names of a node below `/dev`: its own, and the links that udev made.
fn names_of(root: &Root, node: &str) -> Vec<String> {
    let target = Path::new("/dev").join(node);
    let mut names = vec![node.to_owned()];
    for folder in root.names("/dev/disk") {
        for link in root.names(format!("/dev/disk/{folder}")) {
            let name = format!("disk/{folder}/{link}");
            let leads_there = root.canonical(format!("/dev/{name}")).as_deref() == Some(&target);
            if leads_there && !name.contains(char::is_whitespace) {
                names.push(name);
            }
        }
    }
    names
}

/// Parses `0000:3b:00.0`, with `/ns1` or without.
fn read_address(text: &str) -> Option<(PciAddress, Option<Unit>)> {
    match text.rsplit_once("/ns") {
        None => Some((PciAddress::parse(text)?, None)),
        Some((address, nsid)) => {
            Some((PciAddress::parse(address)?, Some(Unit::Namespace(nsid.parse().ok()?))))
        }
    }
}

/// Parses a name that udev makes of the place: `disk/by-path/pci-0000:3b:00.0-nvme-1`, or
/// `...-sas-0x5000c50012345679-lun-0`.
fn read_by_path(name: &str) -> Option<Lent> {
    let (address, rest) = name.strip_prefix("disk/by-path/pci-")?.split_once('-')?;
    let unit = match rest.split_once('-')? {
        ("nvme", nsid) => Unit::Namespace(nsid.parse().ok()?),
        ("sas", rest) => {
            let digits = rest.strip_prefix("0x")?.strip_suffix("-lun-0")?;
            Unit::Sas(u64::from_str_radix(digits, 16).ok()?)
        }
        _ => return None,
    };
    Some(Lent { address: PciAddress::parse(address)?, unit: Some(unit) })
}

fn unit_text(unit: Unit) -> String {
    match unit {
        Unit::Namespace(nsid) => format!("ns{nsid}"),
        Unit::Sas(port) => format!("sas.{port:016x}"),
    }
}

fn read_unit(text: &str) -> Option<Unit> {
    match text.strip_prefix("ns") {
        Some(nsid) => nsid.parse().ok().map(Unit::Namespace),
        None => u64::from_str_radix(text.strip_prefix("sas.")?, 16).ok().map(Unit::Sas),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A machine with an NVMe drive of two namespaces.
    struct Machine {
        folder: tempfile::TempDir,
    }

    const ADDRESS: &str = "0000:3b:00.0";

    impl Machine {
        fn new() -> Self {
            let machine = Self { folder: tempfile::tempdir().unwrap() };
            let function = format!("sys/bus/pci/devices/{ADDRESS}");
            machine.write(&format!("{function}/class"), "0x010802");
            machine.write("dev/nvme0n1", "");
            machine.write("dev/nvme0n2", "");
            for nsid in 1..=2 {
                machine.write(&format!("{function}/nvme/nvme0/nvme0n{nsid}/size"), "8");
                machine.write(&format!("sys/class/block/nvme0n{nsid}/nsid"), &nsid.to_string());
            }
            let links = machine.path("dev/disk/by-id");
            fs::create_dir_all(&links).unwrap();
            symlink("../../nvme0n2", links.join("nvme-Soft_S1_2")).unwrap();
            machine.driver("nvme");
            machine
        }

        fn root(&self) -> Root {
            Root::at(self.folder.path())
        }

        fn path(&self, path: &str) -> std::path::PathBuf {
            self.folder.path().join(path)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn driver(&self, name: &str) {
            let link = self.path(&format!("sys/bus/pci/devices/{ADDRESS}/driver"));
            let _ = fs::remove_file(&link);
            fs::create_dir_all(self.path(&format!("sys/bus/pci/drivers/{name}"))).unwrap();
            symlink(format!("../../drivers/{name}"), link).unwrap();
        }

        fn lend(&self) {
            let function = Function::read(&self.root(), address()).unwrap();
            note_names(&self.root(), &function).unwrap();
            self.driver("vfio-pci");
            fs::remove_dir_all(self.path(&format!("sys/bus/pci/devices/{ADDRESS}/nvme"))).unwrap();
            fs::remove_file(self.path("dev/nvme0n1")).unwrap();
            fs::remove_file(self.path("dev/nvme0n2")).unwrap();
        }

        fn spec_of(&self, name: &str) -> String {
            let spec = DeviceSpec::parse(name).unwrap();
            with_lent(&self.root(), &spec).unwrap().0.to_string()
        }
    }

    fn address() -> PciAddress {
        PciAddress::parse(ADDRESS).unwrap()
    }

    #[test]
    fn a_lent_drive_is_found_by_all_of_its_names() {
        let machine = Machine::new();
        machine.lend();
        let (one, two) = ("nvme:wait=auto:0000:3b:00.0/ns1", "nvme:wait=auto:0000:3b:00.0/ns2");
        for (name, own) in [
            ("/dev/nvme0n1", one),
            ("/dev/nvme0n2", two),
            ("/dev/disk/by-id/nvme-Soft_S1_2", two),
            ("/dev/disk/by-path/pci-0000:3b:00.0-nvme-1", one),
            ("0000:3b:00.0/ns2", two),
            ("3b:00.0/ns2", two),
            ("0000:3b:00.0", "nvme:wait=auto:0000:3b:00.0"),
            ("/dev/nvme1n1", "/dev/nvme1n1"),
            ("/srv/data", "/srv/data"),
        ] {
            assert_eq!(machine.spec_of(name), own, "{name}");
        }
        let stripe = "stripe:unit=4KiB:/dev/nvme0n1+/dev/nvme0n2";
        assert_eq!(machine.spec_of(stripe), format!("stripe:unit=4KiB:{one}+{two}"));
        let spec = DeviceSpec::parse("/dev/nvme0n1").unwrap();
        let (_, reasons) = with_lent(&machine.root(), &spec).unwrap();
        assert_eq!(reasons.len(), 1);
        assert!(reasons[0].contains("vfio-pci has the controller 0000:3b:00.0"), "{reasons:?}");
    }

    #[test]
    fn a_drive_of_the_kernel_is_never_taken() {
        let machine = Machine::new();
        for name in ["/dev/nvme0n1", "/dev/disk/by-id/nvme-Soft_S1_2"] {
            assert_eq!(machine.spec_of(name), name);
        }
        let asked = DeviceSpec::parse("0000:3b:00.0").unwrap();
        let error = with_lent(&machine.root(), &asked).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let way_out = error.way_out().unwrap();
        assert!(way_out.contains("/dev/nvme0n1 or /dev/nvme0n2"), "{way_out}");
        // Its names are noted, and it was given back without a word to this program.
        machine.lend();
        machine.driver("nvme");
        assert_eq!(machine.spec_of("/dev/nvme0n1"), "/dev/nvme0n1");
        // Another drive has the name now.
        machine.driver("vfio-pci");
        machine.write("dev/nvme0n1", "");
        assert_eq!(machine.spec_of("/dev/nvme0n1"), "/dev/nvme0n1");
    }

    #[test]
    fn forgotten_names_lead_nowhere_and_damaged_notes_do_no_harm() {
        let machine = Machine::new();
        machine.lend();
        let note = format!("run/qpair-lent/{ADDRESS}");
        for text in [
            "",
            "=",
            "ns1",
            "nsX=nvme0n1",
            "sas.zz=nvme0n1\n",
            "ns1=nvme0n11 nvme0n\n",
            // Without the inode of the function that had the names.
            "ns1=nvme0n1\n",
            "inode=1\nns1=nvme0n1\n",
        ] {
            machine.write(&note, text);
            assert_eq!(machine.spec_of("/dev/nvme0n1"), "/dev/nvme0n1", "{text:?}");
        }
        forget_names(&machine.root(), address());
        assert!(!machine.path(&note).exists());
        assert_eq!(machine.spec_of("/dev/nvme0n1"), "/dev/nvme0n1");
    }

    #[test]
    fn a_name_that_two_drives_had_is_refused() {
        let machine = Machine::new();
        machine.lend();
        let other = "sys/bus/pci/devices/0000:3c:00.0";
        machine.write(&format!("{other}/class"), "0x010802");
        symlink("../../drivers/vfio-pci", machine.path(&format!("{other}/driver"))).unwrap();
        let inode = inode_of(&machine.root(), PciAddress::parse("0000:3c:00.0").unwrap()).unwrap();
        machine.write("run/qpair-lent/0000:3c:00.0", &format!("inode={inode}\nns1=nvme0n1\n"));
        let error = Lent::find(&machine.root(), Path::new("/dev/nvme0n1")).unwrap_err();
        assert!(error.to_string().contains("0000:3b:00.0 and 0000:3c:00.0"), "{error}");
    }

    #[test]
    fn names_of_the_place() {
        let sas = read_by_path("disk/by-path/pci-0000:3b:00.0-sas-0x5000c50012345679-lun-0");
        assert_eq!(sas.unwrap().own_spec().to_string(), "scsi:0000:3b:00.0/sas.5000c50012345679");
        for name in ["disk/by-path/pci-0000:3b:00.0", "disk/by-path/pci-0000:3b:00.0-ata-1", "sda"]
        {
            assert_eq!(read_by_path(name), None, "{name}");
        }
    }
}
