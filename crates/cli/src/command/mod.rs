//! Subcommands, one per file.

mod advise;
mod backup;
mod bench;
mod carve;
mod check;
mod compact;
mod completions;
mod copy;
mod delete;
mod demo;
mod doctor;
mod drop;
mod floor;
mod get;
mod load;
mod log;
mod man;
mod nvme;
mod put;
mod rename;
mod repair;
mod rpc;
mod scan;
mod scsi;
mod softdrive;
mod stat;
mod study;
mod tables;
mod target;
mod top;

use clap::Subcommand;

use crate::failure::{Exit, Result};

pub(crate) use bench::as_fio_takes_them;

/// A subcommand with its arguments.
#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Load(load::Load),
    Get(get::Get),
    Put(put::Put),
    Delete(delete::Delete),
    Scan(scan::Scan),
    Stat(stat::Stat),
    Top(top::Top),
    Tables(tables::Tables),
    Check(check::Check),
    Compact(compact::Compact),
    Backup(backup::Backup),
    Copy(copy::Copy),
    Repair(repair::Repair),
    Log(log::Log),
    Drop(drop::Drop),
    Rename(rename::Rename),
    Bench(bench::Bench),
    Doctor(doctor::Doctor),
    Nvme(nvme::Nvme),
    Scsi(scsi::Scsi),
    Study(study::Study),
    Floor(floor::Floor),
    Advise(advise::Advise),
    #[command(name = "softdrive")]
    SoftDrive(softdrive::SoftDrive),
    Carve(carve::Carve),
    Target(target::TargetCommand),
    Rpc(rpc::Rpc),
    Man(man::Man),
    Completions(completions::Completions),
}

impl Command {
    /// Runs the command; `whole` describes all of them.
    pub(crate) fn run(self, whole: fn() -> clap::Command) -> Result<Exit> {
        match self {
            Self::Demo(command) => command.run(),
            Self::Load(command) => command.run(),
            Self::Get(command) => command.run(),
            Self::Put(command) => command.run(),
            Self::Delete(command) => command.run(),
            Self::Scan(command) => command.run(),
            Self::Stat(command) => command.run(),
            Self::Top(command) => command.run(),
            Self::Tables(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Compact(command) => command.run(),
            Self::Backup(command) => command.run(),
            Self::Copy(command) => command.run(),
            Self::Repair(command) => command.run(),
            Self::Log(command) => command.run(),
            Self::Drop(command) => command.run(),
            Self::Rename(command) => command.run(),
            Self::Bench(command) => command.run(),
            Self::Doctor(command) => command.run(),
            Self::Nvme(command) => command.run(),
            Self::Scsi(command) => command.run(),
            Self::Study(command) => command.run(),
            Self::Floor(command) => command.run(),
            Self::Advise(command) => command.run(),
            Self::SoftDrive(command) => command.run(),
            Self::Carve(command) => command.run(),
            Self::Target(command) => command.run(),
            Self::Rpc(command) => command.run(),
            Self::Man(command) => command.run(whole()),
            Self::Completions(command) => command.run(whole()),
        }
    }
}
