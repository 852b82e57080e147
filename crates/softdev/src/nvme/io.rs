//! The commands of the NVM command set.

use qpair_nvme_wire::command::{DEALLOCATE, FORCE_UNIT_ACCESS, io};
use qpair_nvme_wire::{Command, NSID_ALL, Range, Status};

use super::namespace::Namespace;
use super::prp::{Direction, Walk};
use super::queue::Tools;
use crate::flash::{Flash, Op};
use qpair_pci::model::DmaSpan;

/// What I/O commands go to.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) namespaces: &'a [Namespace],
    /// Largest transfer, bytes.
    pub(crate) transfer_bytes_max: u32,
    /// Whether each write goes to stable storage at once.
    pub(crate) write_through: bool,
    /// How long things take: to be told of what is deallocated.
    pub(crate) flash: &'a Flash,
}

impl<'a> Target<'a> {
    #[inline(always)]
    pub(crate) fn namespace(&self, nsid: u32) -> Result<&'a Namespace, Status> {
        self.namespaces.get((nsid.wrapping_sub(1)) as usize).ok_or(Status::INVALID_NAMESPACE)
    }

    /// A read is executed soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, command: &Command) {
        if command.opcode() == io::READ
            && let Ok(namespace) = self.namespace(command.nsid())
        {
            namespace.prefetch(command.first_block());
        }
    }

    /// Executes a command.
    #[inline]
    pub(crate) fn execute(&self, command: &Command, tools: &mut Tools) -> Status {
        // PRPs only, and no fused pairs.
        if command.0[0] & 0xC300 != 0 {
            return Status::INVALID_FIELD;
        }
        let done = match command.opcode() {
            io::READ => self.read(command, tools),
            io::WRITE => self.write(command, tools),
            _ => self.execute_other(command, tools),
        };
        done.err().unwrap_or(Status::SUCCESS)
    }

    fn execute_other(&self, command: &Command, tools: &mut Tools) -> Result<(), Status> {
        match command.opcode() {
            io::FLUSH => self.flush(command, tools),
            io::COMPARE => self.compare(command, tools),
            io::WRITE_ZEROES => self.write_zeroes(command, tools),
            io::DATASET_MANAGEMENT => self.deallocate(command, tools),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Where a command with data goes, and its memory, into `tools.extents`.
    #[inline(always)]
    fn transfer(
        &self,
        command: &Command,
        direction: Direction,
        tools: &mut Tools,
    ) -> Result<(&'a Namespace, u64), Status> {
        let namespace = self.namespace(command.nsid())?;
        let range = namespace.range_of(command)?;
        if range.len_bytes > u64::from(self.transfer_bytes_max) {
            return Err(Status::INVALID_FIELD);
        }
        Walk { table: &tools.table, last: &mut tools.last, extents: &mut tools.extents }.prps(
            command.prp1(),
            command.prp2(),
            range.len_bytes as u32,
            direction,
        )?;
        Ok((namespace, range.at_bytes))
    }

    #[inline(always)]
    fn read(&self, command: &Command, tools: &mut Tools) -> Result<(), Status> {
        let (namespace, at) = self.transfer(command, Direction::ToDriver, tools)?;
        let Tools { table, extents, scratch, counts, .. } = tools;
        let into = DmaSpan::new(table, extents);
        counts.reads += 1;
        counts.bytes_read += u64::from(command.blocks()) << namespace.block_shift;
        namespace.read(at, into, scratch).map_err(|_| {
            counts.media_errors += 1;
            Status::UNRECOVERED_READ_ERROR
        })
    }

    #[inline(always)]
    fn write(&self, command: &Command, tools: &mut Tools) -> Result<(), Status> {
        let (namespace, at) = self.transfer(command, Direction::FromDriver, tools)?;
        let Tools { table, extents, scratch, counts, .. } = tools;
        let from = DmaSpan::new(table, extents);
        counts.writes += 1;
        counts.bytes_written += u64::from(command.blocks()) << namespace.block_shift;
        let durable = self.is_durable(command);
        namespace.write(at, from, durable, scratch).map_err(|_| {
            counts.media_errors += 1;
            Status::WRITE_FAULT
        })
    }

    #[inline(always)]
    pub(crate) fn is_durable(&self, command: &Command) -> bool {
        self.write_through || command.cdw(12) & FORCE_UNIT_ACCESS != 0
    }

    fn compare(&self, command: &Command, tools: &mut Tools) -> Result<(), Status> {
        let (namespace, at) = self.transfer(command, Direction::FromDriver, tools)?;
        let with = DmaSpan::new(&tools.table, &tools.extents);
        match namespace.compare(at, with, &mut tools.scratch) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Status::COMPARE_FAILURE),
            Err(_) => Err(Status::UNRECOVERED_READ_ERROR),
        }
    }

    fn write_zeroes(&self, command: &Command, tools: &mut Tools) -> Result<(), Status> {
        let namespace = self.namespace(command.nsid())?;
        let range = namespace.range_of(command)?;
        tools.counts.writes += 1;
        namespace.zero(range, self.is_durable(command)).map_err(|_| Status::WRITE_FAULT)
    }

    fn deallocate(&self, command: &Command, tools: &mut Tools) -> Result<(), Status> {
        let namespace = self.namespace(command.nsid())?;
        let mut list = [0; RANGES_BYTES_MAX];
        let ranges = read_ranges(command, tools, &mut list)?;
        for range in ranges.clone() {
            namespace.range(range.first_block, range.blocks)?;
        }
        if command.cdw(11) & DEALLOCATE == 0 {
            return Ok(());
        }
        for range in ranges {
            let range = namespace.range(range.first_block, range.blocks)?;
            namespace.zero(range, self.write_through).map_err(|_| Status::WRITE_FAULT)?;
            if !self.flash.is_instant() {
                // It takes no time of its own; later writes find more room. Time 0: the latest that the model knows.
                let at = namespace.first_byte + range.at_bytes;
                let _ = self.flash.schedule(0, Op::Discard, at, range.len_bytes, false);
            }
        }
        Ok(())
    }

    fn flush(&self, command: &Command, _tools: &mut Tools) -> Result<(), Status> {
        let flushed = |namespace: &Namespace| namespace.flush().map_err(|_| Status::WRITE_FAULT);
        if command.nsid() == NSID_ALL {
            return self.namespaces.iter().try_for_each(flushed);
        }
        flushed(self.namespace(command.nsid())?)
    }
}

/// Bytes of as many ranges as one command can name.
pub(crate) const RANGES_BYTES_MAX: usize = 256 * Range::BYTES;

/// The ranges that a Dataset Management command names, but empty ones. Read once: the driver may be changing them.
pub(crate) fn read_ranges<'l>(
    command: &Command,
    tools: &mut Tools,
    list: &'l mut [u8; RANGES_BYTES_MAX],
) -> Result<impl Iterator<Item = Range> + Clone + use<'l>, Status> {
    let len = ((command.cdw(10) & 0xFF) as usize + 1) * Range::BYTES;
    Walk { table: &tools.table, last: &mut tools.last, extents: &mut tools.extents }.prps(
        command.prp1(),
        command.prp2(),
        len as u32,
        Direction::FromDriver,
    )?;
    let list = &mut list[..len];
    DmaSpan::new(&tools.table, &tools.extents).copy_to(list);
    let (chunks, _) = list.as_chunks::<{ Range::BYTES }>();
    Ok(chunks.iter().map(Range::decode).filter(|range| range.blocks > 0))
}
