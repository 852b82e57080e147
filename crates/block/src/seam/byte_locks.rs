//! Locks on bytes of an open device, by which processes that share the device tell one another what
//! they use.

use std::fmt;
use std::ops::Range;

use crate::seam::error::Result;

/// Advisory locks on bytes of a device, held by one opening of it. The bytes may lie behind the end
/// of the device, and are neither read nor written. All locks of an opening end with it, however
/// its process ends.
pub trait ByteLocks: Send + Sync + fmt::Debug {
    /// Locks bytes: exclusively, or shared with other openings. Returns `false` if another opening
    /// has a lock that excludes this one.
    ///
    /// # Errors
    /// `Unsupported` or another error of the system, if the device takes no such locks.
    fn lock(&self, bytes: Range<u64>, exclusive: bool) -> Result<bool>;

    /// Ends this opening's locks on bytes. Bytes without one are ignored.
    ///
    /// # Errors
    /// As [`ByteLocks::lock`].
    fn unlock(&self, bytes: Range<u64>) -> Result<()>;

    /// Returns bytes on which another opening has a lock of either kind, and of which some are
    /// among `bytes`. Returns `None` if there are none.
    ///
    /// # Errors
    /// As [`ByteLocks::lock`].
    fn locked_by_others(&self, bytes: Range<u64>) -> Result<Option<Range<u64>>>;
}
