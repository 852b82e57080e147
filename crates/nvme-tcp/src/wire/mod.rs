//! The messages of NVMe/TCP (PDUs), in little-endian byte order.
//!
//! A PDU is a header of [`Header::BYTES`] bytes and fields of its type, a digest of both if that
//! was agreed, data, and a digest of the data. [`Receiver`] takes PDUs from bytes as they come.

mod digest;
mod header;
mod pdu;
mod receiver;

pub use digest::{Digest, crc32c};
pub use header::{Digests, Fault, Header, fes, flag, kind};
pub use pdu::{CAPSULE_HEADER_BYTES, DataPdu, InitReq, InitResp, R2t, Term, put};
pub use receiver::{End, Pdu, Receiver, Step};
