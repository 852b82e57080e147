//! Finds the disks behind a host: its targets, their units, and the properties of each.
//!
//! A unit is known by its name. Two paths to one name are one disk: the second path is reported,
//! and never opened.

use std::collections::HashMap;
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_scsi_wire::Command;
use qpair_scsi_wire::luns::{self, Lun};
use qpair_scsi_wire::vpd::UnitName;

use crate::disk::ScsiDisk;
use crate::host::{Host, Unit};
use crate::middle::Runner;
use crate::options::ScsiOptions;

const UNITS_MAX: usize = 256;
const LIST_BYTES: usize = 8 + 8 * UNITS_MAX;

#[derive(Debug)]
pub struct Found {
    /// The address: that of the host, the target and the unit.
    pub address: String,
    pub unit: Unit,
    /// The disk, or the reason why it cannot be used.
    pub disk: Result<ScsiDisk>,
}

/// The names that were seen, with the address of each.
#[derive(Debug, Default)]
pub struct Seen(HashMap<UnitName, String>);

impl Seen {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a disk that was found at an address.
    ///
    /// # Errors
    /// `Busy` if its name was seen at another address: it is the same disk.
    pub fn add(&mut self, disk: &ScsiDisk, address: &str) -> Result<()> {
        let name = &disk.facts().name;
        if let Some(known) = self.0.get(name)
            && known != address
        {
            let context = format!("{address}: {name} is the disk at {known}");
            return Err(Error::new(ErrorKind::Busy, context)
                .hint("two paths to a disk are not used together here: name the other one"));
        }
        self.0.insert(name.clone(), address.to_owned());
        Ok(())
    }
}

/// Scans a host. `name_of` returns the address of a unit for people, from the numbers of target and
/// unit.
///
/// # Errors
/// The errors of the host's own scan. An error of one unit is in that unit's entry.
pub fn scan(
    host: &Arc<dyn Host>,
    options: ScsiOptions,
    name_of: impl Fn(u32, u16) -> String,
) -> Result<Vec<Found>> {
    let mut seen = Seen::new();
    let mut found = Vec::new();
    for target in host.scan()? {
        if let Some(why) = target.refused {
            let address = name_of(target.number, 0);
            let context = format!("{address} ({}): {why}", target.address);
            let unit = Unit { target: target.number, lun: Lun::default() };
            let disk = Err(Error::new(ErrorKind::Unsupported, context));
            found.push(Found { address, unit, disk });
            continue;
        }
        for lun in units(host, target.number, options)? {
            let address = name_of(target.number, lun.number().unwrap_or(u16::MAX));
            let unit = Unit { target: target.number, lun };
            let disk = ScsiDisk::open(host.clone(), unit, address.clone(), options)
                .and_then(|disk| seen.add(&disk, &address).map(|()| disk));
            found.push(Found { address, unit, disk });
        }
    }
    Ok(found)
}

/// Returns the units that a target lists; unit 0 if it does not answer.
///
/// # Errors
/// The errors of opening a queue to the target.
pub fn units(host: &Arc<dyn Host>, target: u32, options: ScsiOptions) -> Result<Vec<Lun>> {
    let unit = Unit { target, lun: Lun::default() };
    let mut runner = Runner::open(host, unit, Arc::default(), options)?;
    let command = Command::ReportLuns { select: 0, allocation: LIST_BYTES as u32 };
    let listed = runner.ask(command, LIST_BYTES).unwrap_or_default();
    let mut units: Vec<Lun> =
        luns::decode(&listed).filter(|lun| lun.number().is_some()).take(UNITS_MAX).collect();
    if units.is_empty() {
        units.push(Lun::default());
    }
    Ok(units)
}
