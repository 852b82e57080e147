//! The machine that a store runs on: its devices, their power and the clock.

use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_block::time::SimClock;
use qpair_sim_block::{SimDevice, SimFaults, SimOptions, SimPower, TraceHash};

use qpair_engine::{Error, ErrorKind, LogPlace};

use super::hba::{Bench, Hba, Met};
use super::scenario::Scenario;

pub(crate) struct World {
    scenario: Scenario,
    pub(crate) clock: SimClock,
    pub(crate) power: SimPower,
    /// The members of the store, and then the log device if there is one.
    devices: Vec<SimDevice>,
    hba: Option<Hba>,
    rng: fastrand::Rng,
    /// Whether a thread that waits for several devices advances time by polling them.
    free_running: bool,
    /// A hash over the actions of these devices and of earlier ones.
    trace: TraceHash,
}

impl World {
    pub(crate) fn new(scenario: &Scenario, rng: fastrand::Rng) -> Result<Self, String> {
        let clock = SimClock::new();
        let power = SimPower::new(&clock);
        let scenario = scenario.clone();
        let (devices, trace) = (Vec::new(), TraceHash::default());
        let free_running = false;
        let hba = None;
        let mut world = Self { scenario, clock, power, devices, hba, rng, free_running, trace };
        world.replace()?;
        Ok(world)
    }

    pub(crate) fn on_hba(
        scenario: &Scenario,
        (mut rng, canary): (fastrand::Rng, Option<qpair_scsi::Canary>),
    ) -> Result<Self, String> {
        let clock = SimClock::new();
        let mut sizes_bytes = vec![scenario.size_bytes_max; scenario.members];
        sizes_bytes.extend(scenario.log_device_bytes_max);
        let has_cache = scenario.volatile_write_cache;
        let hba = Hba::new(&sizes_bytes, has_cache, &clock, (rng.fork(), canary))?;
        Ok(Self {
            power: SimPower::new(&clock),
            scenario: scenario.clone(),
            clock,
            devices: Vec::new(),
            hba: Some(hba),
            rng,
            free_running: false,
            trace: TraceHash::default(),
        })
    }

    fn plug(&mut self, contents: Vec<Vec<u8>>) -> Result<(), String> {
        self.power = SimPower::new(&self.clock);
        self.devices.clear();
        for (number, content) in contents.into_iter().enumerate() {
            let log_bytes_max =
                self.scenario.log_device_bytes_max.filter(|_| number == self.scenario.members);
            let options = SimOptions {
                name: match log_bytes_max {
                    None => format!("member {number}"),
                    Some(_) => "log device".to_owned(),
                },
                power: self.power.clone(),
                size_bytes_max: log_bytes_max.unwrap_or(self.scenario.size_bytes_max),
                volatile_write_cache: self.scenario.volatile_write_cache,
                memory_alignment_bytes: self.scenario.memory_alignment_bytes,
                free_running: self.free_running,
                ..SimOptions::new(self.rng.u64(..), &self.clock)
            };
            let device = SimDevice::over(options, content).map_err(|error| error.to_string())?;
            device.set_latency(self.scenario.latency);
            self.devices.push(device);
        }
        Ok(())
    }

    /// Makes another, empty device on the same clock.
    pub(crate) fn another(&mut self) -> Result<Self, String> {
        let scenario = Scenario { members: 1, size_bytes_max: 256 << 20, ..self.scenario.clone() };
        let mut rng = self.rng.fork();
        let mut other = Self {
            power: SimPower::new(&self.clock),
            clock: self.clock.clone(),
            devices: Vec::new(),
            hba: None,
            rng: rng.fork(),
            free_running: false,
            trace: TraceHash::default(),
            scenario,
        };
        other.replace()?;
        Ok(other)
    }

    /// Returns the number of requests that ended with an error.
    pub(crate) fn errors(&self) -> u64 {
        self.watch().count()
    }

    /// Restores the power if it was cut. The devices have the data that survived.
    pub(crate) fn power_on(&mut self) -> Result<(), String> {
        self.take_trace();
        if let Some(hba) = &mut self.hba {
            if self.power.is_cut() {
                hba.lose_power();
                self.power = SimPower::new(&self.clock);
            }
            return hba.begin(&self.power);
        }
        if !self.power.is_cut() {
            return Ok(());
        }
        self.plug(self.contents())
    }

    /// Returns the contents of the devices as reads see them.
    pub(crate) fn contents(&self) -> Vec<Vec<u8>> {
        self.devices.iter().map(SimDevice::content).collect()
    }

    fn take_trace(&mut self) {
        for device in &self.devices {
            self.trace.add(device.trace().value());
            self.trace.add(device.content_hash().value());
        }
        if let Some(hba) = &self.hba {
            self.trace.add(hba.trace());
        }
    }

    /// Makes the devices usable for threads that are not stepped and wait for several devices.
    /// Returns whether the devices were replaced by others with the same content.
    pub(crate) fn free_run(&mut self) -> Result<bool, String> {
        self.free_running =
            self.scenario.members > 1 || self.scenario.log_device_bytes_max.is_some();
        if self.free_running {
            self.change(|_, _| Vec::new())?;
        }
        Ok(self.free_running)
    }

    /// Cuts the power, changes the content of the members, and restores the power. Returns a
    /// description of the change.
    pub(crate) fn change(
        &mut self,
        change: impl FnOnce(&mut [Vec<u8>], &mut fastrand::Rng) -> Vec<String>,
    ) -> Result<Vec<String>, String> {
        self.power.cut();
        self.take_trace();
        let mut contents = self.contents();
        let done = change(&mut contents[..self.scenario.members], &mut self.rng);
        self.plug(contents).map(|()| done)
    }

    pub(crate) fn watch(&self) -> Watch {
        let mut watch = Watch {
            devices: self.devices.clone(),
            bench: self.hba.as_ref().map(Hba::bench),
            power: self.power.clone(),
            errors: 0,
            damaged: false,
            panics: false,
            is_small: self.scenario.is_small(),
        };
        watch.errors = watch.count();
        watch
    }

    pub(crate) fn replace(&mut self) -> Result<(), String> {
        self.take_trace();
        let mut contents = vec![vec![0; 1 << 20]; self.scenario.members];
        contents.extend(self.scenario.log_device_bytes_max.map(|_| vec![0; 64 << 10]));
        self.plug(contents)
    }

    /// Cuts the power at the `nth` write from now of a superblock or of a checkpoint's record.
    pub(crate) fn cut_at_record(&self, nth: u64) {
        // Both are at the beginning of a member (docs/design/page-format.md).
        let end = (64 << 10) + 2 * self.scenario.page_size as u64;
        self.power.cut_at_write_below(end, nth);
    }

    pub(crate) fn set_faults(&self, faults: SimFaults) {
        self.devices.iter().for_each(|device| device.set_faults(faults));
    }

    /// Enables or disables faults behind the HBA, if there is one.
    pub(crate) fn trouble(&self, comes: bool) {
        if let Some(hba) = &self.hba {
            hba.trouble(comes);
        }
    }

    pub(crate) fn met(&self) -> Met {
        self.hba.as_ref().map_or(Met::default(), Hba::met)
    }

    /// Returns an error if the driver of the HBA did something that no driver may do.
    pub(crate) fn judge(&self) -> Result<(), String> {
        self.hba.as_ref().map_or(Ok(()), Hba::judge)
    }

    pub(crate) fn members(&self) -> Vec<Arc<dyn BlockDevice>> {
        if let Some(hba) = &self.hba {
            return hba.disks().iter().take(self.scenario.members).cloned().collect();
        }
        let members = self.devices.iter().take(self.scenario.members);
        members.map(|device| Arc::new(device.clone()) as Arc<dyn BlockDevice>).collect()
    }

    /// Returns the member as another process opens it. Returns `None` where a thread that reads
    /// beside the workers would wait for several devices, or for an HBA, in real time.
    pub(crate) fn members_again(&self) -> Option<Vec<Arc<dyn BlockDevice>>> {
        let device = self.devices.first().filter(|_| self.scenario.members == 1)?;
        Some(vec![Arc::new(device.opened_again())])
    }

    pub(crate) fn log_place(&self) -> LogPlace {
        if let Some(log) = self.hba.as_ref().and_then(|hba| hba.disks().get(self.scenario.members))
        {
            return LogPlace::Device(log.clone());
        }
        match self.devices.get(self.scenario.members) {
            Some(device) => LogPlace::Device(Arc::new(device.clone())),
            None => LogPlace::Unsaid,
        }
    }

    /// Returns a hash over all actions of the devices.
    pub(crate) fn trace(&mut self) -> u64 {
        self.take_trace();
        self.trace.value()
    }
}

/// Knows whether devices have failed since this watch was made.
#[derive(Clone)]
pub(crate) struct Watch {
    devices: Vec<SimDevice>,
    bench: Option<Arc<Bench>>,
    power: SimPower,
    errors: u64,
    /// Whether the devices may be full.
    is_small: bool,
    /// Whether the data on the devices is being damaged.
    pub(crate) damaged: bool,
    /// Whether a panic of the engine is planted.
    pub(crate) panics: bool,
}

impl Watch {
    pub(crate) fn has_failed(&self) -> bool {
        self.power.is_cut() || self.count() > self.errors || self.has_lost()
    }

    /// Whether a disk has lost unflushed data under a store that continues to run and finds its own
    /// pages missing.
    fn has_lost(&self) -> bool {
        self.bench.as_ref().is_some_and(|bench| bench.has_lost())
    }

    fn count(&self) -> u64 {
        let errors: u64 = self.devices.iter().map(SimDevice::errors).sum();
        errors + self.bench.as_ref().map_or(0, |bench| bench.errors())
    }

    /// Whether the events of the devices explain an error of the store.
    pub(crate) fn excuses(&self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::NoSpace => self.is_small || self.power.is_cut(),
            ErrorKind::Io => self.has_failed(),
            // A disk refused a command for the whole time that the command had.
            ErrorKind::Busy => self.bench.is_some() && self.has_failed(),
            // The store is read-only because a write failed. A full device does not fail writes.
            // After a panic, data that was read and is not durable may be lost.
            ErrorKind::ReadOnly => self.has_failed() || self.damaged || self.panics,
            ErrorKind::Corrupt => self.damaged || self.has_lost(),
            // A caller that waits for a task that panicked gets this error.
            ErrorKind::Panicked | ErrorKind::Closed => self.panics,
            _ => false,
        }
    }
}
