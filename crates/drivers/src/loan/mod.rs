//! Drives on loan: taken from the kernel's driver for a while, and given back.
//!
//! Invariants:
//! - Before a drive leaves its driver, a note says to which driver it belongs. The note is removed
//!   when the drive is back, so [`recover`] can give back the drives of a program that was killed.
//!   A restart of the machine gives all drives back by itself, and deletes the notes.
//! - A drive leaves the kernel's driver only if nothing on it is in use, which is checked each
//!   time.

mod in_use;
mod named;
mod names;
mod note;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result};
use qpair_pci::sysfs::{self, Function, PciAddress, Root, VFIO_PCI};
use rustix::io::Errno;

pub use in_use::{reasons, uses};
pub use named::{Named, Unit};
pub(crate) use names::with_lent;
pub use names::{Lent, forget_names, note_names};
use note::{FOLDER, Note, Original};

/// The time limit for the kernel to create block devices of a drive. SAS controllers are reset, and
/// look for the drives behind them.
const BACK_WITHIN: Duration = Duration::from_secs(60);
/// The hint for a loan that no program will end any more.
const RECOVER: &str =
    "sudo qpair floor --recover gives back what a program that was killed had taken";

/// An NVMe or SAS controller that this program may give to other drivers, and that is given back in
/// the end.
#[derive(Debug)]
pub struct Loan {
    address: PciAddress,
    serial: Option<String>,
    /// The drives behind a SAS controller, all of which are lent together.
    units: Vec<Unit>,
    original: Original,
    note: Note,
    ended: bool,
}

impl Loan {
    /// Writes the note. The drive stays with the kernel's driver for now.
    ///
    /// # Errors
    /// `Denied`: not root. `NotFound`: no such function. `Invalid`: not an NVMe or SAS controller,
    /// or not with the kernel's driver. `Busy`: in use, or on loan to another program.
    pub fn begin(address: PciAddress) -> Result<Self> {
        let root = Root::system();
        let function = Function::read(&root, address)?;
        if !function.is_nvme() && !function.is_sas() {
            let context = format!(
                "{address} is not an NVMe or SAS controller (class {:06x})",
                function.class
            );
            return Err(Error::new(ErrorKind::Invalid, context)
                .hint("qpair nvme list and qpair scsi list show them"));
        }
        be_root(address)?;
        let mut note = Note::lock(Path::new(FOLDER), address)?;
        if note.read()?.is_some() {
            let context = format!("{address} was taken by a program that did not give it back");
            return Err(Error::new(ErrorKind::Busy, context).hint(RECOVER));
        }
        let outcome = original_of(&function).and_then(|original| {
            free(&function)?;
            note.write(&original).map(|()| original)
        });
        match outcome {
            Ok(original) => {
                let units = match function.is_sas() {
                    true => units_of(&function),
                    false => Vec::new(),
                };
                let serial = function.serial;
                Ok(Self { address, serial, units, original, note, ended: false })
            }
            Err(error) => {
                note.remove()?;
                Err(error)
            }
        }
    }

    /// Returns the controller's address.
    #[must_use]
    pub fn address(&self) -> PciAddress {
        self.address
    }

    /// Returns the serial number, as the kernel's driver read it.
    #[must_use]
    pub fn serial(&self) -> Option<&str> {
        self.serial.as_deref()
    }

    /// Gives the controller to a driver: the kernel's driver of that name, or vfio-pci, and so to
    /// this program. Does nothing if the driver already has it.
    ///
    /// # Errors
    /// `Busy`: something on the controller is in use, or a program has it open. `Unsupported`: no
    /// IOMMU, or no vfio-pci. The kernel's errors.
    pub fn to(&mut self, driver: &str) -> Result<()> {
        let root = Root::system();
        let function = Function::read(&root, self.address)?;
        if function.driver.as_deref() == Some(driver) {
            return Ok(());
        }
        if self.is_at_home(&function) {
            // The check sees only drives that the kernel has found again.
            self.all_back()?;
            self.check_free()?;
        }
        if driver == VFIO_PCI {
            sysfs::bind(&root, self.address)?;
        } else {
            sysfs::give(&root, self.address, driver)?;
        }
        Ok(())
    }

    /// Gives the controller back to its own driver. The loan continues.
    ///
    /// # Errors
    /// `Busy`: this program still has it open. `Io`: the driver does not take it.
    pub fn home(&mut self) -> Result<()> {
        give_back(self.address, &self.original)
    }

    /// Returns the block device of one of the controller's drives. Waits until the kernel has
    /// created it and it can be opened.
    ///
    /// # Errors
    /// `Gone`: there is no block device after a minute, or it belongs to another drive.
    pub fn block_device(&self, unit: Unit) -> Result<PathBuf> {
        let (address, begin) = (self.address, Instant::now());
        let mut why = None;
        loop {
            let function = Function::read(&Root::system(), address)?;
            match node_of(&function, unit).map(opens) {
                Some(Ok(path)) if self.serial == function.serial => return Ok(path),
                Some(Ok(_)) => {
                    let context = format!(
                        "{address} has the serial number {:?} now, but had {:?} before",
                        function.serial, self.serial
                    );
                    return Err(Error::new(ErrorKind::Gone, context));
                }
                Some(Err(error)) => why = Some(error),
                None => {}
            }
            if begin.elapsed() > BACK_WITHIN {
                let context = format!(
                    "{address} has no block device of {unit:?} after {} s",
                    BACK_WITHIN.as_secs()
                );
                let error = Error::new(ErrorKind::Gone, context).hint("dmesg | tail says why");
                return Err(match why {
                    Some(cause) => error.caused_by(cause),
                    None => error,
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Checks again that nothing on the controller is in use.
    ///
    /// # Errors
    /// `Busy` if something is in use.
    pub fn check_free(&self) -> Result<()> {
        free(&Function::read(&Root::system(), self.address)?)
    }

    /// Notes a kernel module that must be unloaded when the drive is given back.
    ///
    /// # Errors
    /// The errors of writing the note.
    pub fn needs_module(&mut self, name: &str) -> Result<()> {
        self.original.module = Some(name.to_owned());
        self.note.write(&self.original)
    }

    /// Gives the drive back to its driver. Waits for all drives behind a SAS controller, which
    /// the kernel finds one after the other.
    ///
    /// # Errors
    /// As [`Loan::home`]; then the note stays. `Gone`: a drive behind a SAS controller has not come
    /// back after a minute.
    pub fn end(mut self) -> Result<()> {
        self.ended = true;
        settle(self.address, &self.original, &self.note)?;
        self.all_back()
    }

    /// Waits for all drives behind a SAS controller.
    fn all_back(&self) -> Result<()> {
        self.units.iter().try_for_each(|unit| self.block_device(*unit).map(drop))
    }

    fn is_at_home(&self, function: &Function) -> bool {
        function.driver.as_deref() == Some(&*self.original.driver)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if !self.ended {
            // If this fails, the note stays. There is no caller to report the error to.
            let _ = settle(self.address, &self.original, &self.note);
        }
    }
}

/// Gives back the drives that killed programs had taken: one drive, or all. Returns them with the
/// drivers that they went to.
///
/// # Errors
/// `Denied`: not root. `Busy`: the program still runs. `NotFound`: that drive is not on loan. The
/// kernel's errors.
pub fn recover(which: Option<PciAddress>) -> Result<Vec<(PciAddress, String)>> {
    let folder = Path::new(FOLDER);
    let all = Note::all(folder);
    if let Some(address) = which.filter(|address| !all.contains(address)) {
        let context = format!("{address} was taken by no program, or was given back");
        return Err(Error::new(ErrorKind::NotFound, context)
            .hint("qpair nvme list shows which driver has it"));
    }
    let mut done = Vec::new();
    for address in all.into_iter().filter(|address| which.is_none_or(|it| it == *address)) {
        be_root(address)?;
        let mut note = Note::lock_of_killed(folder, address)?;
        let Some(original) = note.read()? else {
            note.remove()?;
            continue;
        };
        settle(address, &original, &note)?;
        done.push((address, original.driver));
    }
    Ok(done)
}

fn be_root(address: PciAddress) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let context = format!("{address}: only root takes a drive from its driver, and gives it back");
    Err(Error::new(ErrorKind::Denied, context).hint("sudo qpair ..."))
}

fn original_of(function: &Function) -> Result<Original> {
    let address = function.address;
    let home = |driver: &&String| *driver != VFIO_PCI;
    let Some(driver) = function.driver.as_ref().filter(home) else {
        let has = function.driver.as_deref().unwrap_or("no driver");
        let context = format!("{address} is not with the kernel's own driver: {has} has it");
        return Err(Error::new(ErrorKind::Invalid, context).hint(format!(
            "sudo qpair nvme unbind {address}, or sudo modprobe nvme (for SAS, mpt3sas)"
        )));
    };
    let named = sysfs::override_of(&Root::system(), address);
    Ok(Original { driver: driver.clone(), named, module: None })
}

/// Checks that nothing on a drive is in use.
fn free(function: &Function) -> Result<()> {
    let reasons = reasons(function);
    if reasons.is_empty() {
        return Ok(());
    }
    let context = format!("{} is in use: {}", function.address, reasons.join("; "));
    Err(Error::new(ErrorKind::Busy, context)
        .hint("unmount it, swapoff, or take the layers above apart"))
}

/// Returns the drives that have block devices.
fn units_of(function: &Function) -> Vec<Unit> {
    function.nodes.iter().filter_map(|node| Unit::of(&node.name).ok()).collect()
}

fn node_of(function: &Function, unit: Unit) -> Option<PathBuf> {
    let is_it = |name: &str| {
        let sectors = fs::read_to_string(format!("/sys/class/block/{name}/size"));
        let sectors = sectors.ok().and_then(|text| text.trim().parse::<u64>().ok());
        unit.is_at(name) && sectors.is_some_and(|sectors| sectors > 0)
    };
    let node = function.nodes.iter().find(|node| is_it(&node.name))?;
    Some(Path::new("/dev").join(&node.name))
}

/// Opens a block device once. The kernel shows a block device a moment before a program can open it
/// (`ENXIO`), and a moment after it has gone.
fn opens(path: PathBuf) -> Result<PathBuf> {
    match fs::File::open(&path) {
        Ok(_) => Ok(path),
        Err(cause) => Err(Error::os(cause, format!("opening {}", path.display()))),
    }
}

/// Restores everything in the note, and removes the note.
fn settle(address: PciAddress, original: &Original, note: &Note) -> Result<()> {
    give_back(address, original)?;
    if let Some(module) = &original.module {
        unload(module)?;
    }
    note.remove()
}

fn give_back(address: PciAddress, original: &Original) -> Result<()> {
    let root = Root::system();
    let driver = Function::read(&root, address)?.driver;
    if driver.as_deref() == Some(&*original.driver) {
        return Ok(());
    }
    let now = sysfs::give(&root, address, &original.named)?.now;
    if now.as_deref() == Some(&*original.driver) {
        return Ok(());
    }
    let context = format!(
        "{address} belongs to the driver {}, and {} has it",
        original.driver,
        now.as_deref().unwrap_or("none")
    );
    Err(Error::new(ErrorKind::Io, context)
        .hint(format!("sudo modprobe {}; then {RECOVER}", original.driver)))
}

/// Unloads a module that drives no function any more.
fn unload(module: &str) -> Result<()> {
    let entries = fs::read_dir(format!("/sys/bus/pci/drivers/{module}"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let has_function = names
        .into_iter()
        .any(|name| name.to_str().is_some_and(|it| PciAddress::parse(it).is_some()));
    let Ok(name) = std::ffi::CString::new(module) else { return Ok(()) };
    if has_function {
        return Ok(());
    }
    match rustix::system::delete_module(&name, 0) {
        // Another program has unloaded it.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(cause) => Err(Error::os(cause.into(), format!("unloading the module {module}"))
            .hint(format!("sudo rmmod {module}"))),
    }
}
