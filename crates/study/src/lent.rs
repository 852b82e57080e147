//! NVMe and SAS drives of the kernel that are lent to this program's own drivers for parts of a
//! study. A SAS controller is lent with all drives behind it.
//!
//! Invariants:
//! - While a point runs, the drives are bound to the driver of its interface. At the end of the
//!   study, even of a failed one, they are bound to their original driver.
//! - Both drivers see the same drive: its size is equal, and for NVMe its serial number. A SAS
//!   drive is found by its SAS address under both.

use qpair_block::{DeviceSpec, Error, ErrorKind, Result};
use qpair_drivers::{Drivers, Loan, Named, Unit};
use qpair_workload::Watcher;

use crate::config::Config;
use crate::lab::{Lab, interfaces};
use crate::options::Options;
use crate::report::StudyReport;
use crate::run::{Outside, run_on};
use crate::session::Driver;

/// The kernel's VFIO driver, through which this program drives a drive.
const VFIO: &str = "vfio-pci";

/// The drives of a study, all of which are on loan.
#[derive(Debug)]
pub struct Lent {
    drives: Vec<Named>,
    /// The loans of their controllers, one for each.
    loans: Vec<Loan>,
    now: Driver,
    /// The number of times that the drives were rebound.
    changes: u32,
}

impl Lent {
    /// Borrows the devices of a lab, and records in the lab that both drivers can be used.
    ///
    /// # Errors
    /// `Invalid` if a device is not an NVMe or SAS drive of the kernel. `Gone` if the two drivers
    /// do not see the same drive. Otherwise as [`Loan::begin`] and [`Loan::to`].
    pub fn begin(lab: &mut Lab) -> Result<Self> {
        let mut lent =
            Self { drives: Vec::new(), loans: Vec::new(), now: Driver::Kernel, changes: 0 };
        for device in &lab.devices {
            let named = Named::find(&device.spec)?;
            if lent.drives.contains(&named) {
                let context = format!("{} is named twice", named.own_spec());
                return Err(Error::new(ErrorKind::Invalid, context));
            }
            if lent.drives.iter().all(|known| known.address != named.address) {
                lent.loans.push(Loan::begin(named.address)?);
            }
            lent.drives.push(named);
        }
        lent.change_to(Driver::Own, lab)?;
        for (named, device) in lent.drives.iter().zip(&lab.devices) {
            check_same(&lab.drivers, named, lent.loan_of(named)?, device.size_bytes())?;
        }
        lent.change_to(Driver::Kernel, lab)?;
        for (device, named) in lab.devices.iter_mut().zip(&lent.drives) {
            device.own_driver_spec = Some(named.own_spec().to_string());
        }
        lab.interfaces = interfaces(&lab.devices);
        Ok(lent)
    }

    fn loan_of(&self, named: &Named) -> Result<&Loan> {
        let its = self.loans.iter().find(|loan| loan.address() == named.address);
        its.ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("{} is not on loan", named.address))
        })
    }

    /// Runs a study in which the drives are rebound between the two drivers, and returns the
    /// drives.
    ///
    /// # Errors
    /// As [`crate::run`], and errors of returning the drives.
    pub fn run(
        mut self,
        lab: &Lab,
        options: &Options,
        watcher: &dyn Watcher,
        stores: Option<&mut dyn Outside>,
    ) -> Result<StudyReport> {
        let prepare = &mut |config: &Config, lab: &mut Lab| self.prepare(config, lab);
        let outcome = run_on(lab, options, watcher, stores, prepare);
        let changes = self.changes;
        match (outcome, self.end()) {
            (Ok(mut report), Ok(())) => {
                report.notes.push(format!(
                    "One drive under two drivers: it went from one to the other {changes} times, and is back. It was the same drive with the \
                     same size under both."
                ));
                Ok(report)
            }
            (Err(first), Err(error)) => {
                let context = format!("{first}; then a drive could not be given back");
                Err(Error::new(error.kind(), context).caused_by(error))
            }
            (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
        }
    }

    /// Returns all drives to their original driver.
    fn end(self) -> Result<()> {
        let ends = self.loans.into_iter().map(Loan::end);
        // Every loan is ended, and the first failure is returned.
        ends.fold(Ok(()), Result::and)
    }

    /// Binds the drives to the driver of a point.
    fn prepare(&mut self, config: &Config, lab: &mut Lab) -> Result<()> {
        match Driver::of(config) {
            Some(driver) if driver != self.now => self.change_to(driver, lab),
            _ => Ok(()),
        }
    }

    fn change_to(&mut self, driver: Driver, lab: &mut Lab) -> Result<()> {
        self.changes += 1;
        for loan in &mut self.loans {
            match driver {
                Driver::Own => loan.to(VFIO)?,
                Driver::Kernel => loan.home()?,
            }
        }
        if driver == Driver::Kernel {
            for (named, device) in self.drives.iter().zip(&mut lab.devices) {
                let loan = self.loan_of(named)?;
                // The drive may have another name than before.
                let path = loan.block_device(named.unit)?;
                device.spec = DeviceSpec::File(path).to_string();
                if device.may_write {
                    loan.check_free()?;
                }
            }
        }
        self.now = driver;
        Ok(())
    }
}

/// Fails if this program's driver sees a different drive than the kernel's driver did.
fn check_same(
    drivers: &Drivers,
    named: &Named,
    loan: &Loan,
    kernel_s_size_bytes: Option<u64>,
) -> Result<()> {
    let DeviceSpec::Driven { driver, name } = named.own_spec() else {
        return Err(Error::new(ErrorKind::Invalid, format!("{} has no driver", named.address)));
    };
    let device = drivers.open(driver, &name)?;
    let serial = match named.unit {
        Unit::Namespace(_) => {
            let controller = drivers.nvme_device(driver, &name)?;
            Some(controller.controller().info().identify.serial.trim().to_owned())
        }
        Unit::Sas(_) => None,
    };
    let size_bytes = device.size_bytes();
    let is_equal = |known: &str| serial.as_deref().is_none_or(|serial| known.trim() == serial);
    if loan.serial().is_none_or(is_equal) && kernel_s_size_bytes.is_none_or(|it| it == size_bytes) {
        return Ok(());
    }
    let context = format!(
        "{}: this program's driver sees the serial number {} and {size_bytes} bytes, the kernel's {} and {}",
        named.address,
        serial.as_deref().unwrap_or("none"),
        loan.serial().unwrap_or("none"),
        kernel_s_size_bytes.unwrap_or(0)
    );
    Err(Error::new(ErrorKind::Gone, context))
}
