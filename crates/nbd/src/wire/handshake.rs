//! Messages of the negotiation (fixed newstyle).

use qpair_wire::be;

/// The first eight bytes of a server's greeting: `NBDMAGIC`.
pub const GREETING: u64 = 0x4E42_444D_4147_4943;
/// The magic number of the newstyle greeting and of each option: `IHAVEOPT`.
pub const OPTION: u64 = 0x4948_4156_454F_5054;
/// The magic number of each option reply.
pub const OPTION_REPLY: u64 = 0x0003_E889_0455_65A9;
/// The bytes of the greeting.
pub const GREETING_BYTES: usize = 18;
/// The bytes of an option before its data.
pub const OPTION_BYTES: usize = 16;
/// The bytes of an option reply before its data.
pub const OPTION_REPLY_BYTES: usize = 20;

/// Flags of the greeting, and of the client's answer.
pub const FIXED_NEWSTYLE: u16 = 1;
pub const NO_ZEROES: u16 = 2;

/// Options.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of option replies.
pub mod answer {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// The bit that all errors have.
    pub const ERROR: u32 = 1 << 31;
    pub const UNSUPPORTED: u32 = ERROR | 1;
    pub const POLICY: u32 = ERROR | 2;
    pub const INVALID: u32 = ERROR | 3;
    pub const TLS_REQUIRED: u32 = ERROR | 5;
    pub const UNKNOWN: u32 = ERROR | 6;
    pub const BLOCK_SIZE_REQUIRED: u32 = ERROR | 8;
    pub const TOO_BIG: u32 = ERROR | 9;
    pub const EXTENDED_HEADERS_REQUIRED: u32 = ERROR | 10;
}

/// Types of information about an export.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// The block sizes of an export in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// All offsets and lengths are multiples of this.
    pub min: u32,
    /// Requests in multiples of this are fast.
    pub preferred: u32,
    /// The largest payload.
    pub max: u32,
}

/// Appends a greeting of a server.
pub fn put_greeting(into: &mut Vec<u8>) {
    into.extend(GREETING.to_be_bytes());
    into.extend(OPTION.to_be_bytes());
    into.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
}

/// Appends an option.
pub fn put_option(into: &mut Vec<u8>, option: u32, data: &[u8]) {
    into.extend(OPTION.to_be_bytes());
    into.extend(option.to_be_bytes());
    into.extend((data.len() as u32).to_be_bytes());
    into.extend(data);
}

/// Appends a reply to an option.
pub fn put_answer(into: &mut Vec<u8>, option: u32, answer: u32, data: &[u8]) {
    into.extend(OPTION_REPLY.to_be_bytes());
    into.extend(option.to_be_bytes());
    into.extend(answer.to_be_bytes());
    into.extend((data.len() as u32).to_be_bytes());
    into.extend(data);
}

/// Appends a text with its length before it.
pub fn put_text(into: &mut Vec<u8>, text: &str) {
    into.extend((text.len() as u32).to_be_bytes());
    into.extend(text.as_bytes());
}

/// Takes `len` bytes from the front of `data`.
pub fn take<'d>(data: &mut &'d [u8], len: usize) -> Option<&'d [u8]> {
    let (front, rest) = data.split_at_checked(len)?;
    *data = rest;
    Some(front)
}

/// Takes a 32-bit integer.
pub fn take_u32(data: &mut &[u8]) -> Option<u32> {
    take(data, 4).map(|bytes| be::u32_at(bytes, 0))
}

/// Takes a 16-bit integer.
pub fn take_u16(data: &mut &[u8]) -> Option<u16> {
    take(data, 2).map(|bytes| be::u16_at(bytes, 0))
}

/// Takes a text that [`put_text`] wrote: at most 4096 bytes of UTF-8.
pub fn take_text<'d>(data: &mut &'d [u8]) -> Option<&'d str> {
    let len = take_u32(data)? as usize;
    let bytes = take(data, len).filter(|bytes| bytes.len() <= super::NAME_BYTES_MAX)?;
    std::str::from_utf8(bytes).ok()
}
