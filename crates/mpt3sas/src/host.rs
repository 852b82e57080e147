//! A controller: opening it, resetting it, and closing it.

use qpair_memory::locks::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Instant;

use qpair_block::{Buffer, Error, ErrorKind, Result, time};
use qpair_mpi_wire::init::Facts;
use qpair_mpi_wire::registers::{HOST_INTERRUPT_MASK, MASK_ALL, MASK_REPLY};
use qpair_pci::{Interrupt, Maps, PciFunction, Step, command};
use qpair_scsi::host::{Change, Host, HostInfo, HostQueue, QueueOptions, Target, Unit};
use tracing::{error, info, warn};

use crate::coherent::{Coherent, Sizes};
use crate::core::Core;
use crate::options::HbaOptions;
use crate::queue::MptQueue;
use crate::recovery;
use crate::registers::{Registers, gone, within};
use crate::state::{Gate, Phase, State, Word};
use crate::targets::Targets;

/// PCI class of SAS controllers: mass storage, SAS.
const PCI_CLASS: u32 = 0x01_07;
/// The number of consecutive resets that may fail before the controller is given up.
const ATTEMPTS_MAX: u32 = 3;
/// The maximum number of bytes of one command's data: its length field holds them, and all
/// controllers accept them.
const TRANSFER_BYTES_MAX: u32 = 4 << 20;
/// The maximum number of changes that no caller has fetched yet.
const CHANGES_MAX: usize = 4096;

/// A SAS controller that this program drives.
pub struct Mpt3sas(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    function: Arc<dyn PciFunction>,
    pub(crate) registers: Registers,
    pub(crate) stepper: Option<Arc<dyn Step>>,
    pub(crate) options: HbaOptions,
    pub(crate) state: State,
    pub(crate) targets: Targets,
    core: Mutex<Option<Core>>,
    gates: Mutex<Vec<Weak<Gate>>>,
    changes: Mutex<Vec<Change>>,
    is_resetting: AtomicBool,
    /// Set once a channel has slept since the controller was opened: its replies interrupt.
    pub(crate) interrupts: AtomicBool,
    resets: AtomicU64,
    /// The number of further tasks that may be in flight.
    task_credit: AtomicU32,
    task_credit_max: u32,
    /// The position of each reply queue that no channel has, with the controller's life in the
    /// upper half.
    marks: Box<[AtomicU64]>,
    /// Frames of channels that were closed with commands in flight: free after the next reset.
    stale: Mutex<Vec<Buffer>>,
    /// When the controller's state was last checked, ms since `start`.
    watched_ms: AtomicU64,
    start: Instant,
    info: HostInfo,
    pub(crate) memory: Coherent,
    pub(crate) maps: Arc<Maps>,
}

impl Mpt3sas {
    /// Opens a function: resets it, gives it queues, and lets it discover its devices.
    ///
    /// # Errors
    /// `Unsupported` if it is not a SAS controller of MPI 2.5 or 2.6; `Limit` if memory or queues
    /// are short; the function's errors.
    pub fn open(function: Arc<dyn PciFunction>, options: HbaOptions) -> Result<Arc<Self>> {
        let name = function.name().to_owned();
        check_class(&*function)?;
        let mut registers = Registers::find(function.clone())?;
        function.change_command(command::MEMORY | command::BUS_MASTER | command::NO_INTX, 0)?;
        recovery::make_ready(&registers, &options)
            .map_err(|error| within(error, format!("{name}: making it ready")))?;
        let facts = recovery::facts(&registers, &name, &options)?;
        registers.adopt(&facts);
        let sizes = Sizes::new(&facts, options.queues, &name)?;
        let maps = Maps::new(function.clone());
        let memory = Coherent::new(&maps, sizes)?;
        let task_credit_max = u32::from(facts.high_priority_credit.max(1));
        let inner = Inner {
            info: HostInfo {
                about: about(&facts, &sizes, &*function),
                name,
                driver: "mpt3sas".to_owned(),
                depth_max: sizes.depth_max(),
                transfer_bytes_max: TRANSFER_BYTES_MAX,
                shared_memory: maps.needs_shared_memory(),
            },
            registers,
            stepper: function.stepper(),
            function,
            options,
            state: State::new(),
            targets: Targets::default(),
            core: Mutex::default(),
            gates: Mutex::default(),
            changes: Mutex::default(),
            is_resetting: AtomicBool::new(false),
            interrupts: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            task_credit: AtomicU32::new(task_credit_max),
            task_credit_max,
            marks: (0..sizes.queues).map(|_| AtomicU64::new(0)).collect(),
            stale: Mutex::default(),
            watched_ms: AtomicU64::new(0),
            start: time::now(),
            memory,
            maps,
        };
        inner.state.set(Word::new(1, Phase::Quiet));
        let mut core = Core::new(&inner)?;
        core.clear();
        inner.initialise()?;
        core.discover(&inner)?;
        *inner.core.lock() = Some(core);
        inner.changes.lock().clear();
        inner.state.set(Word::new(1, Phase::Running));
        Ok(Arc::new(Self(Arc::new(inner))))
    }
}

pub(crate) fn check_class(function: &dyn PciFunction) -> Result<()> {
    let mut word = [0; 4];
    function.read_config(8, &mut word)?;
    let word = u32::from_le_bytes(word);
    if word == u32::MAX {
        return Err(gone(function.name()));
    }
    if word >> 16 != PCI_CLASS {
        let context =
            format!("{} is not a SAS controller (class {:06x})", function.name(), word >> 8);
        return Err(Error::new(ErrorKind::Unsupported, context));
    }
    Ok(())
}

fn about(facts: &Facts, sizes: &Sizes, function: &dyn PciFunction) -> String {
    let [a, b, c, d] = facts.firmware.to_be_bytes();
    format!(
        "MPI {}.{} over {}, firmware {a}.{b}.{c}.{d}, {} requests, {} reply queues",
        facts.version >> 8,
        facts.version & 0xFF,
        function.transport(),
        facts.credit,
        sizes.queues
    )
}

impl Inner {
    pub(crate) fn name(&self) -> &str {
        self.function.name()
    }

    fn core(&self) -> MutexGuard<'_, Option<Core>> {
        self.core.lock()
    }

    pub(crate) fn changed(&self, change: Change) {
        info!(name: "changed", controller = self.name(), ?change, "the controller's targets change");
        let mut changes = self.changes.lock();
        if changes.len() < CHANGES_MAX {
            changes.push(change);
        }
    }

    /// Returns the interrupt of a reply queue; `None` for a model that runs on the thread that
    /// waits for it.
    pub(crate) fn interrupt(&self, queue: u32) -> Result<Option<Interrupt>> {
        if self.stepper.is_some() {
            return Ok(None);
        }
        if queue >= self.function.irq_count() {
            let context = format!("{}: reply queue {queue} has no interrupt", self.name());
            return Err(Error::new(ErrorKind::Unsupported, context).hint("give wait=poll"));
        }
        let interrupt = Interrupt::new(&*self.function, queue)?;
        // The order matters: a reset in progress either sees the flag, or has masked interrupts
        // before.
        self.interrupts.store(true, Ordering::SeqCst);
        self.registers.write(HOST_INTERRUPT_MASK, MASK_ALL & !MASK_REPLY)?;
        Ok(Some(interrupt))
    }

    pub(crate) fn new_gate(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::new());
        let mut gates = self.gates.lock();
        gates.retain(|gate| gate.strong_count() > 0);
        gates.push(Arc::downgrade(&gate));
        gate
    }

    /// Returns the position of a reply queue, valid if the queue has been used in this life.
    pub(crate) fn mark(&self, queue: u8) -> &AtomicU64 {
        &self.marks[usize::from(queue)]
    }

    pub(crate) fn take_task_credit(&self) -> bool {
        let less = |credit: u32| credit.checked_sub(1);
        self.task_credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    pub(crate) fn give_task_credit(&self) {
        let max = self.task_credit_max;
        let more = |credit: u32| Some((credit + 1).min(max));
        let _ = self.task_credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Keeps frames until the controller can no longer use them.
    pub(crate) fn keep_stale(&self, buffers: impl Iterator<Item = Buffer>) {
        self.stale.lock().extend(buffers);
    }

    /// Checks for events and the controller's state, on whichever thread calls. Never waits.
    pub(crate) fn look(self: &Arc<Self>) {
        if let Some(mut core) = self.core.try_lock()
            && let Some(core) = &mut *core
            && self.state.get().phase() == Phase::Running
        {
            core.look(self);
        }
        let now_ms = (time::now() - self.start).as_millis() as u64;
        let watched_ms = self.watched_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(watched_ms) >= self.options.watch_ms.into() {
            self.watched_ms.store(now_ms, Ordering::Relaxed);
            if self.state.get().phase() == Phase::Running
                && let Err(error) = self.check_state()
            {
                warn!(name: "failed", controller = self.name(), %error, "the controller has failed");
                self.begin_reset();
            }
        }
    }

    /// Begins a reset on a separate thread, unless one is in progress.
    pub(crate) fn begin_reset(self: &Arc<Self>) {
        if self.state.get().phase() == Phase::Gone || self.is_resetting.swap(true, Ordering::AcqRel)
        {
            return;
        }
        if time::is_virtual() {
            // A simulation has only one thread.
            return self.reset_here();
        }
        let inner = self.clone();
        let builder = std::thread::Builder::new().name("mpt3sas-reset".to_owned());
        if builder.spawn(move || inner.reset_here()).is_err() {
            // No thread could be started.
            self.reset_here();
        }
    }

    fn reset_here(&self) {
        // An error is visible in the state, and the next call of the control plane reports it.
        let _ = self.reset_now();
        self.is_resetting.store(false, Ordering::Release);
    }

    /// Resets the controller. On success it runs again with nothing in flight; otherwise it is
    /// given up.
    fn reset_now(&self) -> Result<()> {
        let mut held = self.core();
        let word = self.state.get();
        if word.phase() == Phase::Gone {
            return Err(gone(self.name()));
        }
        let life = word.life();
        warn!(name: "reset", controller = self.name(), "the controller is reset");
        self.state.set(Word::new(life, Phase::Stopping));
        // Nothing of this life is posted after this.
        for gate in self.gates.lock().iter().filter_map(Weak::upgrade) {
            gate.wait();
        }
        let mut failure = gone(self.name());
        for attempt in 1..=ATTEMPTS_MAX {
            if let Err(error) = recovery::reset(&self.registers, &self.options) {
                let controller = self.name();
                warn!(name: "not_started", controller, attempt, %error, "the controller cannot be reset");
                failure = error;
                if failure.kind() == ErrorKind::Gone {
                    break;
                }
                continue;
            }
            let life = life + u64::from(attempt);
            self.targets.lose_all();
            self.task_credit.store(self.task_credit_max, Ordering::Relaxed);
            self.stale.lock().clear();
            self.state.set(Word::new(life, Phase::Quiet));
            let started = match &mut *held {
                Some(core) => self.start(core),
                None => Err(gone(self.name())),
            };
            match started {
                Ok(()) => {
                    self.resets.fetch_add(1, Ordering::Relaxed);
                    self.changed(Change::Reset);
                    self.state.set(Word::new(life, Phase::Running));
                    let (controller, resets) = (self.name(), self.resets.load(Ordering::Relaxed));
                    info!(name: "running", controller, resets, "the controller runs");
                    return Ok(());
                }
                Err(error) => {
                    let controller = self.name();
                    warn!(name: "not_started", controller, attempt, %error, "the controller did not start");
                    failure = error;
                }
            }
            // The controller may have begun to access memory again.
            self.state.set(Word::new(life, Phase::Stopping));
        }
        error!(name: "given_up", controller = self.name(), error = %failure, "the controller is given up");
        self.give_up();
        Err(failure)
    }

    fn start(&self, core: &mut Core) -> Result<()> {
        core.clear();
        recovery::make_ready(&self.registers, &self.options)?;
        self.initialise()?;
        core.discover(self)
    }

    /// Gives the controller up and closes its memory, so that it can access none.
    fn give_up(&self) {
        self.targets.lose_all();
        // A controller that cannot be reset is reset as a function, or cut off from memory. For a
        // function that is gone the call has no effect.
        let _ = self.function.reset();
        self.maps.cut_off();
        let life = self.state.get().life() + 1;
        self.state.set(Word::new(life, Phase::Gone));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.state.get().phase() == Phase::Gone {
            return;
        }
        let quiet = recovery::make_ready(&self.registers, &self.options);
        if quiet.is_err() {
            let _ = self.function.reset();
            self.maps.cut_off();
        }
    }
}

impl fmt::Debug for Mpt3sas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mpt3sas {}", self.0.name())
    }
}

impl Host for Mpt3sas {
    fn info(&self) -> &HostInfo {
        &self.0.info
    }

    fn scan(&self) -> Result<Vec<Target>> {
        let inner = &self.0;
        let mut held = inner.core();
        match (&mut *held, inner.state.get().phase()) {
            (Some(core), Phase::Running) => core.scan(inner)?,
            _ => return Err(gone(inner.name())),
        }
        Ok(inner.targets.present())
    }

    fn open_queue(&self, unit: Unit, options: &QueueOptions<'_>) -> Result<Box<dyn HostQueue>> {
        Ok(Box::new(MptQueue::open(&self.0, unit, options)?))
    }

    fn reset(&self) -> Result<()> {
        let inner = &self.0;
        if inner.is_resetting.swap(true, Ordering::AcqRel) {
            // Another reset is in progress: wait for its end.
            drop(inner.core());
        } else {
            let done = inner.reset_now();
            inner.is_resetting.store(false, Ordering::Release);
            done?;
        }
        match inner.state.get().phase() {
            Phase::Gone => Err(gone(inner.name())),
            _ => Ok(()),
        }
    }

    fn resets(&self) -> u64 {
        self.0.resets.load(Ordering::Relaxed)
    }

    fn changes(&self) -> Vec<Change> {
        self.0.look();
        std::mem::take(&mut *self.0.changes.lock())
    }

    fn locate(&self, target: u32, shines: bool) -> Result<()> {
        let inner = &self.0;
        match (&mut *inner.core(), inner.state.get().phase()) {
            (Some(core), Phase::Running) => core.locate(inner, target, shines),
            _ => Err(gone(inner.name())),
        }
    }
}
