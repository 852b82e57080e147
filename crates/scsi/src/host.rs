//! The interface of low-level drivers: what moves commands to devices and back.
//!
//! A driver owes the layers above four things:
//!
//! 1. Each tag that [`HostQueue::queue`] took is reported by [`HostQueue::poll`] exactly once. Until then the device may touch the
//!    command's memory; afterwards never.
//! 2. A task that succeeded is reported after the commands that it ended.
//! 3. After [`HostQueue::begin_reset`] all tags under way are reported, with [`Outcome::Reset`] or [`Outcome::Gone`], in bounded time.
//! 4. A target keeps its number for as long as the [`Host`] lives, whatever the controller calls it after a reset or when it was
//!    pulled and plugged in again.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use qpair_block::{Arena, Buffer, Error, ErrorKind, Result};
use qpair_scsi_wire::Cdb;
use qpair_scsi_wire::luns::Lun;

/// Bytes of sense data that a driver keeps, at least.
pub const SENSE_BYTES: usize = 96;

/// How else people find a drive.
pub const NO_LAMP: &str = "read it for a while, and look for the drive whose light of activity blinks: qpair bench io --name=blink --filename=DEVICE --rw=randread --bs=1m --time_based --runtime=60";

/// What a host is and can do.
#[derive(Clone, Debug)]
pub struct HostInfo {
    /// Its name for people: that of its PCI function.
    pub name: String,
    /// Its driver, in one word for tables: `mpt3sas`.
    pub driver: String,
    /// Model, firmware, way to it: for reports.
    pub about: String,
    /// Commands that one queue can have under way, at most.
    pub depth_max: u32,
    /// Bytes of one command's data, at most.
    pub transfer_bytes_max: u32,
    /// Whether arenas must be made with `ArenaOptions::shared`.
    pub shared_memory: bool,
}

/// A target behind a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host's number for it.
    pub number: u32,
    /// Its address on the bus, for people: `sas.5000c50012345678`.
    pub address: String,
    /// Why it cannot be used here; `None`: it can.
    pub refused: Option<String>,
}

/// Something that happened behind a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A target came, or came back.
    Added(u32),
    /// A target has gone.
    Removed(u32),
    /// The controller was reset.
    Reset,
}

/// The control plane of a host. Usable from any thread; calls may block.
pub trait Host: Send + Sync + fmt::Debug {
    /// What it is and can do.
    fn info(&self) -> &HostInfo;

    /// Scans the bus: the targets that are there now.
    ///
    /// # Errors
    /// `Gone` where the controller is; what the transport says.
    fn scan(&self) -> Result<Vec<Target>>;

    /// Opens a queue to a unit, for one thread.
    ///
    /// # Errors
    /// `Limit` where queues, commands or memory run out; `NotFound` for a target that there never was; `Unsupported` for sleep without
    /// interrupts; `Gone`.
    fn open_queue(&self, unit: Unit, options: &QueueOptions<'_>) -> Result<Box<dyn HostQueue>>;

    /// Resets the controller. On return it works again: commands that were under way are reported by their queues.
    ///
    /// # Errors
    /// `Gone` if it does not come back.
    fn reset(&self) -> Result<()>;

    /// Resets of the controller since it was opened.
    fn resets(&self) -> u64 {
        0
    }

    /// What happened since this was asked last; with no queue open nothing else looks.
    fn changes(&self) -> Vec<Change>;

    /// Lets the lamp at a target's slot shine, or not, so that people find the drive.
    ///
    /// # Errors
    /// `Unsupported` where there is no lamp; `NotFound` for a target that is not there; `Gone`.
    fn locate(&self, _target: u32, _shines: bool) -> Result<()> {
        let context = format!("{}: its driver knows of no lamps", self.info().name);
        Err(Error::new(ErrorKind::Unsupported, context).hint(NO_LAMP))
    }
}

/// A logical unit of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    /// The host's number for the target.
    pub target: u32,
    /// The unit.
    pub lun: Lun,
}

/// How to open a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions<'a> {
    /// Commands under way at most: tags are below it.
    pub depth: u32,
    /// Memory that commands will use.
    pub arenas: &'a [Arc<Arena>],
    /// Whether its user sleeps for [`HostQueue::interrupt`].
    pub sleeps: bool,
}

/// The data of a command.
#[derive(Debug)]
pub struct Data<'a> {
    /// The device reads it; else it writes it.
    pub is_out: bool,
    /// The memory, which stays where it is until the tag is reported.
    pub buffer: &'a mut Buffer,
    /// First byte in the buffer.
    pub offset: usize,
    /// Bytes; not 0.
    pub len: u32,
}

/// Why a queue takes no command now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Later: the controller is being reset, or has no room.
    Later,
    /// Never: the target or the controller is gone.
    Gone,
}

/// What the ladder asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// End the command with this tag.
    Abort(u16),
    /// Reset the unit.
    LunReset,
    /// Reset the target.
    TargetReset,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did all that it was to do.
    Good,
    /// It has this SCSI status; with CHECK CONDITION, [`HostQueue::sense`] has the reason.
    Status(u8),
    /// GOOD, but so many bytes alone were moved.
    Short(u32),
    /// The controller had no room for it: it was not begun.
    Busy,
    /// A task or the controller ended it.
    Terminated,
    /// A reset of the controller ended it.
    Reset,
    /// The target or the controller is gone.
    Gone,
    /// It could not be carried out: the transport failed.
    Failed,
}

/// What [`HostQueue::poll`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The command with this tag ended.
    Ended(u16, Outcome),
    /// The task that was begun last is over; whether it succeeded.
    Task(bool),
}

/// One thread's queue to one unit. No call blocks.
pub trait HostQueue {
    /// Whether the device reaches an arena's blocks. Commands name such memory alone, and lists that [`HostQueue::reach`] takes.
    fn reaches(&mut self, arena: &Arena) -> bool;

    /// How many of `len` bytes from `offset` of a buffer one command can move; 0: the device does not reach them. A list of segments may be
    /// cut behind any of them.
    fn reach(&mut self, buffer: &Buffer, _offset: usize, len: u32) -> u32 {
        if self.reaches(buffer.arena()) { len } else { 0 }
    }

    /// Takes a command. It may stay in the queue until [`HostQueue::kick`].
    ///
    /// # Errors
    /// Why not; nothing was taken then.
    fn queue(
        &mut self,
        tag: u16,
        cdb: &Cdb,
        data: Option<Data<'_>>,
    ) -> std::result::Result<(), Refusal>;

    /// Hands all that was taken to the device.
    fn kick(&mut self);

    /// Appends what ended, without sleeping.
    fn poll(&mut self, reports: &mut Vec<Report>);

    /// Copies the sense data of the command with this tag, which ended with CHECK CONDITION; how many bytes there are. It is there until
    /// the tag is used again.
    fn sense(&mut self, tag: u16, into: &mut [u8; SENSE_BYTES]) -> usize;

    /// Begins a task. One at a time.
    ///
    /// # Errors
    /// `Later` where there is no room for it now.
    fn begin_task(&mut self, task: Task) -> std::result::Result<(), Refusal>;

    /// Begins a reset of the controller, unless one is going on.
    fn begin_reset(&mut self);

    /// Polls readable when the device has interrupted since [`HostQueue::clear_interrupt`]: a thread that polls the queue after that may
    /// sleep for it. `None`: it does not interrupt.
    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes the signal of the interrupt, if there is one.
    fn clear_interrupt(&mut self) {}

    /// When [`HostQueue::poll`] finds something even if the device says nothing; `None`: not by itself.
    fn due(&self) -> Option<std::time::Instant> {
        None
    }
}
