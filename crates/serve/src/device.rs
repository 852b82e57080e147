//! The interface between a session and the kinds of devices.

use std::fmt;
use std::sync::Arc;

use qpair_block::Result;

use crate::queue::GuestRing;
use crate::unit::Unit;

/// A virtio device of a guest, of any kind. All threads may call its methods.
pub(crate) trait Device: Send + Sync + fmt::Debug {
    /// Returns the number of queues, for all purposes.
    fn queues(&self) -> u16;

    /// Returns the features that the device offers, without those of rings.
    fn features(&self) -> u64;

    /// Tells the device which features the guest's driver has accepted.
    fn settle(&self, features: u64);

    /// Returns the configuration space.
    fn config(&self) -> Vec<u8>;

    /// Writes a part of the configuration space for the guest. Returns false if this part cannot be
    /// written.
    fn set_config(&self, offset: u32, bytes: &[u8]) -> bool;

    /// Returns the device to its initial state, because a front end has come or the guest has reset
    /// it.
    fn reset(&self);

    /// Starts queue `number` on the calling thread, which will serve it.
    ///
    /// # Errors
    /// The errors of the devices behind it.
    fn open(self: Arc<Self>, number: u16, ring: GuestRing) -> Result<Box<dyn Unit>>;

    /// Looks for devices that have changed size; to be called at intervals. Returns whether the
    /// configuration space has changed since the last call.
    fn look_after(&self) -> bool;
}
