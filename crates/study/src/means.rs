//! The means of a machine: programs, permissions and special devices that some findings need.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::lab::{Device, USER_SPACE, is_soft};

/// Means of a machine beside its cores, devices and interfaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Means {
    /// The version of fio; `None` if it is not installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fio: Option<String>,
    /// Whether instructions and cache misses can be counted, those of the kernel included.
    pub counters: bool,
    /// The file systems that findings are about, and whether this process can make them.
    pub file_systems: Vec<FileSystem>,
    /// The workloads of the program `qpair-peers`; empty if it is not installed.
    pub peers: Vec<String>,
    /// The interfaces over which stores can be run: [`STORE_KERNEL`](crate::STORE_KERNEL) for those
    /// of the devices, and the series of the user-space driver, which is a soft drive where the
    /// driver has no other.
    pub stores: Vec<String>,
    /// The reason why no store can be made; `None` if one can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_stores: Option<String>,
    /// The reason why no store can be made over the user-space driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_user_space_stores: Option<String>,
    /// The reason why `qpair-peers` cannot be used although it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_peers: Option<String>,
    /// The index of the device that is a Linux md array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub md: Option<u32>,
    /// The reason why no device can be a Linux md array; `None` if one can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_md: Option<String>,
    /// The index of the device that a qpair target serves to this guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<u32>,
    /// Random reads a second that the data sheets of all devices promise together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_sheet_ios_per_s: Option<f64>,
}

/// A file system that findings are about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileSystem {
    pub name: String,
    /// The reason why this process cannot make and mount one; `None` if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// The file systems of S2's Figure 3.
pub(crate) const FILE_SYSTEMS: [&str; 2] = ["ext4", "btrfs"];

impl Means {
    /// Examines this machine, without the places of stores: [`crate::Lab::place_stores`].
    #[must_use]
    pub fn probe(devices: &[Device]) -> Self {
        let place = |is_it: fn(&str) -> bool| {
            let of = |device: &Device| device.first_disk().is_some_and(is_it);
            devices.iter().position(of).map(|at| at as u32)
        };
        Self {
            fio: said_by("fio", "--version").map(|text| text.trim().to_owned()),
            counters: qpair_workload::counts_cache_misses(),
            file_systems: FILE_SYSTEMS.map(FileSystem::probe).into(),
            peers: said_by("qpair-peers", "--help").map_or_else(Vec::new, |text| workloads(&text)),
            stores: Vec::new(),
            no_stores: None,
            no_user_space_stores: None,
            no_peers: None,
            no_md: (!Path::new("/proc/mdstat").exists())
                .then(|| "the kernel has no md: there is no /proc/mdstat".to_owned()),
            md: place(|disk| disk.starts_with("md")),
            served: place(is_served),
            data_sheet_ios_per_s: None,
        }
    }

    /// Returns the series of stores over the user-space driver: [`USER_SPACE`], or that of a soft
    /// drive.
    pub(crate) fn user_space_store(&self) -> Option<&str> {
        self.stores.iter().map(String::as_str).find(|one| *one == USER_SPACE || is_soft(one))
    }

    /// Whether stores over the user-space driver are on a drive made of software.
    pub(crate) fn user_space_store_is_model(&self) -> bool {
        self.user_space_store().is_some_and(is_soft)
    }
}

impl FileSystem {
    fn probe(name: &str) -> Self {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let maker = format!("mkfs.{name}");
        let unavailable = if !rustix::process::geteuid().is_root() {
            Some(format!("only root can make and mount {name}"))
        } else if said_by(&maker, "-V").is_none() {
            Some(format!("the program {maker} is not installed"))
        } else if !known.lines().any(|line| line.trim() == name) {
            Some(format!("the kernel has no {name}"))
        } else if !Path::new("/dev/loop-control").exists() {
            Some("the kernel has no loop devices".to_owned())
        } else {
            None
        };
        Self { name: name.to_owned(), unavailable }
    }
}

/// Whether the serial number of a disk says that a qpair target serves it.
fn is_served(disk: &str) -> bool {
    let serial = std::fs::read_to_string(format!("/sys/block/{disk}/serial"));
    serial.is_ok_and(|serial| serial.starts_with("qpair"))
}

/// Returns what a program writes to its standard output; `None` if it cannot be run.
fn said_by(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the subcommands that a help text lists under "Commands:".
fn workloads(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_are_found_in_the_help() {
        let help = "Workloads\n\nUsage: p <COMMAND>\n\nCommands:\n  tpcc    TPC-C\n  ycsb    YCSB\n  help    Print\n\nOptions:\n  -h";
        assert_eq!(workloads(help), ["tpcc", "ycsb"]);
        assert!(workloads("nothing").is_empty());
    }

    #[test]
    fn this_machine_is_examined() {
        let means = Means::probe(&[]);
        let names: Vec<&str> = means.file_systems.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, FILE_SYSTEMS);
        let root = rustix::process::geteuid().is_root();
        let ext4 = &means.file_systems[0].unavailable;
        assert_eq!(!root, ext4.as_ref().is_some_and(|why| why.contains("root")), "{ext4:?}");
    }
}
