//! A soft NVMe controller.

mod device;
mod options;

pub use device::SoftNvme;
pub use options::{NamespaceOptions, SoftNvmeOptions};
