//! Disks carved from a device: named slices, and the map of them that lies on the device itself.
//!
//! docs/design/carve.md has the format, and how it is changed.

mod carving;
mod map;

pub use carving::{Carving, examine_carving};
pub(crate) use map::is_slice_name;
pub use map::{CARVED_FROM_BYTES, CarveMap, CarveSlot, SLICES_MAX, Slice};
