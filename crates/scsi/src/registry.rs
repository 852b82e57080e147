//! A program's drivers and devices: each driver gets the devices that it takes, whichever of the
//! two is added last.
//!
//! The type of a device (`D`) is that of the bus: this crate knows no bus.

use std::fmt;
use std::sync::Arc;

use qpair_block::Result;

use crate::host::Host;

/// A low-level driver, as far as choosing it for a device is concerned.
pub trait Driver<D>: Send + Sync {
    /// Returns the driver's name in one word: `mpt3sas`.
    fn name(&self) -> &str;

    /// Whether a device is of a kind that the driver drives. Only looks, and changes nothing.
    fn takes(&self, device: &D) -> bool;

    /// Opens a device.
    ///
    /// # Errors
    /// The errors of the driver and of the device.
    fn open(&self, device: D) -> Result<Arc<dyn Host>>;
}

/// The drivers of a program, and the devices that no driver takes.
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
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a driver. Returns the result of opening each device that waited for it.
    pub fn add_driver(&mut self, driver: impl Driver<D> + 'static) -> Vec<Result<Arc<dyn Host>>> {
        let all = std::mem::take(&mut self.waiting);
        let (its, others): (Vec<D>, Vec<D>) = all.into_iter().partition(|it| driver.takes(it));
        self.waiting = others;
        let opened = its.into_iter().map(|device| driver.open(device)).collect();
        self.drivers.push(Box::new(driver));
        opened
    }

    /// Adds a device, and opens it by the first driver that takes it. Returns the result, or `None`
    /// if the device waits for a driver.
    pub fn add_device(&mut self, device: D) -> Option<Result<Arc<dyn Host>>> {
        if let Some(driver) = self.drivers.iter().find(|driver| driver.takes(&device)) {
            return Some(driver.open(device));
        }
        self.waiting.push(device);
        None
    }

    pub fn drivers(&self) -> impl Iterator<Item = &str> {
        self.drivers.iter().map(|driver| driver.name())
    }

    /// Returns the devices that no driver takes.
    #[must_use]
    pub fn waiting(&self) -> &[D] {
        &self.waiting
    }

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
