//! `qpair scsi reset`.

use clap::Args;
use qpair_block::BlockDevice;

use super::disk::Disk;
use crate::failure::{Exit, Result};
use crate::show::output::say;

/// Reset a disk, or its controller
///
/// The command resets the logical unit; if that fails, its target; if that fails, the controller.
/// Data is not touched. A controller that another program uses cannot be reset.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair scsi reset 0000:3b:00.0/0
  qpair scsi reset vfio-user:/run/hba.sock/0 --controller")]
pub(crate) struct Reset {
    #[command(flatten)]
    which: Disk,

    /// Reset the controller, and with it all disks behind it
    #[arg(long)]
    controller: bool,
}

impl Reset {
    pub(crate) fn run(self) -> Result<Exit> {
        let disk = self.which.open()?;
        let what = if self.controller {
            disk.host().reset()?;
            format!("the controller {}", disk.host().info().name)
        } else {
            disk.reset()?;
            format!("scsi:{}", self.which.name())
        };
        // A disk that does not come back after the reset is reported here.
        let again = self.which.open()?;
        say(format!("{what} was reset; {} answers", again.facts().name))?;
        Ok(Exit::Done)
    }
}
