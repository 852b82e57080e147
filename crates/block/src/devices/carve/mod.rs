//! Disks carved from a device: named slices, and a map of them on the device itself.
//!
//! The format, and how it is changed, is described in docs/design/carve.md.

mod carving;
mod map;

pub use carving::{Carving, examine_carving};
pub(crate) use map::is_slice_name;
pub use map::{CARVED_FROM_BYTES, CarveMap, CarveSlot, SLICES_MAX, Slice};
