//! The protocol of a channel: a command for each request, and its PDUs.
//!
//! Invariants:
//! - a command's identifier is the number of its request's slot, and of the commands so far;
//! - data goes to a buffer only inside the range of a read that is in flight.
//!
//! A job that cannot be done because of the way to the namespace (ANA) stays, and is sent again
//! after a pause.

mod input;

use std::sync::Arc;

use qpair_block::{Op, Request, Result};
use qpair_nvme_wire::command::{DEALLOCATE, FORCE_UNIT_ACCESS, io};
use qpair_nvme_wire::fabrics::{Sgl, sgl};
use qpair_nvme_wire::{Command, Range};
use qpair_socket::client::{Event, Job, Jobs, Parsed, Protocol, StreamChannel, Wire};

use super::association::{Association, with_data, without_data};
use crate::wire::{DataPdu, Digests, End, R2t, Receiver, crc32c, put};
use input::Following;

/// The bits of a command identifier that number a slot. The others count its commands, so that a
/// second answer to an earlier one is noticed.
const SLOT_BITS: u32 = 8;
const _: () = assert!(super::device::DEPTH_MAX <= 1 << SLOT_BITS);
/// The most blocks of a command that writes zeroes.
const ZEROES_BLOCKS_MAX: u32 = 1 << 16;

pub(super) type NvmeTcpChannel = StreamChannel<NvmeTcp>;

pub(super) struct NvmeTcp {
    association: Arc<Association>,
    /// The number and the entries of the queue.
    number: u16,
    entries: u32,
    digests: Digests,
    polls: bool,
    receiver: Receiver,
    /// The most data of a PDU to the target, bytes.
    data_bytes_max: u32,
    /// The number of commands so far, of which the last bits are part of identifiers.
    commands: u32,
    following: Option<Following>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The identifier of the request's command.
    cid: u16,
    /// The bytes of a read that have come.
    filled: u32,
    /// The bytes of a write that the target has asked for.
    asked: u32,
    /// The bytes of zeroes that are written: a command has a limited number of blocks.
    done: u32,
}

impl Drop for NvmeTcp {
    fn drop(&mut self) {
        self.association.give_number(self.number);
    }
}

impl NvmeTcp {
    /// Connects a queue, whose number it gives back when it is dropped.
    ///
    /// # Errors
    /// As [`Association::connect_queue`].
    pub(super) fn connect(
        association: Arc<Association>,
        (number, entries): (u16, u32),
        digests: Digests,
        polls: bool,
    ) -> Result<(Self, Wire)> {
        let mut it = Self {
            association,
            number,
            entries,
            digests,
            polls,
            receiver: receiver(digests),
            data_bytes_max: 0,
            commands: 0,
            following: None,
        };
        let (wire, data_bytes_max) = it.association.connect_queue(number, entries)?;
        it.data_bytes_max = data_bytes_max;
        Ok((it, wire))
    }

    /// Appends data of a write, with its digest.
    fn put_data(&self, job: &Job<State>, offset: u32, len: u32, output: &mut Vec<u8>) {
        let at = output.len();
        job.put_data(offset, len, output);
        self.put_digest(output, at);
    }

    /// Appends the digest of the data that begins at `at`.
    fn put_digest(&self, output: &mut Vec<u8>, at: usize) {
        if self.digests.data {
            let digest = crc32c(&output[at..]);
            output.extend(digest.to_le_bytes());
        }
    }

    /// Appends the data that the target has asked for.
    fn put_asked(&self, jobs: &mut Jobs<State>, slot: usize, r2t: &R2t) {
        let Some(job) = &jobs.slots[slot] else { return };
        if job.request.buffer.is_none() {
            return;
        }
        let (mut offset, end) = (r2t.offset, r2t.offset + r2t.len);
        while offset < end {
            let len = (end - offset).min(self.data_bytes_max);
            let is_last = offset + len == end;
            let (cid, tag) = (r2t.cid, r2t.tag);
            let pdu = DataPdu { cid, tag, offset, len, is_last, is_success: false };
            put::h2c_data(&mut jobs.output, self.digests, &pdu);
            self.put_data(job, offset, len, &mut jobs.output);
            offset += len;
        }
    }
}

impl Protocol for NvmeTcp {
    type State = State;
    /// The most data of a PDU to the target, bytes.
    type Terms = u32;

    const NAME: &'static str = "NVMe/TCP";
    const PEER: &'static str = "target";
    const IS_STRICT: bool = false;

    fn report(device: &str, event: Event<'_>) {
        match event {
            Event::Lost(error) => {
                tracing::warn!(name: "lost", device, error, "a connection of NVMe/TCP was lost");
            }
            Event::LostWrites => tracing::warn!(
                name: "lost_writes",
                device,
                "the NVMe/TCP target may have lost writes, so flushes fail until the device is opened again"
            ),
            Event::Gone(error) => {
                tracing::warn!(name: "gone", device, error, "an NVMe/TCP target was given up");
            }
            Event::Back => {
                tracing::info!(name: "back", device, "a connection of NVMe/TCP was made again");
            }
        }
    }

    fn size_bytes(&self) -> u64 {
        self.association.size_bytes()
    }

    fn polls(&self) -> bool {
        self.polls
    }

    fn connector(&self) -> impl FnMut() -> Result<(Wire, u32)> + Send + 'static {
        let (association, number, entries) = (self.association.clone(), self.number, self.entries);
        move || association.connect_queue(number, entries)
    }

    fn renew(&mut self, data_bytes_max: u32) -> Parsed {
        self.data_bytes_max = data_bytes_max;
        Ok(())
    }

    fn forget(&mut self) {
        self.following = None;
        self.receiver = receiver(self.digests);
    }

    fn begin(&mut self, jobs: &mut Jobs<State>, slot: usize) {
        let Some(job) = &mut jobs.slots[slot] else { return };
        self.commands = self.commands.wrapping_add(1);
        let cid = slot as u16 | (self.commands << SLOT_BITS) as u16;
        job.state = State { cid, done: job.state.done, ..State::default() };
        let Request { op, force_unit_access, offset_bytes, len_bytes, .. } = job.request;
        let facts = &self.association.facts;
        let (nsid, block) = (facts.nsid, u64::from(facts.block_bytes));
        let first = (offset_bytes + u64::from(job.state.done)) / block;
        let blocks = (u64::from(len_bytes - job.state.done) / block) as u32;
        let mut ranges = [0; Range::BYTES];
        let mut in_capsule = 0;
        let capsule = |len_bytes| Sgl { address: 0, len_bytes, kind: sgl::IN_CAPSULE };
        let mut command = match op {
            Op::Flush => without_data(Command::new(io::FLUSH, nsid)),
            Op::Read => with_data(Command::blocks_of(io::READ, nsid, first, blocks), len_bytes),
            Op::Write => {
                let mut command = Command::blocks_of(io::WRITE, nsid, first, blocks);
                command.0[12] |= if force_unit_access { FORCE_UNIT_ACCESS } else { 0 };
                if len_bytes <= facts.capsule_bytes {
                    in_capsule = len_bytes;
                    command.set_sgl(capsule(len_bytes));
                    command
                } else {
                    with_data(command, len_bytes)
                }
            }
            Op::WriteZeroes => {
                let blocks = blocks.min(ZEROES_BLOCKS_MAX);
                without_data(Command::blocks_of(io::WRITE_ZEROES, nsid, first, blocks))
            }
            Op::Discard => {
                ranges = Range { attributes: 0, blocks, first_block: first }.encode();
                in_capsule = Range::BYTES as u32;
                let mut command = Command::new(io::DATASET_MANAGEMENT, nsid);
                command.0[11] = DEALLOCATE;
                command.set_sgl(capsule(in_capsule));
                command
            }
        };
        command.set_cid(cid);
        let output = &mut jobs.output;
        put::command(output, self.digests, &command, in_capsule);
        if op == Op::Write {
            // The target may ask for the rest.
            job.state.asked = in_capsule;
            if in_capsule > 0 {
                self.put_data(job, 0, in_capsule, output);
            }
        } else if in_capsule > 0 {
            let at = output.len();
            output.extend(ranges);
            self.put_digest(output, at);
        }
    }

    fn parse(&mut self, jobs: &mut Jobs<State>, bytes: &[u8]) -> Parsed<usize> {
        self.take_pdus(jobs, bytes)
    }
}

/// Makes the reception of a connection whose parameters are agreed on.
fn receiver(digests: Digests) -> Receiver {
    let mut receiver = Receiver::new(End::Host, u32::MAX);
    receiver.initialize(digests);
    receiver
}
