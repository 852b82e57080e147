//! Block devices for guests.
//!
//! - [`Disk`]: a block device with a name and counters.
//! - [`Target`]: workers, and the sockets at which they serve disks to guests.
//! - [`MetricsServer`]: the target's counters, for Prometheus.
//! - [`Bdevs`], [`Manager`], [`RpcServer`]: devices by name, and JSON-RPC calls that make them and
//!   serve them to guests.
//!
//! docs/design/target.md has the picture.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod bdevs;
mod blk;
mod device;
mod disk;
mod memory;
mod metrics;
mod nbd;
mod nvme_tcp;
mod nvmf;
mod poll_time;
mod queue;
mod rpc;
mod scsi;
mod service;
mod session;
mod stream;
mod target;
mod unit;
mod worker;
mod workers;

pub use bdevs::{
    Attach, AttachController, AttachScsi, AttachedController, Bdev, Bdevs, OpenFile, OpenVhostUser,
    ScsiHost, ScsiNews, ScsiPlace,
};
pub use disk::{Disk, DiskCounters};
pub use metrics::{MetricsAddress, MetricsServer, escaped, put_metric};
pub use nbd::{NbdExport, NbdServerInfo};
pub use qpair_nbd::Address as NbdAddress;
pub use qpair_nvme_tcp::HostPort;
pub use qpair_tls::ServerFiles as TlsFiles;
pub use rpc::{
    ConfigCall, ConfigChange, ConfigFault, Level, Log, Manager, NvmeHost, RpcCounters, RpcLimits,
    RpcServer, reference,
};
pub use stream::SocketWay;
pub use target::{Backend, BlkOptions, ExportInfo, QUEUES_MAX, Target, TargetOptions};
pub use workers::WorkerInfo;
