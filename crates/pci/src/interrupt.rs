//! An interrupt of a function, as an event that a thread can sleep on.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use qpair_block::{Error, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags};

use crate::function::PciFunction;

/// A vector of a function that signals an event of this program, until another owner takes the
/// vector.
#[derive(Debug)]
pub struct Interrupt {
    event: OwnedFd,
    vector: u32,
}

impl Interrupt {
    /// Takes a vector.
    ///
    /// # Errors
    /// `Limit` if the process has no descriptors left; the errors of [`PciFunction::set_irq`].
    pub fn new(function: &dyn PciFunction, vector: u32) -> Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|cause| Error::os(cause.into(), "creating an eventfd"))?;
        function.set_irq(vector, Some(event.as_fd()))?;
        Ok(Self { event, vector })
    }

    #[must_use]
    pub fn vector(&self) -> u32 {
        self.vector
    }

    /// Clears the signal, if there is one.
    ///
    /// The server of the device has the event as well. It may have read the signal first, and may
    /// have made the event a blocking one.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // An eventfd has no offset.
        let taken = rustix::io::preadv2(
            &self.event,
            &mut [IoSliceMut::new(&mut count)],
            u64::MAX,
            ReadWriteFlags::NOWAIT,
        );
        // Kernels before 5.12 know only the O_NONBLOCK mark of the open file.
        if taken == Err(Errno::OPNOTSUPP) {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
