//! Between fetching a command and completing it: what becomes of it, and when.
//!
//! Where nothing takes time and nothing goes wrong, none of this runs and no clock is read.

use qpair_block::Op;
use qpair_nvme_wire::command::io;
use qpair_nvme_wire::registers::CSTS_FATAL;
use qpair_nvme_wire::{Command, Status};

use super::device::SoftNvme;
use super::queue::{CompletionQueue, Side, Tools, Unreachable};
use super::step::Ran;
use super::waiting::{Fate, NEVER};
use crate::faults::{Faults, Outcome};
use qpair_pci::model::DmaSpan;

/// What the drive as a whole comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Removed,
    PowerCut,
}

/// What a command comes to.
enum Verdict {
    Due(u64, Fate),
    Fatal,
    End(End),
}

impl SoftNvme {
    /// As the plain run of a queue: fetches, and completes what is due.
    pub(crate) fn run_timed(
        &self,
        number: u16,
        pending: u32,
        side: &mut Side,
        completion: &mut CompletionQueue,
    ) -> Result<Ran, Unreachable> {
        let Side { submission: Some(queue), shadow, waiting, tools, .. } = side else {
            return Ok(Ran::default());
        };
        let mut ran = Ran::default();
        if pending == 0 && waiting.is_empty() {
            return Ok(ran);
        }
        let cq = queue.cq;
        let (now_ns, faults) = (self.now_ns(), self.faults());
        // What waits could never be completed if it were more than the queue holds.
        let taken = pending.min(completion.ring.entries().saturating_sub(waiting.len()));
        for _ in 0..taken {
            let command = queue.fetch()?;
            ran.progress = true;
            match self.verdict(&command, &faults, now_ns) {
                Verdict::Due(at_ns, fate) => waiting.push(at_ns, command, fate),
                Verdict::Fatal => {
                    self.set_status(CSTS_FATAL, CSTS_FATAL);
                    return Ok(ran);
                }
                Verdict::End(end) => {
                    ran.end = Some(end);
                    return Ok(ran);
                }
            }
        }
        let target = self.target();
        let mut room =
            completion.room(waiting.len(), || self.doorbell_of(shadow.as_ref(), cq, true)).0;
        while room > 0
            && let Some(due) = waiting.pop(now_ns)
        {
            ran.progress = true;
            let status = match due.fate {
                Fate::Complete(status) => status,
                Fate::Execute | Fate::ExecuteSilently => target.execute(&due.command, tools),
                Fate::Corrupt(chance) => {
                    let status = target.execute(&due.command, tools);
                    if status.is_success() {
                        flip(chance, tools);
                    }
                    status
                }
            };
            if due.fate != Fate::ExecuteSilently {
                completion.post(number, queue.head, due.command.cid(), status, 0)?;
                room -= 1;
            }
        }
        ran.due_ns = waiting.next_ns();
        ran.again = taken < pending || !waiting.is_empty();
        Ok(ran)
    }

    fn verdict(&self, command: &Command, faults: &Faults, now_ns: u64) -> Verdict {
        let target = self.target();
        let at_once = Verdict::Due(now_ns, Fate::Execute);
        let op = match command.opcode() {
            io::READ | io::COMPARE => Op::Read,
            io::WRITE => Op::Write,
            io::WRITE_ZEROES => Op::WriteZeroes,
            io::DATASET_MANAGEMENT => Op::Discard,
            io::FLUSH => Op::Flush,
            // It fails, and that at once.
            _ => return at_once,
        };
        let (mut first, mut blocks, mut at, mut len) = (0, 0, 0, 0);
        if !matches!(op, Op::Flush | Op::Discard) {
            let Ok(namespace) = target.namespace(command.nsid()) else { return at_once };
            let Ok(range) = namespace.range_of(command) else { return at_once };
            (first, blocks) = (command.first_block(), command.blocks().into());
            (at, len) = (namespace.first_byte + range.at_bytes, range.len_bytes);
        }
        let (fate, delay_ns) = match faults.next(op, first, blocks) {
            Outcome::Proceed => (Fate::Execute, 0),
            Outcome::Fail(status) => (Fate::Complete(status), 0),
            Outcome::Never => {
                return Verdict::Due(NEVER, Fate::Complete(Status::ABORT_REQUESTED));
            }
            Outcome::Drop => (Fate::ExecuteSilently, 0),
            Outcome::Delay(delay_ns) => (Fate::Execute, delay_ns),
            Outcome::Corrupt(chance) => (Fate::Corrupt(chance), 0),
            Outcome::Fatal => return Verdict::Fatal,
            Outcome::Remove => return Verdict::End(End::Removed),
            Outcome::PowerCut => return Verdict::End(End::PowerCut),
        };
        let durable = target.is_durable(command);
        let done_ns = self.flash().schedule(now_ns, op, at, len, durable);
        Verdict::Due(done_ns.saturating_add(delay_ns), fate)
    }
}

/// Flips one bit of what the last command read.
fn flip(chance: u64, tools: &Tools) {
    let span = DmaSpan::new(&tools.table, &tools.extents);
    let bits = span.len_bytes() as u64 * 8;
    let Some(bit) = chance.checked_rem(bits) else { return };
    let mut byte = (bit / 8) as usize;
    for (bytes, offset, len) in span.pieces() {
        if byte < len {
            bytes.store_u8(offset + byte, bytes.load_u8(offset + byte) ^ 1 << (bit % 8));
            return;
        }
        byte -= len;
    }
}
