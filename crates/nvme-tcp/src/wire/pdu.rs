//! The fields of each type of PDU, and how PDUs are written.

use qpair_nvme_wire::{Command, Completion};
use qpair_wire::le::{u16_at, u32_at};
use qpair_wire::{get, u8_at};

use super::digest::crc32c;
use super::header::{Digests, Fault, Header, flag, kind};

/// The bytes of the header of a command capsule.
pub const CAPSULE_HEADER_BYTES: usize = 72;
/// The bytes of the header of a PDU with data, of R2T, of a response and of a termination.
pub(super) const SHORT_HEADER_BYTES: usize = 24;
pub(super) const INIT_BYTES: usize = 128;
/// The most bytes of a PDU that ends a connection.
pub(super) const TERM_BYTES_MAX: usize = 152;

/// The request that begins a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitReq {
    pub format: u16,
    /// The alignment of data towards the host, in dwords, minus one.
    pub alignment: u8,
    pub digests: Digests,
    /// The most R2T of a command at a time, minus one.
    pub r2ts_more: u32,
}

/// The answer to [`InitReq`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitResp {
    pub format: u16,
    /// The alignment of data towards the controller, in dwords, minus one.
    pub alignment: u8,
    pub digests: Digests,
    /// The most data of a PDU towards the controller, bytes.
    pub data_bytes_max: u32,
}

/// The fields of H2CData and C2HData.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataPdu {
    pub cid: u16,
    /// The controller's number of the transfer; 0 towards the host.
    pub tag: u16,
    pub offset: u32,
    pub len: u32,
    pub is_last: bool,
    /// Whether the command has succeeded and has no response.
    pub is_success: bool,
}

/// A request for data of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct R2t {
    pub cid: u16,
    pub tag: u16,
    pub offset: u32,
    pub len: u32,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term {
    pub status: u16,
    pub info: u32,
}

fn init_fields(bytes: &[u8]) -> (u16, u8, Digests, u32) {
    (u16_at(bytes, 8), u8_at(bytes, 10), Digests::of(u8_at(bytes, 11)), u32_at(bytes, 12))
}

impl InitReq {
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let (format, alignment, digests, r2ts_more) = init_fields(bytes);
        Self { format, alignment, digests, r2ts_more }
    }
}

impl InitResp {
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let (format, alignment, digests, data_bytes_max) = init_fields(bytes);
        Self { format, alignment, digests, data_bytes_max }
    }
}

impl DataPdu {
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let flags = u8_at(bytes, 1);
        Self {
            cid: u16_at(bytes, 8),
            tag: u16_at(bytes, 10),
            offset: u32_at(bytes, 12),
            len: u32_at(bytes, 16),
            is_last: flags & flag::LAST != 0,
            is_success: flags & flag::SUCCESS != 0,
        }
    }
}

impl R2t {
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let DataPdu { cid, tag, offset, len, .. } = DataPdu::decode(bytes);
        Self { cid, tag, offset, len }
    }
}

impl Term {
    pub(super) fn decode(bytes: &[u8]) -> Self {
        Self { status: u16_at(bytes, 8), info: u32_at(bytes, 10) }
    }
}

pub(super) fn command_of(bytes: &[u8]) -> Command {
    Command::decode(&get(bytes, Header::BYTES))
}

/// Returns the completion of a response, and its dword 1.
pub(super) fn completion_of(bytes: &[u8]) -> (Completion, u32) {
    let dword = |at| u32_at(bytes, at);
    (Completion::from_dwords(dword(8), dword(16), dword(20)), dword(12))
}

/// Functions that append PDUs to a message. Data, and its digest, follow at the caller's hand.
pub mod put {
    use super::{
        CAPSULE_HEADER_BYTES, Command, Completion, DataPdu, Digests, Fault, Header, INIT_BYTES,
        InitReq, InitResp, R2t, SHORT_HEADER_BYTES, crc32c, flag, kind,
    };

    fn init(output: &mut Vec<u8>, kind: u8, fields: (u16, u8, Digests, u32)) {
        let (format, alignment, digests, last) = fields;
        let header =
            Header { kind, flags: 0, header_bytes: 128, data_at: 0, len_bytes: INIT_BYTES as u32 };
        let end = output.len() + INIT_BYTES;
        output.extend(header.encode());
        output.extend(format.to_le_bytes());
        output.extend([alignment, digests.bits()]);
        output.extend(last.to_le_bytes());
        output.resize(end, 0);
    }

    pub fn init_req(output: &mut Vec<u8>, it: &InitReq) {
        init(output, kind::INIT_REQ, (it.format, it.alignment, it.digests, it.r2ts_more));
    }

    pub fn init_resp(output: &mut Vec<u8>, it: &InitResp) {
        init(output, kind::INIT_RESP, (it.format, it.alignment, it.digests, it.data_bytes_max));
    }

    /// Appends a header with its fields and its digest, for `data` bytes of data.
    fn pdu(output: &mut Vec<u8>, digests: Digests, kind: u8, more: u8, fields: &[u8], data: u32) {
        let header_bytes = Header::BYTES + fields.len();
        let data_at = header_bytes + digests.header_bytes();
        let mut flags = more;
        if digests.header {
            flags |= flag::HEADER_DIGEST;
        }
        let mut len_bytes = data_at as u32;
        if data > 0 {
            flags |= if digests.data { flag::DATA_DIGEST } else { 0 };
            len_bytes += data + digests.data_bytes() as u32;
        }
        let start = output.len();
        let data_at = if data > 0 { data_at as u8 } else { 0 };
        let header = Header { kind, flags, header_bytes: header_bytes as u8, data_at, len_bytes };
        output.extend(header.encode());
        output.extend(fields);
        if digests.header {
            let digest = crc32c(&output[start..]);
            output.extend(digest.to_le_bytes());
        }
    }

    /// Appends a command, whose capsule has `data` bytes of data.
    pub fn command(output: &mut Vec<u8>, digests: Digests, command: &Command, data: u32) {
        const _: () = assert!(CAPSULE_HEADER_BYTES == Header::BYTES + 64);
        pdu(output, digests, kind::CAPSULE_CMD, 0, &command.encode(), data);
    }

    /// Appends a response. `high` is dword 1, which only properties of 8 bytes use.
    pub fn response(output: &mut Vec<u8>, digests: Digests, completion: &Completion, high: u32) {
        let mut entry = completion.encode();
        entry[4..8].copy_from_slice(&high.to_le_bytes());
        pdu(output, digests, kind::CAPSULE_RESP, 0, &entry, 0);
    }

    fn transfer(cid: u16, tag: u16, offset: u32, len: u32) -> [u8; 16] {
        let mut fields = [0; 16];
        fields[..2].copy_from_slice(&cid.to_le_bytes());
        fields[2..4].copy_from_slice(&tag.to_le_bytes());
        fields[4..8].copy_from_slice(&offset.to_le_bytes());
        fields[8..12].copy_from_slice(&len.to_le_bytes());
        fields
    }

    fn data(output: &mut Vec<u8>, digests: Digests, kind: u8, it: &DataPdu) {
        let mut flags = if it.is_last { flag::LAST } else { 0 };
        flags |= if it.is_success { flag::SUCCESS } else { 0 };
        pdu(output, digests, kind, flags, &transfer(it.cid, it.tag, it.offset, it.len), it.len);
    }

    /// Appends the header of data towards the controller.
    pub fn h2c_data(output: &mut Vec<u8>, digests: Digests, it: &DataPdu) {
        data(output, digests, kind::H2C_DATA, it);
    }

    /// Appends the header of data towards the host.
    pub fn c2h_data(output: &mut Vec<u8>, digests: Digests, it: &DataPdu) {
        data(output, digests, kind::C2H_DATA, it);
    }

    pub fn r2t(output: &mut Vec<u8>, digests: Digests, it: &R2t) {
        pdu(output, digests, kind::R2T, 0, &transfer(it.cid, it.tag, it.offset, it.len), 0);
    }

    /// Appends the end of a connection, with at most 128 bytes of the header that is wrong.
    pub fn term(output: &mut Vec<u8>, is_host: bool, fault: &Fault, wrong: &[u8]) {
        // Peers expect more than the header alone.
        let mut copy = wrong[..wrong.len().min(128)].to_vec();
        copy.resize(copy.len().max(8), 0);
        let kind = if is_host { kind::HOST_TERM } else { kind::CONTROLLER_TERM };
        let header_bytes = SHORT_HEADER_BYTES as u8;
        let len_bytes = u32::from(header_bytes) + copy.len() as u32;
        let header = Header { kind, flags: 0, header_bytes, data_at: 0, len_bytes };
        let end = output.len() + SHORT_HEADER_BYTES;
        output.extend(header.encode());
        output.extend(fault.status.to_le_bytes());
        output.extend(fault.info.to_le_bytes());
        output.resize(end, 0);
        output.extend(copy);
    }
}
