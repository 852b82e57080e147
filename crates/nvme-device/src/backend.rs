//! The interface between a controller and the backend that has its blocks.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use qpair_nvme_wire::command::FORCE_UNIT_ACCESS;
use qpair_nvme_wire::{Command, IdentifyNamespace, LbaFormat, Status};
use qpair_pci::model::DmaTable;

use crate::prp::{Direction, DriverMemory};
use crate::queue::{CompletionQueue, Unreachable};

/// The namespaces of a controller, and the executor of their I/O commands.
///
/// The methods may be called from any thread. Those that are given a queue are called under that
/// queue's lock, and must not call the controller.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    type Queue: fmt::Debug + Default + Send;

    const COMPARES: bool = false;

    /// Returns the namespaces in the order of their numbers. When they change,
    /// [`crate::NvmeController::namespaces_changed`] is called.
    fn namespaces(&self) -> Vec<NamespaceInfo>;

    /// Returns the number of commands that the backend accepts now.
    #[inline]
    fn room(&self) -> u32 {
        u32::MAX
    }

    /// Takes commands that were fetched from a queue. Each ends once: by [`Io::end`] in this call
    /// or in a later [`Self::poll`], or by [`crate::NvmeController::answer`] at any time.
    ///
    /// # Errors
    /// [`Stop`] if the controller must stop.
    fn take(&self, commands: &[Command], io: &mut Io<'_, Self::Queue>) -> Result<(), Stop>;

    /// Ends commands that were taken before and are due. Called in each step of a queue that has
    /// such commands, after [`Self::take`].
    ///
    /// # Errors
    /// [`Stop`] if the controller must stop.
    #[inline]
    fn poll(&self, _io: &mut Io<'_, Self::Queue>) -> Result<Again, Stop> {
        Ok(Again::OnNews)
    }

    /// Lets [`Self::poll`] end a command as aborted. Returns false if the backend has no such
    /// command or cannot abort it.
    fn abort(&self, _queue: &mut Self::Queue, _cid: u16) -> bool {
        false
    }

    /// Forgets all commands of a queue, and returns their identifiers.
    fn withdraw(&self, _queue: &mut Self::Queue) -> Vec<u16> {
        Vec::new()
    }

    /// Makes all written data durable, and returns the status. With `None`,
    /// [`crate::NvmeController::answer`] reports the status later.
    fn flush(&self, ticket: Ticket) -> Option<Status>;

    /// Called when a driver has opened or closed memory. The segments of later commands refer to
    /// this table.
    fn memory_changed(&self, _table: &DmaTable) {}

    /// Called when the function was removed: no step is under way, and there are no queues.
    fn removed(&self) {}
}

/// A namespace, as a driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// The number of the namespace, from 1 on.
    pub nsid: u32,
    pub blocks: u64,
    /// The size of a block in bytes, a power of two.
    pub logical_block_bytes: u32,
    pub read_only: bool,
    /// Whether blocks can be deallocated. If not, a command that deallocates succeeds and does
    /// nothing, as the standard permits (NVM Command Set §3.2.3).
    pub deallocates: bool,
    pub names: Names,
}

/// The unique identifiers of a namespace. An identifier of zeroes is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub eui64: [u8; 8],
    pub nguid: [u8; 16],
    pub uuid: [u8; 16],
}

impl NamespaceInfo {
    /// Returns the first byte and the number of bytes of `blocks` blocks from `first` on.
    ///
    /// # Errors
    /// A status, if some of the blocks are beyond the end of the namespace.
    pub fn range(&self, first: u64, blocks: u32) -> Result<(u64, u64), Status> {
        let blocks = u64::from(blocks);
        if first >= self.blocks || blocks > self.blocks - first {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        let block = u64::from(self.logical_block_bytes);
        Ok((first * block, blocks * block))
    }

    pub(crate) fn identify(&self, shared: bool) -> IdentifyNamespace {
        let data_shift = self.logical_block_bytes.trailing_zeros() as u8;
        IdentifyNamespace {
            size_blocks: self.blocks,
            capacity_blocks: self.blocks,
            used_blocks: self.blocks,
            formats: vec![LbaFormat { metadata_bytes: 0, data_shift }],
            shared,
            write_protected: self.read_only,
            nguid: self.names.nguid,
            eui64: self.names.eui64,
            ..IdentifyNamespace::default()
        }
    }
}

/// The identity of a command until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) queue: u16,
    pub(crate) cid: u16,
}

impl Ticket {
    /// The flush of a controller that shuts down.
    pub(crate) const SHUTDOWN: Self = Self { queue: u16::MAX, cid: 0 };

    pub(crate) fn new(queue: u16, cid: u16) -> Self {
        Self { queue, cid }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The controller sets its fatal status, and does nothing until it is reset.
    Fatal,
    /// The controller is removed, as with [`crate::NvmeController::remove`].
    Removed,
}

/// A queue whose memory is closed cannot be served.
impl From<Unreachable> for Stop {
    fn from(_: Unreachable) -> Self {
        Self::Fatal
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// When the driver has rung, or when a command was answered.
    OnNews,
    /// In each round. Commands are due at the instant, if there is one.
    Always(Option<Instant>),
}

/// Counters of one queue for the health log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub reads: u64,
    /// Writes, including write-zeroes.
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Reads and writes that failed on the medium.
    pub media_errors: u64,
}

impl Counts {
    #[inline(always)]
    pub fn add(&mut self, is_read: bool, len_bytes: u64) {
        if is_read {
            self.reads += 1;
            self.bytes_read += len_bytes;
        } else {
            self.writes += 1;
            self.bytes_written += len_bytes;
        }
    }
}

/// The state of a queue between steps.
#[derive(Debug, Default)]
pub struct QueueState<Q> {
    pub own: Q,
    /// The memory of the command that was looked up last.
    pub memory: DriverMemory,
    pub counts: Counts,
    /// The number of commands that the backend has.
    pub(crate) in_flight: u32,
    /// Commands that have ended and whose completions are not posted yet.
    pub(crate) answered: VecDeque<(u16, Status)>,
}

/// A queue during one step, as a backend sees it.
#[derive(Debug)]
pub struct Io<'a, Q> {
    pub state: &'a mut QueueState<Q>,
    /// Whether each write goes to stable storage at once.
    pub write_through: bool,
    pub(crate) completion: &'a mut CompletionQueue,
    pub(crate) transfer_bytes_max: u32,
    pub(crate) number: u16,
    pub(crate) sq_head: u32,
    /// The number of completions that can be posted.
    pub(crate) room: u32,
    /// The number of commands of the backend that have ended.
    pub(crate) ended: u32,
}

impl<Q> Io<'_, Q> {
    #[must_use]
    pub fn ticket(&self, cid: u16) -> Ticket {
        Ticket::new(self.number, cid)
    }

    /// Whether a completion can be posted at once.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.room > 0
    }

    /// Whether the data of a command must be on stable storage before the command ends.
    #[inline(always)]
    #[must_use]
    pub fn is_durable(&self, command: &Command) -> bool {
        self.write_through || command.cdw(12) & FORCE_UNIT_ACCESS != 0
    }

    /// Finds the memory of a command that moves `len_bytes`.
    ///
    /// # Errors
    /// A status, if the transfer is too large, or an address is wrong.
    #[inline(always)]
    pub fn transfer(
        &mut self,
        command: &Command,
        len_bytes: u64,
        direction: Direction,
    ) -> Result<(), Status> {
        if len_bytes > u64::from(self.transfer_bytes_max) {
            return Err(Status::INVALID_FIELD);
        }
        self.state.memory.prps(command, len_bytes as u32, direction)
    }

    /// Ends a command. Without room for its completion, the controller posts that later.
    ///
    /// # Errors
    /// [`Stop`] if the queue's memory is not open.
    #[inline(always)]
    pub fn end(&mut self, cid: u16, status: Status) -> Result<(), Stop> {
        self.ended += 1;
        if self.room == 0 {
            self.state.answered.push_back((cid, status));
            return Ok(());
        }
        self.room -= 1;
        Ok(self.completion.post(self.number, self.sq_head, cid, status, 0)?)
    }

    /// Drops a command, which is then never completed.
    pub fn lose(&mut self) {
        self.ended += 1;
    }

    /// Posts completions that had no room in earlier steps. Returns whether there were any.
    #[inline]
    pub(crate) fn post_answered(&mut self) -> Result<bool, Unreachable> {
        let before = self.room;
        while self.room > 0
            && let Some((cid, status)) = self.state.answered.pop_front()
        {
            self.room -= 1;
            self.completion.post(self.number, self.sq_head, cid, status, 0)?;
        }
        Ok(self.room < before)
    }
}
