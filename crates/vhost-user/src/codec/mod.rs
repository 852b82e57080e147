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

/// Most bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// Most descriptors that come with a message.
pub const FDS_MAX: usize = 8;

/// Feature bits that are vhost-user's, and not the device's.
pub mod feature {
    /// The ends agree on features of the protocol, too; queues begin disabled then.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// The virtio standard, not what was before it.
    pub const VERSION_1: u64 = 1 << 32;
    /// Tables of descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Each end says at which index it wants to hear of news.
    pub const EVENT_IDX: u64 = 1 << 29;
}

/// Features of the protocol.
pub mod protocol {
    /// There may be more queues than one.
    pub const MQ: u64 = 1 << 0;
    /// A message may ask to be answered.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// The back end may send messages, over a socket of its own.
    pub const BACKEND_REQ: u64 = 1 << 5;
    /// The back end has the device's configuration.
    pub const CONFIG: u64 = 1 << 9;
    /// The front end keeps a note of what is under way.
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    /// The device can be reset.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// Memory is added and removed region by region.
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
}

/// A payload of one number.
#[must_use]
pub fn number(value: u64) -> Vec<u8> {
    Writer::default().u64(value).done()
}

/// The number of a payload that is one.
#[must_use]
pub fn parse_number(payload: &[u8]) -> Option<u64> {
    let mut fields = Fields::of(payload);
    let value = fields.u64()?;
    fields.rest().is_empty().then_some(value)
}
