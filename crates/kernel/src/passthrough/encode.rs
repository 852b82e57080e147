//! Turns requests into entries of a ring that takes NVMe commands.

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use qpair_block::{ChannelOptions, DeviceInfo, Error, ErrorKind, IoError, Op, Request, Result};

use super::command::{Command, Range, errno_of};
use super::namespace::Namespace;
use crate::in_flight::Transfer;
use crate::io_uring::buffers::{Buffers, PIECE_SHIFT_MAX};
use crate::io_uring::dialect::Dialect;
use crate::io_uring::poll_queues::Reach;
use crate::io_uring::ring::Ring;
use crate::mode::{Mode, Polling};
use crate::request::verify;

/// `_IOWR('N', 0x80, struct nvme_uring_cmd)`, linux/nvme_ioctl.h.
const NVME_URING_CMD_IO: u32 = 3 << 30 | 72 << 16 | 0x4E << 8 | 0x80;

pub(crate) struct Encoder {
    fd: Fd,
    flags: squeue::Flags,
    buffers: Buffers,
    /// The range of each slot's discard, which the drive reads while the slot is occupied.
    ranges: Box<[Range]>,
    nsid: u32,
    block_shift: u32,
    /// The maximum number of bytes of one command.
    piece_bytes_max: u32,
    words: String,
}

impl Dialect for Encoder {
    type Target = Namespace;
    /// Each entry has room for a command, and each completion for its whole result: the driver
    /// accepts no other rings.
    type Submission = squeue::Entry128;
    type Completion = cqueue::Entry32;
    const UNPROVEN: bool = true;
    const TAKES_VECTORS: bool = false;

    fn new(
        ring: &Ring<squeue::Entry128, cqueue::Entry32>,
        namespace: &Namespace,
        mode: &Mode,
        options: &ChannelOptions,
    ) -> Result<Self> {
        let buffers = match mode.registered_buffers {
            true => Buffers::register(ring, &options.arenas, namespace.piece_shift)?,
            false => Buffers::default(),
        };
        let (fd, flags) = match mode.registered_file {
            true => {
                ring.register_file(namespace.raw_fd()).map_err(|cause| {
                    Error::os(cause, "registering a device with io_uring")
                        .hint("raise ulimit -n, or write file=off")
                })?;
                (Fd(0), squeue::Flags::FIXED_FILE)
            }
            false => (Fd(namespace.raw_fd()), squeue::Flags::empty()),
        };
        let file = if mode.registered_file { "registered file" } else { "file by number" };
        let buffers_words = match (mode.registered_buffers, namespace.piece_shift) {
            (false, _) => "buffers pinned by transfer".to_owned(),
            (true, PIECE_SHIFT_MAX) => "registered buffers".to_owned(),
            (true, shift) => format!("registered buffers of {} KiB", 1 << (shift - 10)),
        };
        Ok(Self {
            fd,
            flags,
            buffers,
            ranges: vec![Range::default(); options.depth as usize].into(),
            nsid: namespace.nsid,
            block_shift: namespace.block_shift,
            piece_bytes_max: namespace.limits.transfer_bytes_max,
            words: format!("{file}, {buffers_words}"),
        })
    }

    fn words(&self) -> &str {
        &self.words
    }

    fn limits(namespace: &Namespace) -> &DeviceInfo {
        &namespace.limits
    }

    fn size_bytes(namespace: &Namespace) -> u64 {
        namespace.size_bytes
    }

    #[inline]
    fn answer(
        namespace: &Namespace,
        request: &Request,
    ) -> Option<std::result::Result<(), IoError>> {
        if let Err(error) = verify(request, &namespace.limits, namespace.size_bytes) {
            return Some(Err(error));
        }
        match request.op {
            // Without a volatile cache, completed writes are durable already.
            Op::Flush if !namespace.limits.volatile_write_cache => Some(Ok(())),
            Op::Discard if !namespace.has_discard => Some(Err(IoError::UNSUPPORTED)),
            Op::WriteZeroes if !namespace.has_write_zeroes => Some(Err(IoError::UNSUPPORTED)),
            _ => None,
        }
    }

    #[inline]
    fn prepare(&mut self, ring: &Ring<squeue::Entry128, cqueue::Entry32>, transfer: &Transfer) {
        self.buffers.prepare(ring, transfer.arena_id, transfer.address);
    }

    #[inline]
    fn encode(&mut self, transfer: Transfer, slot: u64) -> squeue::Entry128 {
        let first_block = transfer.offset_bytes >> self.block_shift;
        let (address, len_bytes, blocks) = match transfer.op {
            // The length of a read or write is within the limit. Write-zeroes may need many
            // commands.
            Op::Read | Op::Write => {
                let blocks = transfer.len_bytes >> self.block_shift;
                (transfer.address as u64, transfer.len_bytes, blocks)
            }
            Op::WriteZeroes => {
                (0, 0, transfer.len_bytes.min(self.piece_bytes_max) >> self.block_shift)
            }
            Op::Discard => {
                let blocks = transfer.len_bytes >> self.block_shift;
                let range = &mut self.ranges[slot as usize];
                *range = Range::new(first_block, blocks);
                ((&raw const *range) as u64, size_of::<Range>() as u32, blocks)
            }
            Op::Flush => (0, 0, 0),
        };
        let index = match transfer.op {
            Op::Read | Op::Write => self.buffers.index(transfer.arena_id, transfer.address),
            Op::Flush | Op::Discard | Op::WriteZeroes => None,
        };
        let command = Command {
            op: transfer.op,
            force_unit_access: transfer.force_unit_access,
            nsid: self.nsid,
            first_block,
            blocks,
            address,
            len_bytes,
        };
        opcode::UringCmd80::new(self.fd, NVME_URING_CMD_IO)
            .cmd(command.encode())
            .buf_index(index)
            .build()
            .flags(self.flags)
            .user_data(slot)
    }

    /// The kernel returns 0, a negative errno of its own, or the status of a failed command.
    #[inline]
    fn result(&self, result: i32) -> i64 {
        match result {
            // A command moves all bytes or none.
            0 => self.piece_bytes_max.into(),
            // A reset of the controller cancelled the command. Sent again at once, it might cause
            // the next reset.
            cancelled if cancelled == -libc::EINTR => -i64::from(libc::EIO),
            ..0 => result.into(),
            status => -i64::from(errno_of(status)),
        }
    }

    fn reach(namespace: &Namespace) -> Result<Reach> {
        // This module itself cuts transfers that are longer than a command.
        namespace.check_polling().map(|()| Reach::ALL)
    }

    fn refused(namespace: &Namespace, mode: &Mode, cause: IoError) -> Error {
        let name = &namespace.limits.name;
        let os = std::io::Error::from_raw_os_error(cause.errno);
        let what = format!("reading {name} for the first time by an NVMe command");
        let error = Error::new(cause.kind, what).caused_by(os);
        match cause.kind {
            ErrorKind::Denied => error.hint(
                "NVMe commands take root, or CAP_SYS_ADMIN, or (Linux 6.2 and later) permission on /dev/ngXnY",
            ),
            ErrorKind::Unsupported if mode.polling != Polling::Interrupt => error.hint(
                "Linux 6.1 and later can poll for NVMe commands; leave +p out, or use the block device",
            ),
            ErrorKind::Unsupported | ErrorKind::Invalid => error.hint(
                "Linux 5.19 and later take NVMe commands from io_uring, 6.1 and later with registered buffers (buffers=off does without); or use the block device",
            ),
            _ => error,
        }
    }

    /// Leaks the ranges: the drive may still read them.
    fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.ranges));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_flight::{InFlight, Step};

    fn encoder(namespace: &Namespace) -> Encoder {
        Encoder {
            fd: Fd(0),
            flags: squeue::Flags::FIXED_FILE,
            buffers: Buffers::default(),
            ranges: vec![Range::default(); 4].into(),
            nsid: namespace.nsid,
            block_shift: namespace.block_shift,
            piece_bytes_max: namespace.limits.transfer_bytes_max,
            words: String::new(),
        }
    }

    #[test]
    fn a_flush_without_a_cache_is_done() {
        let flush = Request::flush(1);
        assert_eq!(Encoder::answer(&Namespace::imagined(false, true), &flush), Some(Ok(())));
        assert_eq!(Encoder::answer(&Namespace::imagined(true, true), &flush), None);
    }

    #[test]
    fn what_the_drive_does_not_know_is_not_sent() {
        let poor = Namespace::imagined(true, false);
        for request in [Request::discard(0, 512, 1), Request::write_zeroes(0, 512, 1)] {
            assert_eq!(Encoder::answer(&poor, &request), Some(Err(IoError::UNSUPPORTED)));
            assert_eq!(Encoder::answer(&Namespace::imagined(true, true), &request), None);
        }
        let outside = Request::write_zeroes(1 << 20, 512, 1);
        assert_eq!(Encoder::answer(&poor, &outside), Some(Err(IoError::INVALID)));
    }

    /// Write-zeroes is split into pieces that fit one command.
    #[test]
    fn zeroes_in_pieces() {
        let mut encoder = encoder(&Namespace::imagined(true, true));
        let mut in_flight = InFlight::new(1);
        let (slot, mut rest) = in_flight.insert(Request::write_zeroes(4096, 20480, 7)).unwrap();
        let mut pieces = Vec::new();
        loop {
            encoder.encode(rest, slot.into());
            pieces.push((rest.offset_bytes, rest.len_bytes.min(8192)));
            match in_flight.finish(slot, encoder.result(0)) {
                Step::Again(next) => rest = next,
                Step::Done(done) => break assert_eq!((done.tag, done.result), (7, Ok(()))),
                Step::Stray => panic!("lost"),
            }
        }
        assert_eq!(pieces, [(4096, 8192), (12288, 8192), (20480, 4096)]);
    }

    #[test]
    fn statuses_become_errors() {
        let encoder = encoder(&Namespace::imagined(true, true));
        assert_eq!(encoder.result(0), 8192);
        assert_eq!(encoder.result(-libc::EINTR), -i64::from(libc::EIO));
        assert_eq!(encoder.result(-libc::EAGAIN), -i64::from(libc::EAGAIN));
        // Unrecovered read error, do not retry.
        assert_eq!(encoder.result(0x4281), -i64::from(libc::EIO));
    }
}
