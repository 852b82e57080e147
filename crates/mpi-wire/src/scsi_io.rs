//! SCSI commands as messages, and their replies.

use crate::message::reply as new_reply;
use qpair_wire::le::{u16_at, u32_at};
use qpair_wire::{put, u8_at};

/// The offset of the scatter-gather list in a request, bytes.
pub const SGL_AT: usize = 0x60;
pub const REPLY_BYTES: usize = 0x34;
/// Control: data goes to the device.
pub const CONTROL_WRITE: u32 = 0x0100_0000;
/// Control: data comes from the device.
pub const CONTROL_READ: u32 = 0x0200_0000;

/// State: there is sense data.
pub const STATE_AUTOSENSE: u8 = 1;
/// State: there is no SCSI status.
pub const STATE_NO_STATUS: u8 = 4;
/// State: the command was terminated.
pub const STATE_TERMINATED: u8 = 8;

/// The offsets of the request's fields, for a driver that stores it word by word.
pub mod at {
    /// Handle (u16), chain offset (u8), function (u8).
    pub const HEAD: usize = 0x00;
    /// Low half of the sense buffer's address.
    pub const SENSE: usize = 0x0C;
    /// DMA flags (u16), length of the sense buffer (u8), offset of the list in dwords (u8).
    pub const FLAGS: usize = 0x10;
    /// Bytes of data.
    pub const DATA_BYTES: usize = 0x1C;
    /// Flags (u16) with the length of the CDB; behind them the protection flags.
    pub const IO_FLAGS: usize = 0x24;
    /// Logical unit, 8 bytes.
    pub const LUN: usize = 0x34;
    /// Direction and task attribute.
    pub const CONTROL: usize = 0x3C;
    /// CDB, 32 bytes.
    pub const CDB: usize = 0x40;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiIo {
    pub handle: u16,
    /// The offset of the chain element in the frame, in units of 16 bytes; 0: there is none.
    pub chain_offset: u8,
    /// The low half of the sense buffer's address.
    pub sense_low: u32,
    pub sense_bytes: u8,
    /// The offset of the list, dwords.
    pub sgl_offset: u8,
    pub data_bytes: u32,
    /// The flags, with the CDB's length in the lower 9 bits.
    pub io_flags: u16,
    pub protection_flags: u16,
    pub lun: [u8; 8],
    /// Direction and attribute.
    pub control: u32,
    pub cdb: [u8; 32],
}

impl ScsiIo {
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        let (mut lun, mut cdb) = ([0; 8], [0; 32]);
        lun.copy_from_slice(data.get(at::LUN..at::LUN + 8).unwrap_or(&[0; 8]));
        cdb.copy_from_slice(data.get(at::CDB..at::CDB + 32).unwrap_or(&[0; 32]));
        Self {
            handle: u16_at(data, 0),
            chain_offset: u8_at(data, 2),
            sense_low: u32_at(data, at::SENSE),
            sense_bytes: u8_at(data, 0x12),
            sgl_offset: u8_at(data, 0x14),
            data_bytes: u32_at(data, at::DATA_BYTES),
            io_flags: u16_at(data, at::IO_FLAGS),
            protection_flags: u16_at(data, 0x26),
            lun,
            control: u32_at(data, at::CONTROL),
            cdb,
        }
    }

    /// Encodes the request, up to the list.
    #[must_use]
    pub fn encode(&self) -> [u8; SGL_AT] {
        let mut data = [0; SGL_AT];
        put(&mut data, 0, &self.handle.to_le_bytes());
        data[2] = self.chain_offset;
        put(&mut data, at::SENSE, &self.sense_low.to_le_bytes());
        data[0x12] = self.sense_bytes;
        data[0x14] = self.sgl_offset;
        put(&mut data, at::DATA_BYTES, &self.data_bytes.to_le_bytes());
        put(&mut data, at::IO_FLAGS, &self.io_flags.to_le_bytes());
        put(&mut data, 0x26, &self.protection_flags.to_le_bytes());
        put(&mut data, at::LUN, &self.lun);
        put(&mut data, at::CONTROL, &self.control.to_le_bytes());
        put(&mut data, at::CDB, &self.cdb);
        data
    }
}

/// The reply to a SCSI command that did not fully succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScsiIoReply {
    pub handle: u16,
    pub scsi_status: u8,
    /// The `STATE_` bits: the parts of the result that are present.
    pub state: u8,
    pub ioc_status: u16,
    pub transferred: u32,
    pub sense_bytes: u32,
}

impl ScsiIoReply {
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        Self {
            handle: u16_at(data, 0),
            scsi_status: u8_at(data, 0x0C),
            state: u8_at(data, 0x0D),
            ioc_status: u16_at(data, 0x0E) & crate::ioc_status::MASK,
            transferred: u32_at(data, 0x14),
            sense_bytes: u32_at(data, 0x18),
        }
    }

    #[must_use]
    pub fn encode(&self, request: &[u8]) -> Vec<u8> {
        let mut data = new_reply(request, REPLY_BYTES, self.ioc_status);
        put(&mut data, 0, &self.handle.to_le_bytes());
        data[0x0C] = self.scsi_status;
        data[0x0D] = self.state;
        put(&mut data, 0x14, &self.transferred.to_le_bytes());
        put(&mut data, 0x18, &self.sense_bytes.to_le_bytes());
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_bytes() {
        let io = ScsiIo {
            handle: 9,
            chain_offset: 7,
            sense_low: 0xDEAD_0000,
            sense_bytes: 96,
            sgl_offset: 0x18,
            data_bytes: 1 << 20,
            io_flags: 16,
            protection_flags: 0,
            lun: [1, 2, 3, 4, 5, 6, 7, 8],
            control: CONTROL_READ,
            cdb: [0x5A; 32],
        };
        assert_eq!(ScsiIo::decode(&io.encode()), io);
        let reply = ScsiIoReply {
            handle: 9,
            scsi_status: 2,
            state: 1,
            ioc_status: 0x45,
            transferred: 5,
            sense_bytes: 18,
        };
        assert_eq!(ScsiIoReply::decode(&reply.encode(&io.encode())), reply);
    }
}
