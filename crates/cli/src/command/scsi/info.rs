//! `qpair scsi info`.

use clap::Args;

use super::disk::Disk;
use crate::failure::{Exit, Result};
use crate::show::output::{aligned, print};
use crate::show::text::{count, size};

/// Show the identity and the features of a disk
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  qpair scsi info soft/0
  qpair scsi info 0000:3b:00.0/naa.5000c50012345678")]
pub(crate) struct Info {
    #[command(flatten)]
    which: Disk,
}

impl Info {
    pub(crate) fn run(self) -> Result<Exit> {
        let disk = self.which.open()?;
        let facts = disk.facts();
        let host = disk.host().info();
        let block = u64::from(facts.logical_block_bytes);
        let or_not = |blocks: Option<u32>| match blocks {
            Some(u32::MAX) => "no limit".to_owned(),
            Some(blocks) => format!("at most {}", size(u64::from(blocks) * block)),
            None => "not supported".to_owned(),
        };
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let power = match (facts.write_cache && !facts.read_only, facts.timestamp) {
            (false, _) => "takes no write that was answered",
            (true, true) => "told from a reset by its timestamp",
            (true, false) => "not told from a reset (no timestamp): a flush after a reset may fail",
        };
        let rotation = match facts.rotation {
            0 => "not said".to_owned(),
            1 => "solid state".to_owned(),
            speed => format!("{} revolutions a minute", count(speed.into())),
        };
        let transfer = match facts.transfer_blocks_max {
            Some(blocks) => size(u64::from(blocks) * block),
            None => "no limit".to_owned(),
        };
        let blocks = format!(
            "{} logical, {} physical",
            size(block),
            size(facts.physical_block_bytes.into())
        );
        let rows = [
            ("name", facts.name.to_string()),
            ("model", format!("{} {} {}", facts.vendor, facts.product, facts.revision)),
            ("serial number", facts.serial.clone()),
            ("size", size(facts.blocks * block)),
            ("blocks", blocks),
            ("medium", rotation),
            ("write cache", if facts.write_cache { "volatile, in use" } else { "none" }.to_owned()),
            ("writes through it", yes(facts.force_unit_access)),
            ("loss of power", power.to_owned()),
            ("can be written", yes(!facts.read_only)),
            ("largest transfer", transfer),
            ("unmap", or_not(facts.unmap_blocks_max)),
            ("write same", or_not(facts.write_same_blocks_max)),
            ("controller", format!("{} ({}, {})", host.name, host.driver, host.about)),
        ];
        print(aligned(18, rows))?;
        Ok(Exit::Done)
    }
}
