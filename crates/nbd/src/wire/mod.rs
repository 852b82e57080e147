//! The messages of NBD.
//!
//! Decoders check all lengths, and return `None` or a fault for what the protocol does not allow.

pub mod handshake;
pub mod reply;
pub mod request;

pub use reply::{Chunk, Errno, Extent, Reply, Style};
pub use request::{Kind, Request};

/// Flags of an export, in the order of proto.md ("Transmission flags").
pub mod export_flag {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// The meta context that says which parts of an export are holes.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The number by which block status replies name the context.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// The maximum length of a name in bytes (proto.md, "Values").
pub const NAME_BYTES_MAX: usize = 4096;
/// The largest payload that a client may send without having been told of another limit.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
