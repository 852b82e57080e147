//! I/O commands as parts: requests to block devices, without their memory.

use qpair_block::Op;
use qpair_nvme_wire::command::{DEALLOCATE, io};
use qpair_nvme_wire::{Command, NSID_ALL, Range, Status};

use crate::backend::NamespaceInfo;
use crate::delegated::Part;

/// A command as parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub first: Part,
    /// The parts to be executed after the first. They have no data.
    pub then: Vec<Part>,
}

/// Makes parts of a command; `None` if the command needs no work. `ranges` is called for Dataset
/// Management.
///
/// # Errors
/// The status of a command that cannot be executed.
pub fn plan(
    command: &Command,
    namespaces: &[NamespaceInfo],
    is_durable: bool,
    ranges: impl FnOnce() -> Result<Vec<Range>, Status>,
) -> Result<Option<Planned>, Status> {
    let op = match command.opcode() {
        io::READ => Op::Read,
        io::WRITE => Op::Write,
        io::FLUSH => Op::Flush,
        io::WRITE_ZEROES => Op::WriteZeroes,
        io::DATASET_MANAGEMENT => Op::Discard,
        _ => return Err(Status::INVALID_OPCODE),
    };
    let nsid = command.nsid();
    if op == Op::Flush && nsid == NSID_ALL {
        return Ok(Planned::flush_all(namespaces));
    }
    let found = namespaces.iter().find(|it| it.nsid == nsid);
    let namespace = found.ok_or(Status::INVALID_NAMESPACE)?;
    if namespace.read_only && !matches!(op, Op::Read | Op::Flush) {
        return Err(Status::NAMESPACE_WRITE_PROTECTED);
    }
    let part = |(offset_bytes, len_bytes)| Part { nsid, op, offset_bytes, len_bytes };
    let mut then = Vec::new();
    let first = match op {
        Op::Flush => Part::flush(nsid),
        Op::Read | Op::Write => part(namespace.range(command.first_block(), command.blocks())?),
        Op::WriteZeroes => {
            // In the block layer, only writes support FUA.
            then.extend(is_durable.then(|| Part::flush(nsid)));
            part(namespace.range(command.first_block(), command.blocks())?)
        }
        Op::Discard => {
            let mut parts = Vec::new();
            for range in ranges()? {
                parts.push(part(namespace.range(range.first_block, range.blocks)?));
            }
            let is_done = namespace.deallocates && command.cdw(11) & DEALLOCATE != 0;
            if !is_done || parts.is_empty() {
                return Ok(None);
            }
            then = parts.split_off(1);
            parts[0]
        }
    };
    Ok(Some(Planned { first, then }))
}

impl Planned {
    /// Makes a flush of all namespaces; `None` if there are no namespaces.
    #[must_use]
    pub fn flush_all(namespaces: &[NamespaceInfo]) -> Option<Self> {
        let mut parts = namespaces.iter().map(|it| Part::flush(it.nsid));
        let (first, then) = (parts.next()?, parts.collect());
        Some(Self { first, then })
    }
}
