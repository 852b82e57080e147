//! Messages as bytes.
//!
//! Nothing here trusts a peer. Parsing checks every length: bytes that are too short give `None`,
//! and surplus bytes are ignored, since peers send whole buffers. No size that a peer names is
//! allocated here.

mod device;
mod dma;
mod header;
mod region;
mod version;

pub use device::{DeviceInfo, IrqAction, IrqData, IrqInfo, SetIrqs, irq_index};
pub use dma::{DmaMap, DmaUnmap};
pub use header::{Command, HEADER_BYTES, Header};
pub use region::{Area, RegionAccess, RegionInfo, region_index};
pub use version::{Capabilities, MAJOR, MINOR, Version};
