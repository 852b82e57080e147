//! `qpair carve list|check|create|delete`.

mod check;
mod create;
mod delete;
mod list;

use std::path::Path;
use std::sync::Arc;

use clap::{Args, Subcommand};
use qpair_block::{BlockDevice, Carving, DeviceSpec, Slice};
use qpair_drivers::Drivers;
use qpair_kernel::{FileOptions, Mode};
use serde_json::{Value, json};

use crate::command::bench_peak::parse_mode;
use crate::command::parse_spec;
use crate::failure::{Exit, Failure, Result};

/// Divide a device into named slices; the map of the slices is on the device
///
/// Write carve:name=NAME:DEVICE in place of a device to use a slice. If a target has the device
/// open, let it create the slices: `qpair rpc bdev_scsi_create`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair carve create /dev/nvme0n1 root --size 20GiB --from debian.raw
  qpair carve create /dev/nvme0n1 data --size 400GiB
  qpair carve list /dev/nvme0n1
  qpair target --disk root=carve:name=root:/dev/nvme0n1 --disk data=carve:name=data:/dev/nvme0n1")]
pub(crate) struct Carve {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    List(list::List),
    Check(check::Check),
    Create(create::Create),
    Delete(delete::Delete),
}

impl Carve {
    pub(crate) fn run(self) -> Result<Exit> {
        match self.what {
            What::List(command) => command.run(),
            What::Check(command) => command.run(),
            What::Create(command) => command.run(),
            What::Delete(command) => command.run(),
        }
    }
}

/// The device, and how to reach it.
#[derive(Args, Debug)]
struct Target {
    /// A file, a block device, or any device specifier
    #[arg(value_parser = parse_spec)]
    device: DeviceSpec,

    /// Interface and mode for files and block devices: auto, io_uring, libaio, posix, with switches
    /// after a colon
    #[arg(long = "interface", alias = "io", value_name = "MODE", default_value = "auto", value_parser = parse_mode)]
    io: Mode,

    /// Go through the page cache, for file systems without direct I/O
    #[arg(long)]
    buffered: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[arg(skip = crate::interrupt::drivers())]
    drivers: Drivers,
}

impl Target {
    fn open(&self, read_only: bool) -> Result<Arc<dyn BlockDevice>> {
        let files = |path: &Path| {
            let file = FileOptions { read_only, direct: !self.buffered, ..FileOptions::new(path) };
            Ok(Arc::new(qpair_kernel::open(&file, self.io)?) as Arc<dyn BlockDevice>)
        };
        Ok(self.device.open(&self.drivers.opening(files))?)
    }

    /// Opens the map of the device, which must have one.
    fn carving(&self, read_only: bool) -> Result<Carving> {
        Carving::open(&self.open(read_only)?)?.ok_or_else(|| {
            Failure::new(Exit::Negative, format!("{} has no map of slices", self.device))
                .hint("qpair carve create makes one, with a first slice")
        })
    }
}

fn in_json(slice: &Slice) -> Value {
    let Slice { name, start_bytes, size_bytes, .. } = slice;
    json!({"name": name, "offset_bytes": start_bytes, "size_bytes": size_bytes, "uuid": slice.uuid()})
}
