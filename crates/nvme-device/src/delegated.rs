//! A backend whose blocks belong to another thread. Commands become operations of the block layer.
//! The thread takes the operations with [`Delegated::next`] and answers them.
//!
//! Invariant: memory is opened and closed, queues are created and deleted, and the controller is
//! reset only while no operation is under way. The thread that takes the operations ensures this:
//! only then does it execute admin commands ([`NvmeController::step_admin`]), handle a client's
//! messages, and change namespaces.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use qpair_memory::locks::Mutex;

use qpair_block::{ErrorKind, IoError, Mapping, Op, Segment};
use qpair_nvme_wire::{Command, Status};
use qpair_pci::model::DmaTable;

use crate::backend::{Backend, Io, NamespaceInfo, Stop, Ticket};
use crate::device::NvmeController;
use crate::plan::{Planned, plan};
use crate::prp::{Direction, RANGES_BYTES_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub nsid: u32,
    pub op: Op,
    /// The offset of the first byte; 0 for a flush.
    pub offset_bytes: u64,
    /// The number of bytes; 0 for a flush.
    pub len_bytes: u64,
}

impl Part {
    pub(crate) fn flush(nsid: u32) -> Self {
        Self { nsid, op: Op::Flush, offset_bytes: 0, len_bytes: 0 }
    }
}

/// A command as requests to block devices.
#[derive(Debug)]
pub struct Operation {
    /// The ticket to answer with ([`NvmeController::answer`]).
    pub ticket: Ticket,
    pub first: Part,
    /// The parts to be executed after the operation. They have no data.
    pub then: Vec<Part>,
    /// Whether written data must be on stable storage before the answer.
    pub force_unit_access: bool,
    segments: usize,
}

#[derive(Debug, Default)]
struct State {
    /// The namespaces, sorted by number.
    namespaces: Vec<NamespaceInfo>,
    operations: VecDeque<Operation>,
    segments: VecDeque<Segment>,
    /// The open mappings, if they have changed since [`Delegated::new_memory`] last returned them.
    memory: Option<Vec<Arc<Mapping>>>,
}

/// A backend that keeps commands as operations, until a thread takes them.
#[derive(Debug)]
pub struct Delegated {
    state: Mutex<State>,
    room: AtomicU32,
}

impl Default for Delegated {
    /// Creates a backend without namespaces and without room for commands.
    fn default() -> Self {
        let state = State { memory: Some(Vec::new()), ..State::default() };
        Self { state: Mutex::new(state), room: AtomicU32::new(0) }
    }
}

impl Delegated {
    /// Sets how many commands are accepted until the next call.
    pub fn set_room(&self, commands: u32) {
        self.room.store(commands, Ordering::Relaxed);
    }

    /// Takes the next operation. The segments of its data replace the content of `segments`, and
    /// name the mappings that [`Self::new_memory`] returned last.
    pub fn next(&self, segments: &mut Vec<Segment>) -> Option<Operation> {
        let mut state = self.state.lock();
        let operation = state.operations.pop_front()?;
        segments.clear();
        segments.extend(state.segments.drain(..operation.segments));
        Some(operation)
    }

    /// Returns the mappings that the driver has opened, if they have changed since the last call.
    /// Memory of this process is not included: commands that use it fail, because their segments
    /// name no mapping.
    pub fn new_memory(&self) -> Option<Vec<Arc<Mapping>>> {
        self.state.lock().memory.take()
    }
}

impl NvmeController<Delegated> {
    /// Replaces the namespaces, and notifies a driver that has enabled the event.
    pub fn set_namespaces(&self, mut namespaces: Vec<NamespaceInfo>) {
        namespaces.sort_by_key(|it| it.nsid);
        self.backend().state.lock().namespaces = namespaces;
        self.namespaces_changed();
    }
}

impl Backend for Delegated {
    type Queue = ();

    fn namespaces(&self) -> Vec<NamespaceInfo> {
        self.state.lock().namespaces.clone()
    }

    #[inline]
    fn room(&self) -> u32 {
        self.room.load(Ordering::Relaxed)
    }

    fn take(&self, commands: &[Command], io: &mut Io<'_, ()>) -> Result<(), Stop> {
        let state = &mut *self.state.lock();
        for command in commands {
            match state.operation(command, io) {
                Ok(Some(operation)) => {
                    state.operations.push_back(operation);
                    self.room.fetch_sub(1, Ordering::Relaxed);
                }
                // The command needs no work.
                Ok(None) => io.end(command.cid(), Status::SUCCESS)?,
                Err(status) => io.end(command.cid(), status)?,
            }
        }
        Ok(())
    }

    fn flush(&self, ticket: Ticket) -> Option<Status> {
        let mut state = self.state.lock();
        let Some(flush) = state.flush_all(ticket) else { return Some(Status::SUCCESS) };
        state.operations.push_back(flush);
        None
    }

    fn memory_changed(&self, table: &DmaTable) {
        self.state.lock().memory = Some(table.mappings().unwrap_or_default());
    }
}

impl State {
    /// Makes an operation from a command; `None` if the command needs no work.
    fn operation(
        &mut self,
        command: &Command,
        io: &mut Io<'_, ()>,
    ) -> Result<Option<Operation>, Status> {
        if !command.is_single_with_prps() {
            return Err(Status::INVALID_FIELD);
        }
        let (ticket, force_unit_access) = (io.ticket(command.cid()), io.is_durable(command));
        let memory = &mut io.state.memory;
        let planned = plan(command, &self.namespaces, force_unit_access, || {
            let mut list = [0; RANGES_BYTES_MAX];
            Ok(memory.ranges(command, &mut list)?.collect())
        })?;
        let Some(Planned { first, then }) = planned else { return Ok(None) };
        let mut segments = 0;
        if let Op::Read | Op::Write = first.op {
            let is_read = first.op == Op::Read;
            let direction = if is_read { Direction::ToDriver } else { Direction::FromDriver };
            io.transfer(command, first.len_bytes, direction)?;
            io.state.counts.add(is_read, first.len_bytes);
            let before = self.segments.len();
            self.segments.extend(io.state.memory.segments());
            segments = self.segments.len() - before;
        }
        Ok(Some(Operation { ticket, first, then, force_unit_access, segments }))
    }

    /// Makes a flush of all namespaces; `None` if there are no namespaces.
    fn flush_all(&self, ticket: Ticket) -> Option<Operation> {
        let Planned { first, then } = Planned::flush_all(&self.namespaces)?;
        Some(Operation { ticket, first, then, force_unit_access: false, segments: 0 })
    }
}

/// Returns the status of an operation whose part with operation `op` ended with this result. If
/// possible, it is the status from which [`Status::errno`] makes the same error.
#[must_use]
pub fn status_of(op: Op, ended: Result<(), IoError>) -> Status {
    let Err(error) = ended else { return Status::SUCCESS };
    match error.kind {
        _ if error.can_be_retried() => Status::NAMESPACE_NOT_READY,
        // Deallocation may have no effect.
        ErrorKind::Unsupported if op == Op::Discard => Status::SUCCESS,
        ErrorKind::Unsupported => Status::INVALID_OPCODE,
        ErrorKind::Invalid => Status::INVALID_FIELD,
        ErrorKind::NoSpace => Status::CAPACITY_EXCEEDED,
        ErrorKind::ReadOnly => Status::NAMESPACE_WRITE_PROTECTED,
        ErrorKind::Gone => Status::INVALID_NAMESPACE,
        _ if op == Op::Read => Status::UNRECOVERED_READ_ERROR,
        _ => Status::WRITE_FAULT,
    }
}
