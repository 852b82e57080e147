//! The machine that a store lives on: its devices, their power, the clock.

use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_block::sim::{SimClock, SimDevice, SimFaults, SimOptions, SimPower, TraceHash};

use qpair_engine::{Error, ErrorKind, LogPlace};

use super::scenario::Scenario;

pub(crate) struct World {
    scenario: Scenario,
    pub(crate) clock: SimClock,
    pub(crate) power: SimPower,
    /// The members of the store, and then the log device if there is one.
    devices: Vec<SimDevice>,
    rng: fastrand::Rng,
    /// Whoever waits for several devices lets time pass by looking at them.
    free_running: bool,
    /// Over what the devices did, and those before them.
    trace: TraceHash,
}

impl World {
    pub(crate) fn new(scenario: &Scenario, rng: fastrand::Rng) -> Result<Self, String> {
        let clock = SimClock::new();
        let power = SimPower::new(&clock);
        let scenario = scenario.clone();
        let (devices, trace) = (Vec::new(), TraceHash::default());
        let free_running = false;
        let mut world = Self { scenario, clock, power, devices, rng, free_running, trace };
        world.replace()?;
        Ok(world)
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
                free_running: self.free_running,
                ..SimOptions::new(self.rng.u64(..), &self.clock)
            };
            let device = SimDevice::over(options, content).map_err(|error| error.to_string())?;
            device.set_latency(self.scenario.latency);
            self.devices.push(device);
        }
        Ok(())
    }

    /// Another device, an empty one, on the same clock.
    pub(crate) fn another(&mut self) -> Result<Self, String> {
        let scenario = Scenario { members: 1, size_bytes_max: 256 << 20, ..self.scenario.clone() };
        let mut rng = self.rng.fork();
        let mut other = Self {
            power: SimPower::new(&self.clock),
            clock: self.clock.clone(),
            devices: Vec::new(),
            rng: rng.fork(),
            free_running: false,
            trace: TraceHash::default(),
            scenario,
        };
        other.replace()?;
        Ok(other)
    }

    /// Requests that ended with an error.
    pub(crate) fn errors(&self) -> u64 {
        self.devices.iter().map(SimDevice::errors).sum()
    }

    /// Power comes back, if it was cut: the devices have what survived.
    pub(crate) fn power_on(&mut self) -> Result<(), String> {
        self.take_trace();
        if !self.power.is_cut() {
            return Ok(());
        }
        self.plug(self.contents())
    }

    /// What reads of the devices see.
    pub(crate) fn contents(&self) -> Vec<Vec<u8>> {
        self.devices.iter().map(SimDevice::content).collect()
    }

    fn take_trace(&mut self) {
        for device in &self.devices {
            self.trace.add(device.trace().value());
            self.trace.add(device.content_hash().value());
        }
    }

    /// From here on devices are also for those who are not stepped, and wait for several of them; whether they were replaced for
    /// that, by others with the same content.
    pub(crate) fn free_run(&mut self) -> Result<bool, String> {
        self.free_running =
            self.scenario.members > 1 || self.scenario.log_device_bytes_max.is_some();
        if self.free_running {
            self.change(|_, _| Vec::new())?;
        }
        Ok(self.free_running)
    }

    /// Power goes, and comes back with what the members hold changed meanwhile; what was done.
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

    /// Begins to watch the devices.
    pub(crate) fn watch(&self) -> Watch {
        Watch {
            devices: self.devices.clone(),
            power: self.power.clone(),
            errors: self.errors(),
            damaged: false,
            panics: false,
            is_small: self.scenario.is_small(),
        }
    }

    /// Replaces the devices by empty ones.
    pub(crate) fn replace(&mut self) -> Result<(), String> {
        self.take_trace();
        let mut contents = vec![vec![0; 1 << 20]; self.scenario.members];
        contents.extend(self.scenario.log_device_bytes_max.map(|_| vec![0; 64 << 10]));
        self.plug(contents)
    }

    /// Cuts the power at the `nth` write from now of a label or of a checkpoint's record.
    pub(crate) fn cut_at_record(&self, nth: u64) {
        // Both are at the beginning (docs/design/page-format.md).
        let end = (64 << 10) + 2 * self.scenario.page_size as u64;
        self.power.cut_at_write_below(end, nth);
    }

    pub(crate) fn set_faults(&self, faults: SimFaults) {
        self.devices.iter().for_each(|device| device.set_faults(faults));
    }

    pub(crate) fn members(&self) -> Vec<Arc<dyn BlockDevice>> {
        let members = self.devices.iter().take(self.scenario.members);
        members.map(|device| Arc::new(device.clone()) as Arc<dyn BlockDevice>).collect()
    }

    /// Where the store has its log.
    pub(crate) fn log_place(&self) -> LogPlace {
        match self.devices.get(self.scenario.members) {
            Some(device) => LogPlace::Device(Arc::new(device.clone())),
            None => LogPlace::Unsaid,
        }
    }

    /// A hash over all that the devices did.
    pub(crate) fn trace(&mut self) -> u64 {
        self.take_trace();
        self.trace.value()
    }
}

/// Knows whether devices have failed since it was made.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    devices: Vec<SimDevice>,
    power: SimPower,
    errors: u64,
    /// The devices may be full.
    is_small: bool,
    /// What is on the devices is being damaged.
    pub(crate) damaged: bool,
    /// A panic of the engine is planted.
    pub(crate) panics: bool,
}

impl Watch {
    /// Whether a device has failed, or the power was cut.
    pub(crate) fn has_failed(&self) -> bool {
        let errors: u64 = self.devices.iter().map(SimDevice::errors).sum();
        self.power.is_cut() || errors > self.errors
    }

    /// Whether what happened to the devices explains an error of the store.
    pub(crate) fn excuses(&self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::NoSpace => self.is_small || self.power.is_cut(),
            ErrorKind::Io => self.has_failed(),
            // Read-only since a write failed; a device that is full fails none. After a panic what was read and is not durable may be lost.
            ErrorKind::ReadOnly => self.has_failed() || self.damaged || self.panics,
            ErrorKind::Corrupt => self.damaged,
            // Whoever waited for a task that panicked is told that it is gone.
            ErrorKind::Panicked | ErrorKind::Closed => self.panics,
            _ => false,
        }
    }
}
