//! Drivers and devices, as a program has them: each driver gets the devices that it takes, whichever of the two comes last.
//!
//! A device is whatever a bus has (`D`): this crate knows no bus.

use std::fmt;
use std::sync::Arc;

use qpair_block::Result;

use crate::host::Host;

/// A low-level driver, as far as it is chosen for a device.
pub trait Driver<D>: Send + Sync {
    /// Its name, in one word: `mpt3sas`.
    fn name(&self) -> &str;

    /// Whether a device is of the kind that it drives. It looks, and changes nothing.
    fn takes(&self, device: &D) -> bool;

    /// Takes a device over.
    ///
    /// # Errors
    /// What the driver and the device say.
    fn open(&self, device: D) -> Result<Arc<dyn Host>>;
}

/// The drivers of a program, and the devices that none of them takes.
pub struct Registry<D> {
    drivers: Vec<Box<dyn Driver<D>>>,
    waiting: Vec<D>,
}

impl<D> Default for Registry<D> {
    fn default() -> Self {
        Self { drivers: Vec::new(), waiting: Vec::new() }
    }
}

impl<D> Registry<D> {
    /// With no drivers and no devices.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a driver: what became of each device that waited for it.
    pub fn add_driver(&mut self, driver: impl Driver<D> + 'static) -> Vec<Result<Arc<dyn Host>>> {
        let all = std::mem::take(&mut self.waiting);
        let (its, others): (Vec<D>, Vec<D>) = all.into_iter().partition(|it| driver.takes(it));
        self.waiting = others;
        let opened = its.into_iter().map(|device| driver.open(device)).collect();
        self.drivers.push(Box::new(driver));
        opened
    }

    /// Adds a device: what became of it by the first driver that takes it. `None`: it waits for one.
    pub fn add_device(&mut self, device: D) -> Option<Result<Arc<dyn Host>>> {
        if let Some(driver) = self.drivers.iter().find(|driver| driver.takes(&device)) {
            return Some(driver.open(device));
        }
        self.waiting.push(device);
        None
    }

    /// Names of the drivers.
    pub fn drivers(&self) -> impl Iterator<Item = &str> {
        self.drivers.iter().map(|driver| driver.name())
    }

    /// Devices that no driver takes.
    #[must_use]
    pub fn waiting(&self) -> &[D] {
        &self.waiting
    }

    /// Forgets the devices that no driver takes.
    pub fn forget_waiting(&mut self) {
        self.waiting.clear();
    }
}

impl<D> fmt::Debug for Registry<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let drivers: Vec<&str> = self.drivers().collect();
        write!(f, "Registry of {drivers:?}, {} devices wait", self.waiting.len())
    }
}
