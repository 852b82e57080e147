//! `qpair scsi locate`.

use std::time::{Duration, Instant};

use clap::Args;

use super::disk::Disk;
use crate::failure::{Exit, Result};
use crate::interrupt::Interrupt;
use crate::parse::number::parse_seconds;
use crate::show::output::say;

/// Switch on the locate lamp at a disk's slot
///
/// The controller switches the lamp (MPI: SCSI enclosure processor). For a slot without a lamp, the
/// command names another way to find the disk.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair scsi locate 0000:3b:00.0/naa.5000c50012345678
  qpair scsi locate 0000:3b:00.0/3 --seconds 300")]
pub(crate) struct Locate {
    #[command(flatten)]
    which: Disk,

    /// Seconds that the lamp is on; Ctrl-C switches it off sooner
    #[arg(long, value_name = "S", default_value = "60", value_parser = parse_seconds)]
    seconds: f64,
}

impl Locate {
    pub(crate) fn run(self) -> Result<Exit> {
        let disk = self.which.open()?;
        let target = disk.unit().target;
        let interrupt = Interrupt::install()?;
        disk.host().locate(target, true)?;
        let start = Instant::now();
        let told = say(format!("the lamp of {} shines for {} s", disk.facts().name, self.seconds));
        // The lamp is switched off even if no one reads the output.
        while told.is_ok()
            && start.elapsed().as_secs_f64() < self.seconds
            && !interrupt.is_requested()
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        disk.host().locate(target, false)?;
        told?;
        Ok(if interrupt.is_requested() { Exit::Interrupted } else { Exit::Done })
    }
}
