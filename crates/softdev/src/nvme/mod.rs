//! A soft NVMe drive: a controller of `qpair-nvme-device` with media, timing and faults behind it.

mod drive;
mod io;
mod namespace;
mod options;
mod soft;
mod waiting;

pub use options::{NamespaceOptions, SoftNvmeOptions};
pub use qpair_nvme_device::Doorbells;
pub use soft::SoftNvme;
