//! Messages: a header, and a payload that depends on the request.

mod config;
mod header;
mod memory;
mod ring;

pub use config::Config;
pub use header::{HEADER_BYTES, Header, Request};
pub use memory::{InflightDescription, MemoryRegion, REGIONS_MAX, RegionMessage};
pub use ring::{RingAddresses, RingFile, RingState};

use qpair_socket::{Fields, Writer};

/// The maximum number of bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// The maximum number of descriptors with a message.
pub const FDS_MAX: usize = 8;

/// Feature bits for vhost-user and the rings, not for the kind of device.
pub mod feature {
    /// The ends also negotiate protocol features; queues are then disabled at first.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// The device follows the virtio standard, not its predecessor.
    pub const VERSION_1: u64 = 1 << 32;
    /// Descriptors may name tables of descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Each end says at which index it wants to be notified.
    pub const EVENT_IDX: u64 = 1 << 29;
}

pub mod protocol {
    /// There may be several queues.
    pub const MQ: u64 = 1 << 0;
    /// A message may ask for a reply.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// The back end may send messages, over a socket of its own.
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    /// The front end keeps the in-flight tracking area.
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// Memory is added and removed region by region.
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
}

/// Encodes a payload of one number.
#[must_use]
pub fn number(value: u64) -> Vec<u8> {
    Writer::default().u64(value).done()
}

/// Decodes a payload of one number.
#[must_use]
pub fn parse_number(payload: &[u8]) -> Option<u64> {
    let mut fields = Fields::of(payload);
    let value = fields.u64()?;
    fields.rest().is_empty().then_some(value)
}
