//! A soft NVMe drive: a controller of `qpair-nvme-device`, and behind it media, times and faults.

mod drive;
mod io;
mod namespace;
mod options;
mod soft;
mod waiting;

pub use options::{NamespaceOptions, SoftNvmeOptions};
pub use qpair_nvme_device::Doorbells;
pub use soft::SoftNvme;
