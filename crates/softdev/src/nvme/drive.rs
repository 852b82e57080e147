//! The backend of a soft drive: its media, and the delays and faults of commands.
//!
//! If the drive has neither a timing profile nor faults, commands are executed at once, and no
//! clock is read.

use qpair_memory::locks::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qpair_block::Op;
use qpair_nvme_device::{Again, Backend, Io, NamespaceInfo, Stop, Ticket};
use qpair_nvme_wire::command::io;
use qpair_nvme_wire::{Command, Status};
use qpair_pci::model::DmaSpan;

use super::namespace::Namespace;
use super::options::SoftNvmeOptions;
use super::waiting::{Fate, NEVER, Waiting};
use crate::faults::{Faults, Outcome, Plan};
use crate::flash::Flash;
use crate::medium::Scratch;

/// The size of a volatile write cache if the profile gives none, in bytes.
const CACHE_BYTES: u64 = 64 << 20;

/// A soft drive without its controller.
pub(crate) struct Drive {
    pub(super) namespaces: Vec<Namespace>,
    pub(super) flash: Flash,
    faults: Mutex<Arc<Faults>>,
    /// Whether the drive has neither a timing profile nor faults.
    is_plain: AtomicBool,
    /// The instant that is time 0 for `flash`.
    start: Instant,
    /// The seed that decides what the caches lose at the next removal; `None` if the removal is not
    /// a loss of power.
    power_cut: Mutex<Option<u64>>,
}

/// The drive's part of an I/O queue.
#[derive(Debug, Default)]
pub(crate) struct DriveQueue {
    waiting: Waiting,
    pub(super) scratch: Scratch,
}

/// The decision on a command.
enum Verdict {
    Due(u64, Fate),
    Stop(Stop),
}

impl Drive {
    /// Opens the media, and fills in the sizes of files.
    pub(super) fn open(options: &mut SoftNvmeOptions) -> qpair_block::Result<Self> {
        // The cache has the size of the drive's profile, or the default size.
        let cache_bytes = match (options.volatile_write_cache, options.profile.cache_bytes) {
            (false, _) => 0,
            (true, 0) => CACHE_BYTES,
            (true, bytes) => bytes,
        };
        let (mut namespaces, mut first_byte) = (Vec::new(), 0u64);
        for (asked, nsid) in options.namespaces.iter_mut().zip(1..) {
            let made = Namespace::open(asked, &options.serial, nsid, first_byte, cache_bytes)?;
            asked.size_bytes = made.size_bytes();
            first_byte = first_byte.saturating_add(made.size_bytes());
            namespaces.push(made);
        }
        let flash = Flash::new(options.profile, first_byte, options.faults.seed)?;
        Ok(Self {
            namespaces,
            is_plain: AtomicBool::new(flash.is_instant() && options.faults.is_empty()),
            flash,
            faults: Mutex::new(Arc::new(Faults::new(options.faults.clone()))),
            start: Instant::now(),
            power_cut: Mutex::default(),
        })
    }

    pub(super) fn faults(&self) -> Arc<Faults> {
        self.faults.lock().clone()
    }

    pub(super) fn set_faults(&self, plan: Plan) {
        let mut faults = self.faults.lock();
        self.is_plain.store(self.flash.is_instant() && plan.is_empty(), Ordering::Relaxed);
        *faults = Arc::new(Faults::new(plan));
    }

    /// Makes the next removal a loss of power.
    pub(super) fn arm_power_cut(&self, seed: u64) {
        *self.power_cut.lock() = Some(seed);
    }

    /// Whether the drive has neither a timing profile nor faults.
    #[inline]
    fn is_plain(&self) -> bool {
        self.is_plain.load(Ordering::Relaxed)
    }

    /// Returns the nanoseconds since the drive was created.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX - 1)
    }

    /// Converts nanoseconds since the drive was created to an instant.
    fn instant(&self, at_ns: u64) -> Instant {
        self.start.checked_add(Duration::from_nanos(at_ns)).unwrap_or(self.start)
    }

    /// Queues commands until they are due.
    fn schedule(&self, commands: &[Command], io: &mut Io<'_, DriveQueue>) -> Result<(), Stop> {
        let (now_ns, faults) = (self.now_ns(), self.faults());
        for command in commands {
            match self.verdict(command, &faults, now_ns, io.is_durable(command)) {
                Verdict::Due(at_ns, fate) => io.state.own.waiting.push(at_ns, *command, fate),
                Verdict::Stop(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    fn verdict(&self, command: &Command, faults: &Faults, now_ns: u64, durable: bool) -> Verdict {
        let at_once = Verdict::Due(now_ns, Fate::Execute);
        let op = match command.opcode() {
            io::READ | io::COMPARE => Op::Read,
            io::WRITE => Op::Write,
            io::WRITE_ZEROES => Op::WriteZeroes,
            io::DATASET_MANAGEMENT => Op::Discard,
            io::FLUSH => Op::Flush,
            // The command fails at once.
            _ => return at_once,
        };
        let (mut first, mut blocks, mut at, mut len) = (0, 0, 0, 0);
        if !matches!(op, Op::Flush | Op::Discard) {
            let Ok(namespace) = self.namespace(command.nsid()) else { return at_once };
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
            Outcome::Fatal => return Verdict::Stop(Stop::Fatal),
            Outcome::Remove => return Verdict::Stop(Stop::Removed),
            Outcome::PowerCut => {
                self.arm_power_cut(faults.plan().seed);
                return Verdict::Stop(Stop::Removed);
            }
        };
        let done_ns = self.flash.schedule(now_ns, op, at, len, durable);
        Verdict::Due(done_ns.saturating_add(delay_ns), fate)
    }
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

impl Backend for Drive {
    type Queue = DriveQueue;

    const COMPARES: bool = true;

    fn namespaces(&self) -> Vec<NamespaceInfo> {
        (1..).zip(&self.namespaces).map(|(nsid, namespace)| namespace.info(nsid)).collect()
    }

    #[inline]
    fn take(&self, commands: &[Command], io: &mut Io<'_, DriveQueue>) -> Result<(), Stop> {
        if !self.is_plain() || !io.state.own.waiting.is_empty() {
            return self.schedule(commands, io);
        }
        // Prefetch all commands of the batch, so that their data is on its way from memory while
        // the first ones are copied.
        commands.iter().for_each(|command| self.prefetch(command));
        for command in commands {
            let status = self.execute(command, io);
            io.end(command.cid(), status)?;
        }
        Ok(())
    }

    fn poll(&self, io: &mut Io<'_, DriveQueue>) -> Result<Again, Stop> {
        let now_ns = self.now_ns();
        while io.has_room()
            && let Some(due) = io.state.own.waiting.pop(now_ns)
        {
            let status = match due.fate {
                Fate::Complete(status) => status,
                Fate::Execute | Fate::ExecuteSilently => self.execute(&due.command, io),
                Fate::Corrupt(chance) => {
                    let status = self.execute(&due.command, io);
                    if status.is_success() {
                        flip(chance, io.state.memory.span());
                    }
                    status
                }
            };
            match due.fate {
                Fate::ExecuteSilently => io.lose(),
                _ => io.end(due.command.cid(), status)?,
            }
        }
        let waiting = &io.state.own.waiting;
        let due = waiting.next_ns().map(|at_ns| self.instant(at_ns));
        Ok(if waiting.is_empty() { Again::OnNews } else { Again::Always(due) })
    }

    fn abort(&self, queue: &mut DriveQueue, cid: u16) -> bool {
        queue.waiting.abort(cid, Status::ABORT_REQUESTED)
    }

    fn withdraw(&self, queue: &mut DriveQueue) -> Vec<u16> {
        queue.waiting.drain().map(|due| due.command.cid()).collect()
    }

    fn flush(&self, _ticket: Ticket) -> Option<Status> {
        let flushed = self.namespaces.iter().try_for_each(|namespace| namespace.flush());
        Some(flushed.map_or(Status::INTERNAL_ERROR, |()| Status::SUCCESS))
    }

    fn removed(&self) {
        let Some(seed) = self.power_cut.lock().take() else { return };
        for namespace in &self.namespaces {
            // If the medium cannot be written, more is lost than the cut would take.
            let _ = namespace.lose_cache(seed);
        }
    }
}

/// Flips one bit of the memory that a command has read into.
fn flip(chance: u64, span: DmaSpan<'_>) {
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
