//! A unit: its state, and the dispatch of its commands.

use qpair_block::locks::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair_scsi_wire::luns::Lun;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::timestamp::{self, TIMESTAMP_BYTES};
use qpair_scsi_wire::{Command, Undecodable};

use crate::blocks::Work;
use crate::clock::Clock;
use crate::facts::Facts;

/// The maximum number of unit attentions that wait to be reported. Older ones are dropped first.
const ATTENTIONS_MAX: usize = 8;

/// A logical unit without its medium.
#[derive(Debug)]
pub struct LogicalUnit {
    facts: Facts,
    /// The unit attentions that must be reported to the initiator before anything else.
    attentions: Mutex<VecDeque<Code>>,
    has_attention: AtomicBool,
    /// Whether the write cache is in use.
    write_cache: AtomicBool,
    is_stopped: AtomicBool,
    clock: Mutex<Clock>,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The command succeeded, and took this many bytes of parameters.
    Good(u32),
    /// The command succeeded, and these bytes go to the initiator. They fit the room that it has.
    Data(Vec<u8>),
    /// The command failed.
    Check(Sense),
}

impl Reply {
    /// Returns an answer with the bytes, cut to the `allocation` that the initiator has room for.
    pub(crate) fn data(bytes: &[u8], allocation: usize) -> Self {
        Self::Data(bytes[..bytes.len().min(allocation)].to_vec())
    }

    pub(crate) fn illegal(code: Code) -> Self {
        Self::Check(Sense::new(Key::IllegalRequest, code))
    }
}

/// The next step of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The command has ended.
    Ended(Reply),
    /// The command needs the unit's storage: the caller has to carry out the work.
    Work(Work),
}

impl LogicalUnit {
    /// Makes a unit in the state after power on.
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        let unit = Self {
            write_cache: AtomicBool::new(facts.has_cache),
            clock: Mutex::new(Clock::begin((facts.now)())),
            facts,
            attentions: Mutex::default(),
            has_attention: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        };
        unit.attend(Code::POWER_ON);
        unit
    }

    /// Returns the fixed properties of the unit.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Adds a unit attention, which the initiator is told with its next command.
    pub fn attend(&self, code: Code) {
        let mut attentions = self.attentions.lock();
        if attentions.len() == ATTENTIONS_MAX {
            attentions.pop_front();
        }
        if attentions.back() != Some(&code) {
            attentions.push_back(code);
        }
        self.has_attention.store(true, Ordering::Release);
    }

    fn take_attention(&self) -> Option<Code> {
        if !self.has_attention.load(Ordering::Acquire) {
            return None;
        }
        let mut attentions = self.attentions.lock();
        let code = attentions.pop_front();
        self.has_attention.store(!attentions.is_empty(), Ordering::Release);
        code
    }

    /// Resets the unit: restores the state that a reset restores, and adds a unit attention.
    pub fn reset(&self, code: Code) {
        self.write_cache.store(self.facts.has_cache, Ordering::Relaxed);
        self.is_stopped.store(false, Ordering::Relaxed);
        self.attend(code);
    }

    /// Resets the unit like a hard reset, which also restarts its timestamp.
    pub fn hard_reset(&self, code: Code) {
        *self.clock.lock() = Clock::begin((self.facts.now)());
        self.reset(code);
    }

    /// Puts the unit into the state after a loss of power.
    pub fn power_cut(&self) {
        self.attentions.lock().clear();
        self.hard_reset(Code::POWER_ON);
    }

    /// Sets the timestamp to a command's `len` bytes of parameters.
    fn set_timestamp(&self, len: u32, take: impl FnOnce(&mut [u8]) -> bool) -> Reply {
        let mut bytes = [0; TIMESTAMP_BYTES];
        let bytes = &mut bytes[..TIMESTAMP_BYTES.min(len as usize)];
        let ms = if take(bytes) { timestamp::decode_set(bytes) } else { None };
        let Some(ms) = ms else { return Reply::illegal(Code::PARAMETER_LIST_LENGTH) };
        *self.clock.lock() = Clock::set(ms, (self.facts.now)());
        Reply::Good(bytes.len() as u32)
    }

    /// Whether writes may be answered before they are durable.
    pub fn has_write_cache(&self) -> bool {
        self.write_cache.load(Ordering::Relaxed)
    }

    pub(crate) fn set_write_cache(&self, is_on: bool) {
        self.write_cache.store(is_on && self.facts.has_cache, Ordering::Relaxed);
    }

    /// Begins a command for a unit of this target. The target has only unit 0, which has `blocks`
    /// blocks now. `take` copies the first bytes that the initiator sends, and returns false if it
    /// sends fewer.
    pub fn begin(
        &self,
        lun: Lun,
        cdb: &[u8],
        blocks: u64,
        take: impl FnOnce(&mut [u8]) -> bool,
    ) -> Step {
        let is_here = lun.number() == Some(0);
        let command = match Command::decode(cdb) {
            Ok(command) => command,
            Err(undecodable) => {
                // Unit attentions are reported first, whatever the command is.
                let code = if is_here { self.take_attention() } else { None };
                return Step::Ended(match (code, undecodable) {
                    (Some(code), _) => Reply::Check(Sense::new(Key::UnitAttention, code)),
                    (None, Undecodable::Opcode) => Reply::illegal(Code::INVALID_OPCODE),
                    (None, Undecodable::Field(byte)) => {
                        Reply::Check(Sense::invalid_field(byte.into()))
                    }
                });
            }
        };
        match command {
            Command::Inquiry { page, allocation } => {
                return Step::Ended(self.inquiry(is_here, page, allocation.into()));
            }
            Command::ReportLuns { select, allocation } => {
                return Step::Ended(Self::report_luns(select, allocation as usize));
            }
            Command::RequestSense { descriptor, allocation } => {
                let code = if is_here { self.take_attention() } else { Some(Code::NO_SUCH_UNIT) };
                let key = if is_here { Key::UnitAttention } else { Key::IllegalRequest };
                let sense = code.map_or(Sense::default(), |code| Sense::new(key, code));
                let (long, len) = sense.encode_descriptors();
                let fixed = sense.encode_fixed();
                let bytes = if descriptor { &long[..len] } else { &fixed[..] };
                return Step::Ended(Reply::data(bytes, allocation.into()));
            }
            _ => {}
        }
        if !is_here {
            return Step::Ended(Reply::illegal(Code::NO_SUCH_UNIT));
        }
        if let Some(code) = self.take_attention() {
            return Step::Ended(Reply::Check(Sense::new(Key::UnitAttention, code)));
        }
        if cdb.first().is_some_and(|code| self.facts.without.contains(code)) {
            return Step::Ended(Reply::illegal(Code::INVALID_OPCODE));
        }
        self.begin_here(command, blocks, take)
    }

    fn begin_here(
        &self,
        command: Command,
        blocks: u64,
        take: impl FnOnce(&mut [u8]) -> bool,
    ) -> Step {
        match command {
            Command::ModeSense { .. } => return Step::Ended(self.mode_sense(&command, blocks)),
            Command::ModeSelect { width, page_format, save, len } => {
                return match len {
                    _ if !page_format || save => Step::Ended(Reply::Check(Sense::invalid_field(1))),
                    0 => Step::Ended(Reply::Good(0)),
                    len => self
                        .mode_select(width, len, take)
                        .unwrap_or_else(|sense| Step::Ended(Reply::Check(sense))),
                };
            }
            Command::ReportOperations { .. } => {
                return Step::Ended(self.report_operations(&command));
            }
            Command::ReportTimestamp { allocation } => {
                let bytes = self.clock.lock().at((self.facts.now)()).encode();
                return Step::Ended(Reply::data(&bytes, allocation as usize));
            }
            Command::SetTimestamp { len: 0 } => return Step::Ended(Reply::Good(0)),
            Command::SetTimestamp { len } => return Step::Ended(self.set_timestamp(len, take)),
            Command::LogSense { page, subpage, parameter, allocation, .. } => {
                let reply = Self::log_sense(page, subpage, parameter, allocation.into());
                return Step::Ended(reply);
            }
            Command::StartStop { start, power, .. } => {
                if power == 0 {
                    self.is_stopped.store(!start, Ordering::Relaxed);
                }
                return Step::Ended(Reply::Good(0));
            }
            _ => {}
        }
        if self.is_stopped.load(Ordering::Relaxed) {
            return Step::Ended(Reply::Check(Sense::new(Key::NotReady, Code::NEEDS_START)));
        }
        match command {
            Command::TestUnitReady => Step::Ended(Reply::Good(0)),
            Command::ReadCapacity10 => {
                Step::Ended(Reply::data(&self.capacity(blocks).encode10(), 8))
            }
            Command::ReadCapacity16 { allocation } => {
                let bytes = self.capacity(blocks).encode16();
                Step::Ended(Reply::data(&bytes, allocation as usize))
            }
            command => self.begin_blocks(command, blocks, take),
        }
    }
}

#[cfg(test)]
mod tests {
    use qpair_block::Op;
    use qpair_scsi_wire::command::Range;
    use qpair_scsi_wire::timestamp::{ORIGIN_POWER_ON, ORIGIN_SET, Timestamp, encode_set};
    use qpair_scsi_wire::{Width, unmap};

    use super::*;
    use crate::blocks::Access;
    use crate::facts::Limits;

    fn unit(without: &'static [u8]) -> LogicalUnit {
        let limits = Limits {
            transfer_bytes_max: 1 << 20,
            unmap_bytes_max: 1 << 20,
            unmap_ranges_max: 1,
            write_same_bytes_max: 1 << 20,
        };
        let unit = LogicalUnit::new(Facts {
            product: "DISK",
            serial: "1".to_owned(),
            naa: 3 << 60 | 1,
            port: None,
            block_bytes: 512,
            physical_exponent: 0,
            rotation: 1,
            has_cache: true,
            read_only: false,
            reads_zeroes: true,
            limits,
            now: std::time::Instant::now,
            without,
        });
        unit.take_attention();
        unit
    }

    fn begin_with(unit: &LogicalUnit, command: Command, sent: &[u8]) -> Step {
        unit.begin(Lun::default(), command.encode().bytes(), 8, |into| {
            let is_whole = into.len() <= sent.len();
            if is_whole {
                into.copy_from_slice(&sent[..into.len()]);
            }
            is_whole
        })
    }

    fn begin(unit: &LogicalUnit, command: Command) -> Step {
        begin_with(unit, command, &[])
    }

    fn report(unit: &LogicalUnit) -> Timestamp {
        let Step::Ended(Reply::Data(bytes)) =
            begin(unit, Command::ReportTimestamp { allocation: 12 })
        else {
            panic!("no timestamp")
        };
        Timestamp::decode(&bytes).unwrap()
    }

    #[test]
    fn a_timestamp_is_kept_over_resets_that_are_not_hard() {
        let unit = unit(&[]);
        assert_eq!(report(&unit).origin, ORIGIN_POWER_ON);
        let set = |len, sent: &[u8]| begin_with(&unit, Command::SetTimestamp { len }, sent);
        let truncated = Step::Ended(Reply::illegal(Code::PARAMETER_LIST_LENGTH));
        assert_eq!(set(0, &[]), Step::Ended(Reply::Good(0)));
        assert_eq!(set(99, &[0; 11]), truncated);
        assert_eq!(set(11, &[0; 99]), truncated);
        for hard in [None, Some(false), Some(true)] {
            assert_eq!(set(99, &encode_set(1 << 40)), Step::Ended(Reply::Good(12)));
            unit.reset(Code::DEVICE_RESET);
            unit.take_attention();
            let now = report(&unit);
            assert!(now.origin == ORIGIN_SET && now.ms >= 1 << 40, "{now:?}");
            match hard {
                None => continue,
                Some(true) => unit.hard_reset(Code::DEVICE_RESET),
                Some(false) => unit.power_cut(),
            }
            unit.take_attention();
            let now = report(&unit);
            assert!(now.origin == ORIGIN_POWER_ON && now.ms < 1 << 40, "{now:?}");
        }
    }

    #[test]
    fn block_commands_become_accesses() {
        let unit = unit(&[]);
        let range = |block, blocks| Range { block, blocks, width: Width::Sixteen };
        let access = |op, durable, blocks: std::ops::Range<u32>| Access {
            op,
            durable,
            offset_bytes: u64::from(blocks.start) * 512,
            len_bytes: blocks.len() as u32 * 512,
        };
        let same = |no_data| Command::WriteSame {
            range: range(2, 3),
            unmap: false,
            anchor: false,
            no_data,
            protect: 0,
        };
        let block = vec![7; 512];
        let verify = |compare| Command::Verify { range: range(1, 2), compare, protect: 0 };
        let (read, list) = (access(Op::Read, false, 1..3), unmap::encode_one(4, 4));
        let flush = access(Op::Flush, false, 0..0);
        for (command, sent, work) in [
            (verify(1), &[][..], Work::Compare { access: read, data_bytes: 1024 }),
            (verify(3), &[], Work::Compare { access: read, data_bytes: 512 }),
            (
                same(false),
                &block,
                Work::Fill { access: access(Op::Write, false, 2..5), block: block.clone() },
            ),
            (
                same(false),
                &[0; 512],
                Work::Each { accesses: vec![access(Op::WriteZeroes, false, 2..5)], taken: 512 },
            ),
            (
                same(true),
                &[],
                Work::Each { accesses: vec![access(Op::WriteZeroes, false, 2..5)], taken: 0 },
            ),
            (
                Command::Unmap { anchor: false, len: 24 },
                &list,
                Work::Each { accesses: vec![access(Op::Discard, false, 4..8)], taken: 24 },
            ),
            (
                Command::SynchronizeCache { range: range(8, 0), immediate: false },
                &[],
                Work::Each { accesses: vec![flush], taken: 0 },
            ),
        ] {
            assert_eq!(begin_with(&unit, command, sent), Step::Work(work), "{command:?}");
        }
        let write = |force_unit_access, blocks| Command::Write {
            range: range(0, blocks),
            force_unit_access,
            protect: 0,
        };
        let moves = |durable| Step::Work(Work::Move(access(Op::Write, durable, 0..8)));
        assert_eq!(begin(&unit, write(false, 8)), moves(false));
        assert_eq!(begin(&unit, write(true, 8)), moves(true));
        unit.set_write_cache(false);
        assert_eq!(begin(&unit, write(false, 8)), moves(true));
        assert_eq!(begin(&unit, write(false, 0)), Step::Ended(Reply::Good(0)));
        let outside = Step::Ended(Reply::illegal(Code::BLOCK_OUT_OF_RANGE));
        assert_eq!(begin(&unit, write(false, 9)), outside);
    }

    #[test]
    fn a_unit_may_do_without_a_timestamp() {
        use qpair_scsi_wire::{command::opcode, operations};
        let is_known = |unit: &LogicalUnit| {
            let ask = Command::ReportOperations {
                timeouts: false,
                options: 3,
                opcode: opcode::MAINTENANCE_OUT,
                action: opcode::ACTION_TIMESTAMP.into(),
                allocation: 64,
            };
            let Step::Ended(Reply::Data(bytes)) = begin(unit, ask) else { panic!("no answer") };
            operations::decode_one(&bytes)
        };
        assert_eq!(is_known(&unit(&[])), Some(true));
        let without = unit(&[opcode::MAINTENANCE_OUT]);
        assert_eq!(is_known(&without), Some(false));
        let refused = Step::Ended(Reply::illegal(Code::INVALID_OPCODE));
        assert_eq!(begin(&without, Command::SetTimestamp { len: 12 }), refused);
    }
}
