//! Messages as bytes.
//!
//! Nothing here trusts a peer: parsing checks every length and gives `None` for what is too short, what is longer than it should be is
//! ignored (peers send whole buffers), and no size that a peer names is allocated here.

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
