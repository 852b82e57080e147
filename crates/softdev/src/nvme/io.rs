//! The commands of the NVM command set, on media.

use qpair_nvme_device::{Direction, Io, RANGES_BYTES_MAX};
use qpair_nvme_wire::command::{DEALLOCATE, io};
use qpair_nvme_wire::{Command, NSID_ALL, Status};

use super::drive::{Drive, DriveQueue};
use super::namespace::Namespace;
use crate::flash::Op;
use crate::medium::Extents;

impl Drive {
    #[inline(always)]
    pub(super) fn namespace(&self, nsid: u32) -> Result<&Namespace, Status> {
        self.namespaces.get((nsid.wrapping_sub(1)) as usize).ok_or(Status::INVALID_NAMESPACE)
    }

    /// Prefetches the data of a read that is executed soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, command: &Command) {
        if command.opcode() == io::READ
            && let Ok(namespace) = self.namespace(command.nsid())
        {
            namespace.prefetch(command.first_block());
        }
    }

    #[inline]
    pub(super) fn execute(&self, command: &Command, io: &mut Io<'_, DriveQueue>) -> Status {
        if !command.is_single_with_prps() {
            return Status::INVALID_FIELD;
        }
        let done = match command.opcode() {
            io::READ => self.read(command, io),
            io::WRITE => self.write(command, io),
            _ => self.execute_other(command, io),
        };
        done.err().unwrap_or(Status::SUCCESS)
    }

    fn execute_other(&self, command: &Command, io: &mut Io<'_, DriveQueue>) -> Result<(), Status> {
        match command.opcode() {
            io::FLUSH => self.flush_some(command),
            io::COMPARE => self.compare(command, io),
            io::WRITE_ZEROES => self.write_zeroes(command, io),
            io::DATASET_MANAGEMENT => self.deallocate(command, io),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Returns the namespace and the byte range of a command with data, and looks up the command's
    /// memory into `io.state.memory`.
    #[inline(always)]
    fn transfer(
        &self,
        command: &Command,
        direction: Direction,
        io: &mut Io<'_, DriveQueue>,
    ) -> Result<(&Namespace, Extents), Status> {
        let namespace = self.namespace(command.nsid())?;
        let range = namespace.range_of(command)?;
        io.transfer(command, range.len_bytes, direction)?;
        Ok((namespace, range))
    }

    #[inline(always)]
    fn read(&self, command: &Command, io: &mut Io<'_, DriveQueue>) -> Result<(), Status> {
        let (namespace, range) = self.transfer(command, Direction::ToDriver, io)?;
        io.state.counts.add(true, range.len_bytes);
        namespace.read(range.at_bytes, io.state.memory.span(), &mut io.state.own.scratch).map_err(
            |_| {
                io.state.counts.media_errors += 1;
                Status::UNRECOVERED_READ_ERROR
            },
        )
    }

    #[inline(always)]
    fn write(&self, command: &Command, io: &mut Io<'_, DriveQueue>) -> Result<(), Status> {
        let (namespace, range) = self.transfer(command, Direction::FromDriver, io)?;
        io.state.counts.add(false, range.len_bytes);
        let (durable, scratch) = (io.is_durable(command), &mut io.state.own.scratch);
        namespace.write(range.at_bytes, io.state.memory.span(), durable, scratch).map_err(|_| {
            io.state.counts.media_errors += 1;
            Status::WRITE_FAULT
        })
    }

    fn compare(&self, command: &Command, io: &mut Io<'_, DriveQueue>) -> Result<(), Status> {
        let (namespace, range) = self.transfer(command, Direction::FromDriver, io)?;
        match namespace.compare(range.at_bytes, io.state.memory.span(), &mut io.state.own.scratch) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Status::COMPARE_FAILURE),
            Err(_) => Err(Status::UNRECOVERED_READ_ERROR),
        }
    }

    fn write_zeroes(&self, command: &Command, io: &mut Io<'_, DriveQueue>) -> Result<(), Status> {
        let namespace = self.namespace(command.nsid())?;
        let range = namespace.range_of(command)?;
        io.state.counts.writes += 1;
        namespace.zero(range, io.is_durable(command)).map_err(|_| Status::WRITE_FAULT)
    }

    fn deallocate(&self, command: &Command, io: &mut Io<'_, DriveQueue>) -> Result<(), Status> {
        let namespace = self.namespace(command.nsid())?;
        let mut list = [0; RANGES_BYTES_MAX];
        let ranges = io.state.memory.ranges(command, &mut list)?;
        for range in ranges.clone() {
            namespace.range(range.first_block, range.blocks)?;
        }
        if command.cdw(11) & DEALLOCATE == 0 {
            return Ok(());
        }
        for range in ranges {
            let range = namespace.range(range.first_block, range.blocks)?;
            namespace.zero(range, io.write_through).map_err(|_| Status::WRITE_FAULT)?;
            if !self.flash.is_instant() {
                // The deallocation takes no time itself, but gives later writes more room. Time 0
                // stands for the latest time that the model knows.
                let at = namespace.first_byte + range.at_bytes;
                let _ = self.flash.schedule(0, Op::Discard, at, range.len_bytes, false);
            }
        }
        Ok(())
    }

    fn flush_some(&self, command: &Command) -> Result<(), Status> {
        let flushed = |namespace: &Namespace| namespace.flush().map_err(|_| Status::WRITE_FAULT);
        if command.nsid() == NSID_ALL {
            return self.namespaces.iter().try_for_each(flushed);
        }
        flushed(self.namespace(command.nsid())?)
    }
}
