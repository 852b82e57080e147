//! The controller's core: registers, the admin queue, and the steps of a reset. One lock guards it,
//! and no thread waits with the lock held.
//!
//! Invariants:
//! - Only [`Core::advance`] advances a reset, in short steps, on any thread that calls it.
//! - The state becomes `Quiet` or `Gone` only when the controller can no longer access memory: it
//!   reported that it is not ready (CSTS.RDY = 0), the function was reset, or all memory was closed
//!   to it.
//! - The state becomes `Running` only when the admin queue answers.
//!
//! Long, because a reset is one state machine, and all its steps run under one lock.

use qpair_memory::locks::Mutex;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result};
use qpair_nvme_wire::command::{admin, feature};
use qpair_nvme_wire::registers::{
    ACQ, AQA, ASQ, CC, CC_ENABLE, CC_RUN, CC_SHUTDOWN_MASK, CC_SHUTDOWN_NORMAL, CSTS, CSTS_FATAL,
    CSTS_READY, CSTS_SHUTDOWN_COMPLETE, CSTS_SHUTDOWN_MASK,
};
use qpair_nvme_wire::{Command, IDENTIFY_BYTES, NSID_ALL};
use qpair_pci::{Maps, PciFunction, QueueMemory, Step, TimeoutPolicy, command};
use tracing::{error, info, warn};

use crate::admin::{self as admin_queue, AdminQueue, Outcome, Ticket};
use crate::registers::{Doorbells, Registers, Shadow, gone};
use crate::rings::Rings;
use crate::state::{Phase, State, Word};

/// The number of consecutive resets that may fail before the driver gives the controller up.
const ATTEMPTS_MAX: u32 = 3;
/// The maximum number of event requests that the controller holds.
const EVENT_REQUESTS_MAX: u8 = 4;
/// The bytes of a log page to read, at most a page of memory.
const LOG_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug)]
enum Recovery {
    None,
    /// The controller was told to stop, and has until this time.
    Disabling(Instant),
    /// The controller was told to start, and has until this time.
    Enabling(Instant),
    /// The controller was asked for queues.
    Configuring(Ticket),
    /// The controller was told the addresses of the shadow doorbells.
    Shadowing(Ticket),
}

pub(crate) struct Core {
    function: Arc<dyn PciFunction>,
    registers: Registers,
    stepper: Option<Arc<dyn Step>>,
    maps: Arc<Maps>,
    state: Arc<State>,
    admin: AdminQueue,
    recovery: Recovery,
    attempts: u32,
    /// The number of resets begun, not counting the first start.
    resets: u64,
    events: u64,
    /// Whether memory could not be closed when the controller was given up.
    is_runaway: bool,
    failure: Option<(ErrorKind, String)>,
    ready_timeout: Duration,
    timeout: Duration,
    timeout_policy: TimeoutPolicy,
    queues_asked: u16,
    queues_granted: u16,
    /// The queue numbers that no channel has; the last one is taken next.
    free_queues: Vec<u16>,
    queues_known: bool,
    event_requests: u8,
    event_mask: u32,
    /// The shadow doorbells, whose addresses the controller gets after each reset.
    shadow: Option<Arc<Shadow>>,
}

pub(crate) struct CoreOptions {
    pub(crate) ready_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) queues: u16,
    pub(crate) timeout_policy: TimeoutPolicy,
}

impl Core {
    /// Creates a core whose controller must still be stopped and started, which [`Core::advance`]
    /// does.
    pub(crate) fn new(
        function: Arc<dyn PciFunction>,
        maps: Arc<Maps>,
        state: Arc<State>,
        doorbells: &Doorbells,
        options: &CoreOptions,
    ) -> Result<Self> {
        // One page for answers, and one for logs of events.
        let bytes = Rings::bytes_of(admin_queue::ENTRIES) + IDENTIFY_BYTES + LOG_BYTES;
        let memory = QueueMemory::new(&maps, bytes)?;
        let rings = Rings::new(memory, doorbells.of(0), admin_queue::ENTRIES);
        let mut core = Self {
            registers: Registers::new(function.clone()),
            stepper: function.stepper(),
            function,
            maps,
            state,
            admin: AdminQueue::new(rings),
            recovery: Recovery::None,
            attempts: 0,
            resets: 0,
            events: 0,
            is_runaway: false,
            failure: None,
            ready_timeout: options.ready_timeout,
            timeout: options.timeout,
            timeout_policy: options.timeout_policy.clone(),
            queues_asked: options.queues,
            queues_granted: 0,
            free_queues: Vec::new(),
            queues_known: false,
            event_requests: 0,
            event_mask: 0,
            shadow: None,
        };
        core.disable();
        Ok(core)
    }

    pub(crate) fn state(&self) -> Word {
        self.state.get()
    }

    pub(crate) fn resets(&self) -> u64 {
        self.resets
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Whether the controller was given up and may still access memory.
    pub(crate) fn is_runaway(&self) -> bool {
        self.is_runaway
    }

    pub(crate) fn failure(&self) -> Error {
        match &self.failure {
            Some((kind, why)) => Error::new(*kind, format!("{}: {why}", self.function.name())),
            None => gone(self.function.name()),
        }
    }

    pub(crate) fn queues_granted(&self) -> u16 {
        self.queues_granted
    }

    pub(crate) fn take_queue(&mut self) -> Option<u16> {
        self.free_queues.pop()
    }

    pub(crate) fn return_queue(&mut self, queue: u16) {
        self.free_queues.push(queue);
    }

    /// Sends an admin command, if the controller is running and there is room.
    pub(crate) fn submit(&mut self, command: Command) -> Option<Ticket> {
        match self.state().phase() {
            Phase::Running => self.admin.submit(command, self.timeout),
            Phase::Stopping | Phase::Quiet | Phase::Gone => None,
        }
    }

    /// Sends an admin command as [`Core::submit`] does, if the controller's state is still `word`.
    pub(crate) fn submit_in(&mut self, word: Word, command: Command) -> Option<Ticket> {
        (self.state() == word).then(|| self.submit(command)).flatten()
    }

    /// Asks the controller to abort a command, if fewer than `limit` such requests are in flight.
    pub(crate) fn abort(&mut self, word: Word, queue: u16, cid: u16, limit: u8) -> bool {
        self.state() == word
            && word.phase() == Phase::Running
            && self.admin.aborts() < u32::from(limit)
            && self.admin.submit_abort(Command::abort(queue, cid), self.timeout)
    }

    pub(crate) fn fetch(&mut self, ticket: Ticket) -> Option<Outcome> {
        self.admin.fetch(ticket)
    }

    /// Returns the address for the device of the page with the data of admin commands.
    pub(crate) fn data_iova(&mut self) -> u64 {
        self.admin.rings().submission_iova() + Rings::bytes_of(admin_queue::ENTRIES) as u64
    }

    /// Clears the data page, so that it then has only bytes that the controller wrote.
    pub(crate) fn clear_data(&mut self) {
        let at = Rings::bytes_of(admin_queue::ENTRIES);
        self.admin.rings().memory().bytes().zero(at, IDENTIFY_BYTES);
    }

    pub(crate) fn data(&mut self) -> [u8; IDENTIFY_BYTES] {
        let mut data = [0; IDENTIFY_BYTES];
        let at = Rings::bytes_of(admin_queue::ENTRIES);
        self.admin.rings().memory().bytes().copy_to(at, &mut data);
        data
    }

    /// Keeps `requests` asynchronous event requests at the controller from now on, for the events
    /// in `mask`.
    pub(crate) fn arm_events(&mut self, requests: u8, mask: u32) {
        self.event_requests = requests.min(EVENT_REQUESTS_MAX);
        self.event_mask = mask;
        self.send_event_requests();
    }

    /// Stores the shadow doorbells that the controller uses, so that it gets their addresses again
    /// after a reset.
    pub(crate) fn keep_shadow(&mut self, shadow: Arc<Shadow>) {
        self.shadow = Some(shadow);
    }

    fn send_event_requests(&mut self) {
        if self.event_requests == 0 {
            return;
        }
        // A controller without this feature chooses itself which events it sends.
        let configure = Command::set_features(feature::ASYNC_EVENT, self.event_mask);
        self.admin.submit_unowned(configure, self.timeout);
        for _ in 0..self.event_requests {
            self.admin.submit_event_request(Command::new(admin::ASYNC_EVENT_REQUEST, 0));
        }
    }

    /// Stops the controller and starts it again, unless a reset is in progress.
    pub(crate) fn reset(&mut self, why: &str) {
        if matches!(self.recovery, Recovery::None) && self.state().phase() == Phase::Running {
            self.resets += 1;
            let controller = self.function.name();
            warn!(name: "reset", controller, error = why, "the controller is reset");
            self.failure = Some((ErrorKind::Io, why.to_owned()));
            self.disable();
        }
    }

    fn disable(&mut self) {
        if self.state().phase() == Phase::Running {
            self.state.set(Word::new(self.state().life(), Phase::Stopping));
        }
        let stopped =
            self.function.change_command(command::MEMORY | command::BUS_MASTER, 0).and_then(|()| {
                let cc = self.registers.read_u32(CC)?;
                self.registers.write_u32(CC, cc & !(CC_ENABLE | CC_SHUTDOWN_MASK))
            });
        match stopped {
            Ok(()) => self.recovery = Recovery::Disabling(Instant::now() + self.ready_timeout),
            Err(error) => self.give_up(error.kind(), &error.to_string()),
        }
    }

    /// Ends all commands, because the controller can no longer access memory.
    fn is_quiet(&mut self) {
        self.admin.lose_all();
        self.state.set(Word::new(self.state().life(), Phase::Quiet));
        let entries = admin_queue::ENTRIES - 1;
        let (submission, completion) =
            (self.admin.rings().submission_iova(), self.admin.rings().completion_iova());
        let registers = &self.registers;
        let enabled = self
            .function
            .change_command(command::MEMORY | command::BUS_MASTER, 0)
            .and_then(|()| registers.write_u32(AQA, entries | entries << 16))
            .and_then(|()| registers.write_u64(ASQ, submission))
            .and_then(|()| registers.write_u64(ACQ, completion))
            .and_then(|()| registers.write_u32(CC, CC_RUN));
        match enabled {
            Ok(()) => self.recovery = Recovery::Enabling(Instant::now() + self.ready_timeout),
            Err(error) => self.give_up(error.kind(), &error.to_string()),
        }
    }

    /// Gives the controller up if the timeout policy ends the wait that began at `start`.
    pub(crate) fn check_timeout_policy(&mut self, to: &str, start: Instant, at_most: Duration) {
        let is_over = || self.timeout_policy.is_over(self.function.name(), to, start, at_most);
        if self.state().phase() != Phase::Gone && is_over() {
            let why = format!("the wait for {to} was interrupted");
            self.give_up(ErrorKind::Interrupted, &why);
        }
    }

    fn settle_max(&self) -> Duration {
        self.ready_timeout.saturating_mul(2 * ATTEMPTS_MAX)
    }

    /// Makes sure that the controller can no longer access memory, and ends its last incarnation.
    fn give_up(&mut self, kind: ErrorKind, why: &str) {
        error!(name: "given_up", controller = self.function.name(), error = why, "the controller is given up");
        // A controller that is gone cannot be written to, so an error is ignored.
        let _ = self.function.change_command(0, command::BUS_MASTER);
        self.is_runaway = !self.maps.cut_off();
        self.recovery = Recovery::None;
        self.failure = Some((kind, why.to_owned()));
        self.admin.lose_all();
        self.state.set(Word::new(self.state().life(), Phase::Gone));
    }

    pub(crate) fn check_status(&mut self) {
        if self.state().phase() != Phase::Running {
            return;
        }
        match self.registers.read_u32(CSTS) {
            Ok(csts) if csts & CSTS_FATAL != 0 => self.reset("it reported a fatal error"),
            Ok(csts) if csts & CSTS_READY == 0 => self.reset("it stopped by itself"),
            Ok(_) => {}
            Err(error) => self.give_up(error.kind(), &error.to_string()),
        }
    }

    /// Does all work that is possible now, without waiting. Returns whether to call again at once.
    pub(crate) fn advance(&mut self) -> bool {
        let progress = self.stepper.as_ref().is_some_and(|stepper| stepper.step(0).progress);
        match self.recovery {
            Recovery::None => self.tend(),
            Recovery::Disabling(until) => match self.registers.read_u32(CSTS) {
                Err(error) => self.give_up(error.kind(), &error.to_string()),
                Ok(csts) if csts & CSTS_READY == 0 => self.is_quiet(),
                Ok(_) if Instant::now() < until => {}
                Ok(_) => self.reset_function(),
            },
            Recovery::Enabling(until) => match self.registers.read_u32(CSTS) {
                Err(error) => self.give_up(error.kind(), &error.to_string()),
                Ok(csts) if csts & CSTS_FATAL != 0 => self.try_again("it reported a fatal error"),
                Ok(csts) if csts & CSTS_READY != 0 => self.configure(),
                Ok(_) if Instant::now() < until => {}
                Ok(_) => {
                    let why = format!("it did not become ready in {:?}", self.ready_timeout);
                    self.try_again(&why);
                }
            },
            Recovery::Configuring(ticket) | Recovery::Shadowing(ticket) => {
                self.admin.poll();
                let is_shadowing = matches!(self.recovery, Recovery::Shadowing(_));
                match self.admin.fetch(ticket) {
                    Some(outcome) if is_shadowing => self.shadowed(outcome),
                    Some(outcome) => self.configured(outcome),
                    None if self.admin.is_overdue(Instant::now()) => {
                        let why = format!("its admin queue did not answer in {:?}", self.timeout);
                        self.try_again(&why);
                    }
                    None => {}
                }
            }
        }
        progress
    }

    fn tend(&mut self) {
        if self.state().phase() != Phase::Running {
            return;
        }
        self.admin.poll();
        while let Some(event) = self.admin.next_event() {
            self.acknowledge(event);
        }
        for _ in 0..self.admin.take_ended_event_requests() {
            self.admin.submit_event_request(Command::new(admin::ASYNC_EVENT_REQUEST, 0));
        }
        if self.admin.is_overdue(Instant::now()) {
            self.check_status();
            let why = format!("an admin command took longer than {:?}", self.timeout);
            self.reset(&why);
        }
    }

    /// Reads the log page of an event. Until then the controller reports no more events of that
    /// kind (Base §5.2).
    fn acknowledge(&mut self, event: u32) {
        let log = event >> 16 & 0xFF;
        let mut command = Command::new(admin::GET_LOG_PAGE, NSID_ALL);
        command.set_prps(self.data_iova() + IDENTIFY_BYTES as u64, 0);
        command.0[10] = log | (LOG_BYTES as u32 / 4 - 1) << 16;
        self.admin.submit_unowned(command, self.timeout);
        self.events += 1;
        let controller = self.function.name();
        let (kind, information) = (event & 7, event >> 8 & 0xFF);
        info!(name: "told", controller, kind, information, log, "the controller tells of an event");
    }

    /// Resets the function, because the controller does not stop when it should.
    fn reset_function(&mut self) {
        let controller = self.function.name();
        warn!(name: "function_reset", controller, "it does not stop: its function is reset");
        match self.function.reset() {
            Ok(()) => self.is_quiet(),
            Err(error) => {
                let why = format!(
                    "it did not stop in {:?}, and its function cannot be reset: {error}",
                    self.ready_timeout
                );
                self.give_up(ErrorKind::Io, &why);
            }
        }
    }

    /// Handles a failed start: retries, or gives the controller up.
    fn try_again(&mut self, why: &str) {
        self.attempts += 1;
        let (controller, attempt) = (self.function.name(), self.attempts);
        warn!(name: "not_started", controller, attempt, error = why, "the controller did not start");
        if self.attempts >= ATTEMPTS_MAX {
            // The controller may have access to memory by now.
            let why = why.to_owned();
            self.give_up(ErrorKind::Io, &why);
        } else {
            self.disable();
        }
    }

    fn configure(&mut self) {
        // Both counts are 0-based.
        let count = u32::from(self.queues_asked.max(1)) - 1;
        let command = Command::set_features(feature::NUMBER_OF_QUEUES, count | count << 16);
        match self.admin.submit(command, self.timeout) {
            Some(ticket) => self.recovery = Recovery::Configuring(ticket),
            None => self.try_again("its admin queue is full"),
        }
    }

    fn configured(&mut self, outcome: Outcome) {
        let granted = match outcome {
            Outcome::Done(counts) => {
                (counts & 0xFFFF).min(counts >> 16).saturating_add(1).min(self.queues_asked.into())
            }
            Outcome::Failed(status) => {
                let why = format!("it grants no I/O queues: {status:?}");
                return self.give_up(ErrorKind::Io, &why);
            }
            Outcome::Lost => return self.try_again("it lost a command"),
        };
        self.queues_granted = granted as u16;
        if !self.queues_known {
            self.queues_known = true;
            self.free_queues = (1..=self.queues_granted).rev().collect();
        }
        let Some(shadow) = &self.shadow else { return self.run() };
        let (shadows, events) = shadow.iovas();
        match self.admin.submit(Command::doorbell_buffers(shadows, events), self.timeout) {
            Some(ticket) => self.recovery = Recovery::Shadowing(ticket),
            None => self.try_again("its admin queue is full"),
        }
    }

    /// Handles the answer to the command with the shadow doorbells' addresses. Channels ring no
    /// other doorbells, so the reset fails without them.
    fn shadowed(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done(_) => self.run(),
            Outcome::Failed(status) => {
                self.try_again(&format!("it takes no shadow doorbells any more: {status:?}"));
            }
            Outcome::Lost => self.try_again("it lost a command"),
        }
    }

    /// Declares the controller running: channels can create their queues.
    fn run(&mut self) {
        let (controller, queues) = (self.function.name(), self.queues_granted);
        info!(name: "running", controller, queues, resets = self.resets, "the controller runs");
        self.attempts = 0;
        self.failure = None;
        self.recovery = Recovery::None;
        self.send_event_requests();
        self.state.set(Word::new(self.state().life() + 1, Phase::Running));
    }

    /// Notifies the controller that it will not be used any more, and waits until it has shut down
    /// (Base §3.6.1).
    fn shut_down(&mut self) -> Result<()> {
        let start = Instant::now();
        let until = start + self.ready_timeout.min(Duration::from_secs(10));
        let cc = self.registers.read_u32(CC)?;
        self.registers.write_u32(CC, cc & !CC_SHUTDOWN_MASK | CC_SHUTDOWN_NORMAL)?;
        while self.registers.read_u32(CSTS)? & CSTS_SHUTDOWN_MASK != CSTS_SHUTDOWN_COMPLETE
            && Instant::now() < until
            && !self.timeout_policy.is_over(
                self.function.name(),
                "to shut down",
                start,
                self.ready_timeout,
            )
        {
            self.pause();
        }
        self.stop()
    }

    /// Disables the controller and waits until it has stopped.
    fn stop(&mut self) -> Result<()> {
        let start = Instant::now();
        let until = start + self.ready_timeout;
        let cc = self.registers.read_u32(CC)?;
        self.registers.write_u32(CC, cc & !CC_ENABLE)?;
        while self.registers.read_u32(CSTS)? & CSTS_READY != 0 {
            let name = self.function.name();
            if Instant::now() >= until
                || self.timeout_policy.is_over(name, "to stop", start, self.ready_timeout)
            {
                return self.function.reset();
            }
            self.pause();
        }
        Ok(())
    }

    fn pause(&self) {
        if let Some(stepper) = &self.stepper {
            stepper.step(0);
        }
        std::thread::sleep(PAUSE);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let stopped = match self.state().phase() {
            Phase::Gone => return,
            Phase::Running => self.shut_down(),
            Phase::Stopping | Phase::Quiet => self.stop(),
        };
        if stopped.is_err() {
            self.maps.cut_off();
        }
        let _ = self.function.change_command(0, command::BUS_MASTER);
    }
}

/// The pause between two checks of a controller that is not ready yet.
const PAUSE: Duration = Duration::from_micros(50);

/// The core behind its lock, and the state that channels read without the lock.
pub(crate) struct Hub {
    core: Mutex<Core>,
    state: Arc<State>,
    is_stepped: bool,
}

impl Hub {
    pub(crate) fn start(core: Core) -> Result<Self> {
        let hub = Self {
            state: core.state.clone(),
            is_stepped: core.stepper.is_some(),
            core: Mutex::new(core),
        };
        hub.settle()?;
        Ok(hub)
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> Word {
        self.state.get()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Core>> {
        self.core.try_lock()
    }

    /// Pauses, unless a controller without its own processor must be stepped.
    pub(crate) fn pause(&self) {
        if self.is_stepped {
            std::thread::yield_now();
        } else {
            std::thread::sleep(PAUSE);
        }
    }

    pub(crate) fn settle(&self) -> Result<Word> {
        let start = Instant::now();
        loop {
            let mut core = self.lock();
            let at_most = core.settle_max();
            core.check_timeout_policy("to become ready", start, at_most);
            let state = core.state();
            match state.phase() {
                Phase::Running => return Ok(state),
                Phase::Gone => return Err(core.failure()),
                Phase::Stopping | Phase::Quiet => {}
            }
            let progress = core.advance();
            drop(core);
            if !progress {
                self.pause();
            }
        }
    }

    /// Executes an admin command to its end, and then calls a function on the core.
    pub(crate) fn call<T>(
        &self,
        command: impl Fn(&mut Core) -> Command,
        then: impl FnOnce(&mut Core, Outcome) -> T,
    ) -> Result<T> {
        let mut ticket = None;
        let start = Instant::now();
        loop {
            let mut core = self.lock();
            let at_most = core.timeout;
            core.check_timeout_policy("to answer", start, at_most);
            if core.state().phase() == Phase::Gone {
                return Err(core.failure());
            }
            if ticket.is_none() {
                let command = command(&mut core);
                ticket = core.submit(command);
            }
            let progress = core.advance();
            if let Some(outcome) = ticket.and_then(|ticket| core.fetch(ticket)) {
                return Ok(then(&mut core, outcome));
            }
            drop(core);
            if !progress {
                self.pause();
            }
        }
    }
}
