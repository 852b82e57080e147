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
use qpair_nvme_wire::command::{DEALLOCATE, io};
use qpair_nvme_wire::{Command, NSID_ALL, Status};
use qpair_pci::model::DmaTable;

use crate::backend::{Backend, Io, NamespaceInfo, Stop, Ticket};
use crate::device::NvmeController;
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
    fn flush(nsid: u32) -> Self {
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
        let op = match command.opcode() {
            io::READ => Op::Read,
            io::WRITE => Op::Write,
            io::FLUSH => Op::Flush,
            io::WRITE_ZEROES => Op::WriteZeroes,
            io::DATASET_MANAGEMENT => Op::Discard,
            _ => return Err(Status::INVALID_OPCODE),
        };
        let (nsid, ticket) = (command.nsid(), io.ticket(command.cid()));
        if op == Op::Flush && nsid == NSID_ALL {
            return Ok(self.flush_all(ticket));
        }
        let found = self.namespaces.iter().find(|it| it.nsid == nsid).copied();
        let namespace = found.ok_or(Status::INVALID_NAMESPACE)?;
        if namespace.read_only && !matches!(op, Op::Read | Op::Flush) {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        let part = |(offset_bytes, len_bytes)| Part { nsid, op, offset_bytes, len_bytes };
        let force_unit_access = io.is_durable(command);
        let (mut then, mut segments) = (Vec::new(), 0);
        let first = match op {
            Op::Flush => Part::flush(nsid),
            Op::WriteZeroes => {
                // In the block layer, only writes support FUA.
                then.extend(force_unit_access.then(|| Part::flush(nsid)));
                part(namespace.range(command.first_block(), command.blocks())?)
            }
            Op::Discard => {
                let mut list = [0; RANGES_BYTES_MAX];
                let mut parts = Vec::new();
                for range in io.state.memory.ranges(command, &mut list)? {
                    parts.push(part(namespace.range(range.first_block, range.blocks)?));
                }
                let is_done = namespace.deallocates && command.cdw(11) & DEALLOCATE != 0;
                if !is_done || parts.is_empty() {
                    return Ok(None);
                }
                then = parts.split_off(1);
                parts[0]
            }
            Op::Read | Op::Write => {
                let range = namespace.range(command.first_block(), command.blocks())?;
                let is_read = op == Op::Read;
                let direction = if is_read { Direction::ToDriver } else { Direction::FromDriver };
                io.transfer(command, range.1, direction)?;
                io.state.counts.add(is_read, range.1);
                let before = self.segments.len();
                self.segments.extend(io.state.memory.segments());
                segments = self.segments.len() - before;
                part(range)
            }
        };
        Ok(Some(Operation { ticket, first, then, force_unit_access, segments }))
    }

    /// Makes a flush of all namespaces; `None` if there are no namespaces.
    fn flush_all(&self, ticket: Ticket) -> Option<Operation> {
        let mut parts = self.namespaces.iter().map(|it| Part::flush(it.nsid));
        let (first, then) = (parts.next()?, parts.collect());
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
