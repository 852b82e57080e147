//! A drive of one of this program's drivers, with the lowest interface of each.

use std::sync::Arc;

use qpair_block::{
    Arena, BlockDevice, Buffer, ChannelOptions, DeviceSpec, Error, ErrorKind, Op, Result,
};
use qpair_drivers::Drivers;
use qpair_nvme::{NvmeDevice, PrebuiltQueue};
use qpair_scsi::ScsiDisk;
use qpair_scsi::host::{Data, HostQueue, Outcome, QueueOptions, Report};
use qpair_scsi_wire::Cdb;

use crate::load::Load;
use crate::turn::Slots;
use crate::turns::Limits;

/// A drive of this program's own drivers.
#[derive(Clone, Debug)]
pub(crate) enum Own {
    Nvme(Arc<NvmeDevice>),
    Scsi(Arc<ScsiDisk>),
}

impl Own {
    /// Opens a drive by name.
    ///
    /// # Errors
    /// `Invalid` for a device of another driver; the driver's errors.
    pub(crate) fn open(drivers: &Drivers, spec: &DeviceSpec) -> Result<Self> {
        match spec {
            DeviceSpec::Driven { driver: driver @ ("nvme" | "softnvme"), name } => {
                Ok(Self::Nvme(drivers.nvme_device(driver, name)?))
            }
            DeviceSpec::Driven { driver: "scsi", name } => Ok(Self::Scsi(drivers.scsi_disk(name)?)),
            _ => {
                let context = format!("{spec} is not driven by this program's NVMe or SCSI driver");
                Err(Error::new(ErrorKind::Invalid, context).hint(
                    "name softnvme:size=1GiB, or nvme:0000:3b:00.0 or scsi:0000:3b:00.0/0 after `qpair nvme bind 0000:3b:00.0`",
                ))
            }
        }
    }

    pub(crate) fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::Nvme(device) => device.as_ref(),
            Self::Scsi(disk) => disk.as_ref(),
        }
    }

    /// Whether the drive is a model that runs in the thread that polls it.
    pub(crate) fn is_in_this_thread(&self, spec: &DeviceSpec) -> bool {
        match spec {
            DeviceSpec::Driven { driver, name } => {
                *driver == "softnvme" || qpair_drivers::is_volatile(driver, name)
            }
            _ => false,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        let device = self.device();
        let (command_bytes_max, queues) = match self {
            Self::Nvme(device) => {
                (device.command_bytes_max(), device.controller().info().queues.into())
            }
            Self::Scsi(disk) => {
                let facts = disk.facts();
                let blocks = facts.transfer_blocks_max.unwrap_or(u32::MAX);
                let of_disk = blocks.saturating_mul(facts.logical_block_bytes);
                // The number of queues is not known before they are opened ([`Own::unfit`]).
                (disk.host().info().transfer_bytes_max.min(of_disk), u32::MAX)
            }
        };
        Limits {
            block_bytes: device.info().logical_block_bytes,
            command_bytes_max,
            queues,
            depth_max: device.info().depth_max,
            slots_max: u32::MAX,
            size_bytes: device.size_bytes(),
        }
    }

    /// Returns the reason why the driver has no queues for a load. A SCSI host shares its commands
    /// and reply queues between all queues, so all queues of the load are opened once.
    pub(crate) fn unfit(&self, load: &Load) -> Option<String> {
        let Self::Scsi(disk) = self else { return None };
        let options = QueueOptions { depth: load.depth, arenas: &[], sleeps: false };
        let opened: Result<Vec<Box<dyn HostQueue>>> =
            (0..load.jobs).map(|_| disk.host().open_queue(disk.unit(), &options)).collect();
        opened.err().map(|error| error.to_string())
    }

    /// Opens the lowest interface of the driver for one job.
    pub(crate) fn prebuilt(&self, load: &Load) -> Result<Box<dyn Slots>> {
        match self {
            Self::Nvme(device) => {
                let op = if load.workload.write { Op::Write } else { Op::Read };
                let queue = device.open_prebuilt(op, load.workload.block_bytes, load.depth)?;
                Ok(Box::new(Prebuilt(queue)))
            }
            Self::Scsi(disk) => Ok(Box::new(Commands::open(disk, load)?)),
        }
    }
}

/// Makes an arena with a buffer of random bytes for each slot of a load.
pub(crate) fn buffers(device: &dyn BlockDevice, load: &Load) -> Result<(Arc<Arena>, Vec<Buffer>)> {
    let buffer_bytes = (load.workload.block_bytes as usize).next_power_of_two().max(4096);
    let arena = Arena::new(buffer_bytes, load.depth, device.info().arena_options())
        .map_err(|cause| Error::os(cause, "mapping memory to measure with"))?;
    let mut random = fastrand::Rng::with_seed(u64::from(load.depth));
    let mut noise = vec![0; buffer_bytes];
    let lease = || {
        let mut buffer = arena.lease()?;
        random.fill(&mut noise);
        buffer.copy_from(0, &noise);
        Some(buffer)
    };
    let buffers = std::iter::from_fn(lease).collect();
    Ok((arena, buffers))
}

/// Returns options for a channel or queue of a load over one arena.
pub(crate) fn channel_options(load: &Load, arena: &Arc<Arena>) -> ChannelOptions {
    ChannelOptions { depth: load.depth, arenas: vec![arena.clone()], wake: None }
}

struct Prebuilt(PrebuiltQueue);

impl Slots for Prebuilt {
    #[inline]
    fn submit(&mut self, slot: u16, offset_bytes: u64) -> Result<()> {
        match self.0.submit(slot, offset_bytes) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Io, format!("slot {slot} completed twice"))),
        }
    }

    #[inline]
    fn poll(&mut self, done: &mut Vec<u16>) -> Result<()> {
        self.0.poll(done)
    }

    fn doorbells(&self) -> Option<u64> {
        Some(self.0.doorbells())
    }
}

/// The queue of a low-level SCSI driver, without the middle layer and the disk: each slot has one
/// command and one buffer, and each command is posted by itself.
struct Commands {
    queue: Box<dyn HostQueue>,
    buffers: Vec<Buffer>,
    block_bytes: u64,
    blocks: u32,
    is_write: bool,
    reports: Vec<Report>,
    /// The number of times that commands were posted.
    kicks: u64,
}

impl Commands {
    fn open(disk: &ScsiDisk, load: &Load) -> Result<Self> {
        let (arena, buffers) = buffers(disk, load)?;
        let options =
            QueueOptions { depth: load.depth, arenas: std::slice::from_ref(&arena), sleeps: false };
        let block_bytes = disk.facts().logical_block_bytes;
        Ok(Self {
            queue: disk.host().open_queue(disk.unit(), &options)?,
            buffers,
            block_bytes: block_bytes.into(),
            blocks: load.workload.block_bytes / block_bytes,
            is_write: load.workload.write,
            reports: Vec::with_capacity(load.depth as usize),
            kicks: 0,
        })
    }
}

impl Slots for Commands {
    #[inline]
    fn submit(&mut self, slot: u16, offset_bytes: u64) -> Result<()> {
        let cdb = Cdb::transfer(self.is_write, offset_bytes / self.block_bytes, self.blocks, false);
        let none = || Error::new(ErrorKind::Io, format!("slot {slot} has no buffer"));
        let buffer = self.buffers.get_mut(usize::from(slot)).ok_or_else(none)?;
        let len = self.blocks * self.block_bytes as u32;
        let data = Data { is_out: self.is_write, buffer, offset: 0, len };
        self.queue.queue(slot, &cdb, Some(data)).map_err(|why| {
            Error::new(ErrorKind::Io, format!("the host takes no command of slot {slot}: {why:?}"))
        })?;
        self.queue.kick();
        self.kicks += 1;
        Ok(())
    }

    #[inline]
    fn poll(&mut self, done: &mut Vec<u16>) -> Result<()> {
        self.queue.poll(&mut self.reports);
        for report in self.reports.drain(..) {
            match report {
                Report::Ended(slot, Outcome::Good) => done.push(slot),
                Report::Ended(slot, outcome) => {
                    let context = format!("the command of slot {slot} ended with {outcome:?}");
                    return Err(Error::new(ErrorKind::Io, context));
                }
                Report::Task(_) => {}
            }
        }
        Ok(())
    }

    fn doorbells(&self) -> Option<u64> {
        Some(self.kicks)
    }
}
