//! A disk behind the HBA, as a store sees it. Its channels advance the virtual clock, and record
//! their requests.

use std::fmt;
use std::sync::Arc;

use qpair_block::{BlockDevice, ChannelOptions, DeviceInfo, IoChannel, Result};
use qpair_scsi::ScsiDisk;
use qpair_sim_block::SimPower;

use super::Bench;
use super::channel::HbaChannel;

pub(super) struct HbaDisk {
    disk: Arc<ScsiDisk>,
    number: u32,
    bench: Arc<Bench>,
    power: SimPower,
}

impl HbaDisk {
    pub(super) fn new(
        disk: Arc<ScsiDisk>,
        number: u32,
        bench: Arc<Bench>,
        power: SimPower,
    ) -> Self {
        Self { disk, number, bench, power }
    }
}

impl fmt::Debug for HbaDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.fmt(f)
    }
}

impl BlockDevice for HbaDisk {
    fn info(&self) -> &DeviceInfo {
        self.disk.info()
    }

    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.disk.grow(size_bytes)
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        let below = self.disk.open_channel(options)?;
        Ok(Box::new(HbaChannel::new(
            below,
            self.number,
            (self.bench.clone(), self.power.clone()),
            options,
        )))
    }
}
