//! JSON-RPC 2.0 on a Unix socket, with the names, parameters and errors of SPDK's, so that its
//! client drives it.

mod ana;
mod carved;
mod client;
mod config;
mod disks;
mod faults;
mod keyring;
mod limits;
mod log;
mod manager;
mod methods;
mod nbd;
mod nvme;
mod nvmf;
mod nvmf_hosts;
mod params;
mod reference;
mod schema;
mod scsi;
mod server;
mod vhost;

pub use config::{ConfigCall, ConfigChange, ConfigFault};
pub use log::{Level, Log};
pub use manager::Manager;
pub use nvmf_hosts::NvmeHost;
pub use reference::reference;
pub(crate) use scsi::AttachedScsi;
pub use server::{RpcCounters, RpcLimits, RpcServer};
