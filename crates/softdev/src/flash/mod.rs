//! A timing model of a flash drive.
//!
//! The model runs in virtual time. Callers pass the time when a command came, and the model returns
//! when the command is done. Invariants:
//!
//! - The same calls with the same times give the same answers: the model reads no clock.
//! - An answer is never before the time at which the command came.
//! - The times that callers give may decrease a little, because several threads run the queues. The
//!   model then uses the later time.

mod calendar;
mod die;
mod map;
mod model;
mod profile;
mod profile_text;

use qpair_memory::locks::Mutex;

pub use qpair_block::Op;

use self::model::Model;

pub use self::model::FlashCounts;
pub use self::profile::Profile;

/// The timing of one drive.
#[derive(Debug)]
pub struct Flash {
    profile: Profile,
    /// The model; `None` if commands take no time.
    model: Option<Mutex<Model>>,
}

impl Flash {
    /// Creates a drive that offers `capacity_bytes` to the host, over all of its namespaces.
    ///
    /// # Errors
    /// `Invalid` if the profile does not describe a possible drive.
    pub fn new(profile: Profile, capacity_bytes: u64, seed: u64) -> qpair_block::Result<Self> {
        profile.check()?;
        let model = if profile.is_none() {
            None
        } else {
            Some(Mutex::new(Model::new(&profile, capacity_bytes, seed)?))
        };
        Ok(Self { profile, model })
    }

    /// Returns the profile of the drive.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Whether commands take no time. Callers then need not ask for their times.
    #[inline]
    #[must_use]
    pub fn is_instant(&self) -> bool {
        self.model.is_none()
    }

    /// Returns when a command that came at `now_ns` is done. All times are nanoseconds since a
    /// start of the caller's choice.
    ///
    /// `first_byte` counts from the start of the first namespace; a flush has no range. A compare
    /// counts as a read.
    #[inline]
    #[must_use]
    pub fn schedule(&self, now_ns: u64, op: Op, first_byte: u64, len_bytes: u64, fua: bool) -> u64 {
        let Some(model) = &self.model else { return now_ns };
        let mut model = model.lock();
        model.schedule(now_ns, op, first_byte, len_bytes, fua)
    }

    /// Returns the counts of the work that the drive has done since it was created.
    #[must_use]
    pub fn counts(&self) -> FlashCounts {
        let Some(model) = &self.model else { return FlashCounts::default() };
        model.lock().counts()
    }

    /// Returns when a flush that came at `now_ns` is done.
    #[inline]
    #[must_use]
    pub fn flush(&self, now_ns: u64) -> u64 {
        self.schedule(now_ns, Op::Flush, 0, 0, false)
    }
}
