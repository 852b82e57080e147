//! The interface of low-level drivers, which move commands to devices and back.
//!
//! A driver guarantees four things to the layers above:
//!
//! 1. Each tag that [`HostQueue::queue`] took is reported by [`HostQueue::poll`] exactly once.
//!    Until then the device may access the command's memory; afterwards never.
//! 2. A task that succeeded is reported after the commands that it ended.
//! 3. After [`HostQueue::begin_reset`] all tags in flight are reported, with [`Outcome::Reset`] or
//!    [`Outcome::Gone`], in bounded time.
//! 4. A target keeps its number for as long as the [`Host`] lives, whatever the controller calls it
//!    after a reset or after it was pulled out and plugged in again.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use qpair_block::{Arena, Buffer, Error, ErrorKind, Result};
use qpair_scsi_wire::Cdb;
use qpair_scsi_wire::luns::Lun;

/// The minimum number of bytes of sense data that a driver keeps.
pub const SENSE_BYTES: usize = 96;

/// The hint for finding a drive that has no lamp.
pub const NO_LAMP: &str = "read it for a while, and look for the drive whose light of activity blinks: qpair bench io --name=blink --filename=DEVICE --rw=randread --bs=1m --time_based --runtime=60";

#[derive(Clone, Debug)]
pub struct HostInfo {
    /// The name of the PCI function, for people.
    pub name: String,
    /// The name of the driver in one word, for tables: `mpt3sas`.
    pub driver: String,
    /// The model, firmware and transport, for reports.
    pub about: String,
    /// The maximum number of commands in flight on one queue.
    pub depth_max: u32,
    /// The maximum number of bytes of one command's data.
    pub transfer_bytes_max: u32,
    /// Whether arenas must be made with `ArenaOptions::shared`.
    pub shared_memory: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host's number for the target.
    pub number: u32,
    /// The address on the bus, for people: `sas.5000c50012345678`.
    pub address: String,
    /// The reason why the target cannot be used here, if there is one.
    pub refused: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A target was added, or came back.
    Added(u32),
    Removed(u32),
    Reset,
}

/// The control plane of a host. Usable from any thread; calls may block.
pub trait Host: Send + Sync + fmt::Debug {
    fn info(&self) -> &HostInfo;

    /// Scans the bus and returns the present targets.
    ///
    /// # Errors
    /// `Gone` if the controller is gone; the transport's errors.
    fn scan(&self) -> Result<Vec<Target>>;

    /// Opens a queue to a unit, for one thread.
    ///
    /// # Errors
    /// `Limit` if queues, commands or memory run out; `NotFound` for a target that never existed;
    /// `Unsupported` for sleep without interrupts; `Gone`.
    fn open_queue(&self, unit: Unit, options: &QueueOptions<'_>) -> Result<Box<dyn HostQueue>>;

    /// Resets the controller. On return it works again. Commands that were in flight are reported
    /// by their queues.
    ///
    /// # Errors
    /// `Gone` if the controller does not come back.
    fn reset(&self) -> Result<()>;

    /// Returns the number of resets of the controller since it was opened.
    fn resets(&self) -> u64 {
        0
    }

    /// Returns the events since the last call. While no queue is open, only this call checks for
    /// them.
    fn changes(&self) -> Vec<Change>;

    /// Turns the lamp at a target's slot on or off, so that people find the drive.
    ///
    /// # Errors
    /// `Unsupported` if there is no lamp; `NotFound` for a target that is not there; `Gone`.
    fn locate(&self, _target: u32, _shines: bool) -> Result<()> {
        let context =
            format!("{} cannot light a lamp: its driver does not support that", self.info().name);
        Err(Error::new(ErrorKind::Unsupported, context).hint(NO_LAMP))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    pub target: u32,
    pub lun: Lun,
}

#[derive(Clone, Copy, Debug)]
pub struct QueueOptions<'a> {
    /// The maximum number of commands in flight: tags are below it.
    pub depth: u32,
    pub arenas: &'a [Arc<Arena>],
    /// Whether the user of the queue sleeps for [`HostQueue::interrupt`].
    pub sleeps: bool,
}

#[derive(Debug)]
pub struct Data<'a> {
    /// The direction: true if the device reads the memory, false if it writes it.
    pub is_out: bool,
    /// The memory, which must not move until the tag is reported.
    pub buffer: &'a mut Buffer,
    /// The offset of the first byte in the buffer.
    pub offset: usize,
    /// The number of bytes; not 0.
    pub len: u32,
}

/// The reason why a queue accepts no command now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Try later: the controller is being reset, or has no room.
    Later,
    /// Never: the target or the controller is gone.
    Gone,
}

/// A task management request of the error ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Abort(u16),
    LunReset,
    TargetReset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Good,
    /// The command ended with this SCSI status; with CHECK CONDITION, [`HostQueue::sense`] has the
    /// reason.
    Status(u8),
    /// The command ended with GOOD, but moved only this number of bytes.
    Short(u32),
    /// The controller had no room for the command and did not start it.
    Busy,
    /// A task or the controller ended the command.
    Terminated,
    /// A reset of the controller ended the command.
    Reset,
    Gone,
    /// The transport failed, so the command could not be carried out.
    Failed,
}

/// A report of [`HostQueue::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    Ended(u16, Outcome),
    /// The task that was begun last has ended. The value says whether it succeeded.
    Task(bool),
}

/// One thread's queue to one unit. No call blocks.
pub trait HostQueue {
    /// Whether the device can access an arena's blocks. Commands use only such memory, and lists
    /// that [`HostQueue::reach`] accepts.
    fn reaches(&mut self, arena: &Arena) -> bool;

    /// Returns how many of `len` bytes from `offset` of a buffer one command can move; 0 if the
    /// device cannot access them. A list of segments may be cut behind any segment.
    fn reach(&mut self, buffer: &Buffer, _offset: usize, len: u32) -> u32 {
        if self.reaches(buffer.arena()) { len } else { 0 }
    }

    /// Takes a command. It may stay in the queue until [`HostQueue::kick`].
    ///
    /// # Errors
    /// The reason for a refusal; the command was not taken then.
    fn queue(
        &mut self,
        tag: u16,
        cdb: &Cdb,
        data: Option<Data<'_>>,
    ) -> std::result::Result<(), Refusal>;

    /// Sends all commands that were taken to the device.
    fn kick(&mut self);

    /// Appends the reports that have arrived, without sleeping.
    fn poll(&mut self, reports: &mut Vec<Report>);

    /// Copies the sense data of the command with this tag, which ended with CHECK CONDITION, and
    /// returns its length. The data is available until the tag is used again.
    fn sense(&mut self, tag: u16, into: &mut [u8; SENSE_BYTES]) -> usize;

    /// Begins a task. Only one task can be in progress.
    ///
    /// # Errors
    /// `Later` if there is no room for the task now.
    fn begin_task(&mut self, task: Task) -> std::result::Result<(), Refusal>;

    /// Begins a reset of the controller, unless one is in progress.
    fn begin_reset(&mut self);

    /// Returns a descriptor that becomes readable when the device has interrupted since
    /// [`HostQueue::clear_interrupt`]. A thread may sleep for it after it has polled the queue.
    /// `None`: the device does not interrupt.
    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn clear_interrupt(&mut self) {}

    /// Returns the time at which [`HostQueue::poll`] has work even if the device stays silent;
    /// `None` if there is none.
    fn due(&self) -> Option<std::time::Instant> {
        None
    }
}
