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
mod export;
mod floor;
mod get;
mod import;
mod load;
mod log;
mod man;
mod nvme;
mod put;
mod rekey;
mod rename;
mod repair;
mod restore;
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

/// Declares the commands, and `run`, which runs one. Those behind the semicolon take the
/// description of all of them.
macro_rules! commands {
    ($($(#[$kind:meta])* $name:ident($args:ty),)+ ; $($of_all:ident($given:ty),)+) => {
        #[derive(Subcommand)]
        pub(crate) enum Command {
            $($(#[$kind])* $name($args),)+
            $($of_all($given),)+
        }

        impl Command {
            pub(crate) fn run(self, all: fn() -> clap::Command) -> Result<Exit> {
                match self {
                    $(Self::$name(command) => command.run(),)+
                    $(Self::$of_all(command) => command.run(all()),)+
                }
            }
        }
    };
}

commands! {
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
    Restore(restore::Restore),
    Copy(copy::Copy),
    Repair(repair::Repair),
    Export(export::Export),
    Import(import::Import),
    Log(log::Log),
    Drop(drop::Drop),
    Rename(rename::Rename),
    Rekey(rekey::Rekey),
    #[command(subcommand)]
    Bench(bench::Bench),
    Doctor(doctor::Doctor),
    #[command(subcommand)]
    Nvme(nvme::Nvme),
    #[command(subcommand)]
    Scsi(scsi::Scsi),
    Study(study::Study),
    Floor(floor::Floor),
    Advise(advise::Advise),
    #[command(name = "softdrive")]
    SoftDrive(softdrive::SoftDrive),
    #[command(subcommand)]
    Carve(carve::Carve),
    Target(target::TargetCommand),
    Rpc(rpc::Rpc),
    ;
    Man(man::Man),
    Completions(completions::Completions),
}
