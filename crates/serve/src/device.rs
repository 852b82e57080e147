//! What a session needs to know of a kind of device.

use std::fmt;
use std::sync::Arc;

use qpair_block::Result;

use crate::queue::GuestRing;
use crate::unit::Unit;

/// A device of a guest, whatever its kind. Any thread calls it.
pub(crate) trait Device: Send + Sync + fmt::Debug {
    /// Its queues, of all purposes.
    fn queues(&self) -> u16;

    /// The features that it offers, without those of rings.
    fn features(&self) -> u64;

    /// The features that the guest's driver has taken.
    fn settle(&self, features: u64);

    /// Its configuration.
    fn config(&self) -> Vec<u8>;

    /// The guest writes a part of the configuration. False: that part is not to be written.
    fn set_config(&self, offset: u32, bytes: &[u8]) -> bool;

    /// It is as it was made: another front end has come, or the guest has reset it.
    fn reset(&self);

    /// Starts queue `number`, on the thread that is to turn it.
    ///
    /// # Errors
    /// What the devices behind it say.
    fn open(self: Arc<Self>, number: u16, ring: GuestRing) -> Result<Box<dyn Unit>>;

    /// To be called now and then. Whether the configuration is another one than it was.
    fn look_after(&self) -> bool;
}
