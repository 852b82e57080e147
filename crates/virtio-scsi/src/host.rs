//! Opens, resets and closes a device.

use qpair_memory::locks::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use qpair_block::{Error, ErrorKind, Result};
use qpair_pci::{LifeWord, Maps, PciFunction, Phase, Step, command};
use qpair_scsi::host::{Change, Host, HostInfo, HostQueue, QueueOptions, Target, Unit};
use qpair_virtio::scsi::{CONTROL_QUEUE, EVENT_QUEUE, Event, REQUEST_QUEUE, event, place_of};
use qpair_virtio::{
    STATUS_ACKNOWLEDGE, STATUS_DRIVER, STATUS_DRIVER_OK, STATUS_FEATURES_OK, STATUS_NEEDS_RESET,
};
use tracing::{error, info, warn};

use crate::core::{Core, TASK_STRIDE};
use crate::driver::check_ids;
use crate::facts::Facts;
use crate::lives::Lives;
use crate::options::VirtioScsiOptions;
use crate::probe;
use crate::queue::{SLOT_BYTES, ScsiQueue};
use crate::transport::{Transport, gone};
use crate::virtqueue::Virtqueue;

/// The number of consecutive resets that may fail before the device is given up.
const ATTEMPTS_MAX: u32 = 3;
/// The maximum number of changes that no caller has fetched yet.
const CHANGES_MAX: usize = 4096;

/// A virtio SCSI host that this program drives.
pub struct VirtioScsi(Arc<Inner>);

pub(crate) struct Inner {
    function: Arc<dyn PciFunction>,
    transport: Transport,
    pub(crate) stepper: Option<Arc<dyn Step>>,
    pub(crate) options: VirtioScsiOptions,
    pub(crate) facts: Facts,
    state: AtomicU64,
    core: Mutex<Option<Core>>,
    lives: Mutex<Lives>,
    /// The targets that the last scan found, updated by later events.
    targets: Mutex<BTreeSet<u32>>,
    changes: Mutex<Vec<Change>>,
    /// Set if events were missed, so that the present targets are not known.
    has_missed: AtomicBool,
    is_resetting: AtomicBool,
    resets: AtomicU64,
    /// When the device's status was last checked, ms since `start`.
    watched_ms: AtomicU64,
    start: Instant,
    info: HostInfo,
    pub(crate) maps: Arc<Maps>,
}

impl VirtioScsi {
    /// Opens a function: resets it, negotiates its features, and gives it queues.
    ///
    /// # Errors
    /// `Unsupported` if it is not a virtio 1 SCSI host, or one that would bypass the IOMMU; `Limit`
    /// if memory is short; the function's errors.
    pub fn open(function: Arc<dyn PciFunction>, options: VirtioScsiOptions) -> Result<Arc<Self>> {
        let name = function.name().to_owned();
        check_ids(&*function)?;
        function.change_command(command::MEMORY | command::BUS_MASTER, 0)?;
        let transport = Transport::find(function.clone())?;
        transport.reset(options.reset_timeout())?;
        let facts = Facts::ask(&transport, &name, &options)?;
        let maps = Maps::new(function.clone());
        let inner = Inner {
            info: HostInfo {
                about: format!(
                    "virtio 1 over {}, {} request queues of {}",
                    function.transport(),
                    facts.queues,
                    facts.depth_max()
                ),
                name,
                driver: "virtio-scsi".to_owned(),
                depth_max: facts.depth_max().into(),
                transfer_bytes_max: facts.transfer_bytes_max,
                shared_memory: maps.needs_shared_memory(),
            },
            stepper: function.stepper(),
            lives: Mutex::new(Lives::new(facts.queues)),
            state: AtomicU64::new(LifeWord::new(1, Phase::Quiet).bits()),
            core: Mutex::default(),
            targets: Mutex::default(),
            changes: Mutex::default(),
            has_missed: AtomicBool::new(false),
            is_resetting: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            watched_ms: AtomicU64::new(0),
            start: Instant::now(),
            function,
            transport,
            options,
            facts,
            maps,
        };
        let core = inner.begin_life(1)?;
        *inner.core.lock() = Some(core);
        inner.set_state(1, Phase::Running);
        Ok(Arc::new(Self(Arc::new(inner))))
    }
}

impl Inner {
    pub(crate) fn name(&self) -> &str {
        self.function.name()
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> LifeWord {
        // Acquire: a thread that sees that the device is quiet sees what it wrote before. Pairs
        // with `set_state`.
        LifeWord::from_bits(self.state.load(Ordering::Acquire))
    }

    fn set_state(&self, life: u64, phase: Phase) {
        // Release: pairs with `state`.
        self.state.store(LifeWord::new(life, phase).bits(), Ordering::Release);
    }

    pub(crate) fn lives(&self) -> MutexGuard<'_, Lives> {
        self.lives.lock()
    }

    /// Gives a device with negotiated features the queues of a new life, and starts it.
    fn begin_life(&self, life: u64) -> Result<Core> {
        let (facts, transport, maps) = (&self.facts, &self.transport, &self.maps);
        let tasks = facts.control.size() / 2;
        let tasks_bytes = usize::from(tasks) * TASK_STRIDE;
        let control = Virtqueue::new(transport, maps, CONTROL_QUEUE, facts.control, tasks_bytes)?;
        let count = facts.events.size();
        let events_bytes = usize::from(count) * qpair_virtio::scsi::EVENT_BYTES;
        let events = Virtqueue::new(transport, maps, EVENT_QUEUE, facts.events, events_bytes)?;
        let slots_bytes = usize::from(facts.depth_max()) * SLOT_BYTES;
        let requests = (0..facts.queues)
            .map(|queue| {
                let number = REQUEST_QUEUE + queue;
                Virtqueue::new(transport, maps, number, facts.requests, slots_bytes)
            })
            .collect::<Result<Vec<_>>>()?;
        let status = STATUS_ACKNOWLEDGE | STATUS_DRIVER | STATUS_FEATURES_OK | STATUS_DRIVER_OK;
        transport.set_status(status)?;
        if transport.status()? & STATUS_NEEDS_RESET != 0 {
            let context = format!("{} does not accept its queues", self.name());
            return Err(Error::new(ErrorKind::Io, context));
        }
        self.lives().begin(life, requests);
        let mut core = Core::new(control, tasks, events, count);
        core.expect_events();
        Ok(core)
    }

    /// Calls a function with tasks and events, unless another thread has them or the device is in
    /// another life than the caller knows.
    pub(crate) fn with_core<R>(
        &self,
        seen: LifeWord,
        work: impl FnOnce(&mut Core) -> R,
    ) -> Option<R> {
        let mut held = self.core.try_lock()?;
        let core = held.as_mut()?;
        // A thread that resets changes the state with the lock held.
        (seen.phase() == Phase::Running && self.state() == seen).then(|| work(core))
    }

    /// Takes the answers to tasks, and events. Never waits.
    pub(crate) fn take_core(self: &Arc<Self>, core: &mut Core) {
        if let Some(stepper) = &self.stepper {
            stepper.step(CONTROL_QUEUE);
            stepper.step(EVENT_QUEUE);
        }
        if core.look(|event| self.happened(event)).is_err() {
            warn!(name: "failed", controller = self.name(), "what the device has answered makes no sense");
            self.begin_reset();
        }
    }

    fn happened(&self, it: Event) {
        if it.kind & event::MISSED != 0 {
            self.has_missed.store(true, Ordering::Relaxed);
        }
        if it.kind & !event::MISSED != event::TRANSPORT_RESET {
            return;
        }
        let Some((target, _)) = place_of(it.address) else { return };
        let target = u32::from(target);
        match it.reason {
            event::RESCAN => {
                self.targets.lock().insert(target);
                self.changed(Change::Added(target));
            }
            event::REMOVED => {
                self.targets.lock().remove(&target);
                self.changed(Change::Removed(target));
            }
            _ => {}
        }
    }

    fn changed(&self, change: Change) {
        info!(name: "changed", controller = self.name(), ?change, "the host's targets change");
        let mut changes = self.changes.lock();
        if changes.len() < CHANGES_MAX {
            changes.push(change);
        }
    }

    /// Checks for events and the device's status, on whichever thread calls. Never waits.
    pub(crate) fn look(self: &Arc<Self>) {
        self.with_core(self.state(), |core| self.take_core(core));
        let now_ms = self.start.elapsed().as_millis() as u64;
        let watched_ms = self.watched_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(watched_ms) >= self.options.watch_ms.into() {
            self.watched_ms.store(now_ms, Ordering::Relaxed);
            let is_running = self.state().phase() == Phase::Running;
            let status = self.transport.status();
            if is_running && status.map_or(true, |status| status & STATUS_NEEDS_RESET != 0) {
                warn!(name: "failed", controller = self.name(), "the device asks for a reset, or is gone");
                self.begin_reset();
            }
        }
    }

    /// Begins a reset on a separate thread, unless one is in progress.
    pub(crate) fn begin_reset(self: &Arc<Self>) {
        if self.state().phase() == Phase::Gone || self.is_resetting.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = self.clone();
        let builder = std::thread::Builder::new().name("virtio-scsi-reset".to_owned());
        let spawned = builder.spawn(move || {
            // An error is visible in the state, and the next call of the control plane reports it.
            let _ = inner.reset_now();
            inner.is_resetting.store(false, Ordering::Release);
        });
        if spawned.is_err() {
            // No thread could be started, and this one may hold the lock that a reset takes: the
            // next caller begins the reset.
            self.is_resetting.store(false, Ordering::Release);
        }
    }

    /// Resets the device. On success it runs again with nothing in flight; otherwise it is given
    /// up.
    fn reset_now(&self) -> Result<()> {
        let mut held = self.core.lock();
        let word = self.state();
        if word.phase() == Phase::Gone {
            return Err(gone(self.name()));
        }
        let life = word.life();
        warn!(name: "reset", controller = self.name(), "the device is reset");
        self.set_state(life, Phase::Stopping);
        let mut failure = gone(self.name());
        for attempt in 1..=ATTEMPTS_MAX {
            let started = self.transport.reset(self.options.reset_timeout()).and_then(|()| {
                let life = life + u64::from(attempt);
                *held = None;
                self.set_state(life, Phase::Quiet);
                let facts = Facts::ask(&self.transport, self.name(), &self.options)?;
                if facts != self.facts {
                    let context = format!("{} is another device after a reset", self.name());
                    return Err(Error::new(ErrorKind::Io, context));
                }
                Ok((life, self.begin_life(life)?))
            });
            match started {
                Ok((life, core)) => {
                    *held = Some(core);
                    self.resets.fetch_add(1, Ordering::Relaxed);
                    self.changed(Change::Reset);
                    self.set_state(life, Phase::Running);
                    let (controller, resets) = (self.name(), self.resets.load(Ordering::Relaxed));
                    info!(name: "running", controller, resets, "the device runs");
                    return Ok(());
                }
                Err(error) => {
                    let controller = self.name();
                    warn!(name: "not_started", controller, attempt, %error, "the device did not start");
                    failure = error;
                }
            }
            if failure.kind() == ErrorKind::Gone {
                break;
            }
        }
        error!(name: "given_up", controller = self.name(), error = %failure, "the device is given up");
        self.give_up();
        Err(failure)
    }

    /// Gives the device up and closes its memory, so that it can access none.
    fn give_up(&self) {
        // A device that cannot be reset is reset as a function, or cut off from memory. For a
        // function that is gone the call has no effect.
        let _ = self.function.reset();
        self.maps.cut_off();
        self.set_state(self.state().life() + 1, Phase::Gone);
    }

    /// Queries all targets again, and reports the differences.
    fn find_targets(self: &Arc<Self>) -> Result<BTreeSet<u32>> {
        let found = probe::targets(self)?;
        let mut known = self.targets.lock();
        if self.has_missed.swap(false, Ordering::Relaxed) {
            known.difference(&found).for_each(|gone| self.changed(Change::Removed(*gone)));
            found.difference(&known).for_each(|new| self.changed(Change::Added(*new)));
        }
        known.clone_from(&found);
        Ok(found)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.state().phase() == Phase::Gone {
            return;
        }
        if self.transport.reset(self.options.reset_timeout()).is_err() {
            let _ = self.function.reset();
            self.maps.cut_off();
        }
    }
}

impl fmt::Debug for VirtioScsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtioScsi {}", self.0.name())
    }
}

impl Host for VirtioScsi {
    fn info(&self) -> &HostInfo {
        &self.0.info
    }

    fn scan(&self) -> Result<Vec<Target>> {
        self.0.look();
        let found = self.0.find_targets()?;
        let target = |number| Target { number, address: format!("virtio.{number}"), refused: None };
        Ok(found.into_iter().map(target).collect())
    }

    fn open_queue(&self, unit: Unit, options: &QueueOptions<'_>) -> Result<Box<dyn HostQueue>> {
        if options.sleeps {
            let context = format!("{} has no interrupts: its driver polls", self.0.name());
            return Err(Error::new(ErrorKind::Unsupported, context).hint("give wait=poll"));
        }
        let unit_number = unit.lun.number();
        let is_target = unit.target < u32::from(self.0.facts.targets);
        let (Some(number), true) = (unit_number, is_target) else {
            let context = format!("{} has no unit {unit:?}", self.0.name());
            return Err(Error::new(ErrorKind::NotFound, context));
        };
        Ok(Box::new(ScsiQueue::open(&self.0, unit.target as u8, number, options)?))
    }

    fn reset(&self) -> Result<()> {
        let inner = &self.0;
        if inner.is_resetting.swap(true, Ordering::AcqRel) {
            // Another reset is in progress, or about to begin: wait for its end.
            while inner.is_resetting.load(Ordering::Acquire) {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        } else {
            let done = inner.reset_now();
            inner.is_resetting.store(false, Ordering::Release);
            done?;
        }
        match inner.state().phase() {
            Phase::Gone => Err(gone(inner.name())),
            _ => Ok(()),
        }
    }

    fn resets(&self) -> u64 {
        self.0.resets.load(Ordering::Relaxed)
    }

    fn changes(&self) -> Vec<Change> {
        self.0.look();
        if self.0.has_missed.load(Ordering::Relaxed) {
            // If the device cannot be queried now, the next call queries it.
            let _ = self.0.find_targets();
        }
        std::mem::take(&mut *self.0.changes.lock())
    }
}
