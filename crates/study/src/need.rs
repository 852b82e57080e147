//! Needs of findings: questions to a machine and its devices.
//!
//! Invariant: the reason why a finding is not tested is the answer to such a question, computed for
//! each study, and never a fixed text.

use crate::against::{Against, Boot};
use crate::lab::{Device, INTERFACES, InterfaceReport, USER_SCSI, USER_SPACE, disks};
use crate::means::Means;

/// A requirement of the test of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// At least this many cores.
    Cores(u32),
    /// At least this many devices, each on a disk of its own.
    Drives(u32),
    /// At least this many cores for each drive, of five drives at most.
    CoresEach(u32),
    /// An interface that opens on all devices.
    Interface(&'static str),
    /// Devices that may be written.
    Writes,
    /// Counters of instructions and cache misses.
    Counters,
    /// The program fio.
    Fio,
    /// A file system that root can make and mount.
    FileSystem(&'static str),
    /// A workload of the program that runs other storage engines.
    Peers(&'static str),
    /// Stores, over a kernel interface or over the user-space driver.
    Stores(&'static str),
    /// A Linux md array over the other devices.
    Md,
    /// A disk that a qpair target serves to this guest, and one of its hypervisor.
    Guest,
    /// The rate of the drives' data sheets.
    DataSheet,
    /// A stored study of this machine with mitigations the other way around.
    OtherMitigations,
    /// A stored study of this machine with the IOMMU the other way around.
    OtherIommu,
    /// Drives made of software, which every machine has.
    SoftDrive,
}

/// A machine and its devices, as needs see them.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    pub(crate) cores: u32,
    pub(crate) devices: &'a [Device],
    pub(crate) interfaces: &'a [InterfaceReport],
    pub(crate) means: &'a Means,
    /// The state of the boot, and the stored study that it is compared with.
    pub(crate) boots: Option<(Boot, &'a Against)>,
}

impl Need {
    /// Describes the need, to follow "needs".
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::Cores(count) => format!("{count} cores"),
            Self::Drives(count) => format!("{count} drives"),
            Self::CoresEach(1) => "a core for each drive".to_owned(),
            Self::CoresEach(count) => format!("{count} cores for each drive"),
            Self::Interface(USER_SPACE) => "the user-space driver".to_owned(),
            Self::Interface(USER_SCSI) => "the user-space SCSI driver".to_owned(),
            Self::Interface(name) => name.to_owned(),
            Self::Writes => "writes".to_owned(),
            Self::Counters => "hardware counters".to_owned(),
            Self::Fio => "fio".to_owned(),
            Self::FileSystem(name) => format!("root and {name}"),
            Self::Peers(_) => "qpair-peers".to_owned(),
            Self::Stores(USER_SPACE) => {
                "a store over the user-space driver, on a model if there is no drive".to_owned()
            }
            Self::Stores(_) => "a store".to_owned(),
            Self::Md => "an md array of the drives".to_owned(),
            Self::Guest => "a guest with a disk of a qpair target".to_owned(),
            Self::DataSheet => "the drives' data sheet".to_owned(),
            Self::OtherMitigations => {
                "a study of this machine with mitigations the other way".to_owned()
            }
            Self::OtherIommu => "a study of this machine with the IOMMU the other way".to_owned(),
            Self::SoftDrive => "nothing: of a model".to_owned(),
        }
    }

    /// Returns what is missing here, as a sentence; `None` if the need is met.
    #[must_use]
    pub fn lacking(self, here: &Here<'_>) -> Option<String> {
        let drives = disks(here.devices).min(here.devices.len());
        let unless = |met: bool, what: String| (!met).then_some(what);
        match self {
            Self::Cores(least) => unless(here.cores >= least, cores(here.cores, least)),
            Self::Drives(least) => unless(drives >= least as usize, few_drives(here, least)),
            Self::CoresEach(each) => {
                let least = each * drives.clamp(1, 5) as u32;
                unless(here.cores >= least, cores(here.cores, least))
            }
            Self::Interface(name) => no_interface(here.interfaces, name),
            Self::Writes => {
                let may = here.devices.iter().all(|device| device.may_write);
                unless(may, "the devices may not be written without --allow-writes".to_owned())
            }
            Self::Counters => unless(
                here.means.counters,
                "the machine counts no instructions and cache misses for this program".to_owned(),
            ),
            Self::Fio => {
                unless(here.means.fio.is_some(), "the program fio is not installed".to_owned())
            }
            Self::FileSystem(name) => {
                let of = here.means.file_systems.iter().find(|known| known.name == name);
                match of {
                    None => Some(format!("whether {name} can be made was not examined")),
                    Some(known) => known.unavailable.clone(),
                }
            }
            Self::Peers(_) if here.means.no_peers.is_some() => here.means.no_peers.clone(),
            Self::Peers(workload) => match &here.means.peers[..] {
                [] => Some("the program qpair-peers (crates/peers) is not installed".to_owned()),
                known => unless(
                    known.iter().any(|one| one == workload),
                    format!("qpair-peers has no workload {workload}"),
                ),
            },
            Self::Stores(USER_SPACE) => match here.means.user_space_store() {
                Some(_) => None,
                None => Some(no_store(&[&here.means.no_user_space_stores, &here.means.no_stores])),
            },
            Self::Stores(interface) => unless(
                here.means.stores.iter().any(|one| one == interface),
                no_store(&[&here.means.no_stores]),
            ),
            Self::Md if here.means.md.is_some() => None,
            Self::Md => Some(here.means.no_md.clone().unwrap_or_else(|| {
                "no device of the study is an md array: name one over the other devices last"
                    .to_owned()
            })),
            Self::Guest => unless(
                here.means.served.is_some(),
                "no device of the study is a disk that a qpair target serves to this guest \
                 (its serial number would begin with qpair)"
                    .to_owned(),
            ),
            Self::DataSheet => unless(
                here.means.data_sheet_ios_per_s.is_some(),
                "the reads a second of the data sheet are not known: --data-sheet N".to_owned(),
            ),
            Self::OtherMitigations => {
                other(here, |boot| boot.mitigated, "mitigations of processor bugs")
            }
            Self::OtherIommu => other(here, |boot| boot.iommu, "the IOMMU"),
            Self::SoftDrive => None,
        }
    }
}

fn cores(have: u32, least: u32) -> String {
    match have {
        0 | 1 => format!("one core only may be used, of {least}"),
        _ => format!("{have} cores may be used, of {least}"),
    }
}

/// Returns the first reason that is known. Studies of older versions have none.
fn no_store(reasons: &[&Option<String>]) -> String {
    let known = reasons.iter().find_map(|reason| reason.as_ref());
    known.cloned().unwrap_or_else(|| "no place for stores was looked for".to_owned())
}

fn few_drives(here: &Here<'_>, least: u32) -> String {
    match here.devices.len() {
        0 | 1 => format!("one device only was given, of {least}"),
        given if disks(here.devices) < given => {
            "the devices are files or partitions on one disk, not drives".to_owned()
        }
        given => format!("{given} devices were given, of {least}"),
    }
}

/// Returns the reason why an interface cannot be used; `None` if it can be.
pub(crate) fn no_interface(interfaces: &[InterfaceReport], name: &str) -> Option<String> {
    match interfaces.iter().find(|known| known.name == name) {
        Some(known) => known.unavailable.as_ref().map(|reason| format!("{name}: {reason}")),
        None if name == USER_SCSI => {
            Some("no device is a disk of a SCSI host adapter that this program drives".to_owned())
        }
        None if INTERFACES.iter().any(|candidate| candidate.name == name) => {
            Some(format!("{name}: the kernel does not drive the devices"))
        }
        None => Some(format!("{name} does not reach the devices")),
    }
}

fn other(here: &Here<'_>, state: fn(&Boot) -> Option<bool>, what: &'static str) -> Option<String> {
    let Some((boot, against)) = &here.boots else {
        return Some(format!("there is no stored study to compare {what} with: --against FILE"));
    };
    match (state(boot), state(&against.boot)) {
        (None, _) | (_, None) => Some(format!("the state of {what} is not known of both studies")),
        (own, other) if own == other => {
            Some(format!("the stored study ran with {what} in the same state"))
        }
        _ => None,
    }
}
