//! The memory of a driver, as a device model accesses it.

use std::fmt;
use std::sync::Arc;

use crate::arena::Arena;
use crate::mapping::Mapping;
use crate::shared::SharedBytes;

/// Memory of a driver that a device can access. It stays mapped as long as this lives.
#[derive(Clone)]
pub struct DmaMemory(Owner);

#[derive(Clone)]
enum Owner {
    Mapping(Arc<Mapping>),
    Arena(Arc<Arena>),
}

impl DmaMemory {
    #[must_use]
    pub fn of_mapping(mapping: Arc<Mapping>) -> Self {
        Self(Owner::Mapping(mapping))
    }

    /// Wraps all memory that is mapped for an arena of this process.
    ///
    /// # Safety
    /// A device gets access to the memory. It writes only where the driver's commands say, and
    /// those commands may name only buffers that the driver holds until the device has answered,
    /// and the driver's own queues (point 6).
    #[must_use]
    pub unsafe fn of_arena(arena: Arc<Arena>) -> Self {
        Self(Owner::Arena(arena))
    }

    /// Returns the mapping, if the memory is that of another process.
    #[must_use]
    pub fn mapping(&self) -> Option<&Arc<Mapping>> {
        match &self.0 {
            Owner::Mapping(mapping) => Some(mapping),
            Owner::Arena(_) => None,
        }
    }

    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'_> {
        match &self.0 {
            Owner::Mapping(mapping) => mapping.bytes(),
            Owner::Arena(arena) => {
                // SAFETY: the arena's mapping lives as long as `self`, and is aligned to a huge
                // page. `of_arena` requires that no code holds a reference to bytes that the device
                // writes.
                unsafe { SharedBytes::new(arena.region().0, arena.mapped_bytes(), true) }
            }
        }
    }
}

impl fmt::Debug for DmaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Owner::Mapping(mapping) => mapping.fmt(f),
            Owner::Arena(arena) => arena.fmt(f),
        }
    }
}
