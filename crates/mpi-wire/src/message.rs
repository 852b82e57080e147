//! The fields that all messages have, and the smaller messages.

use qpair_wire::le::{u16_at, u32_at};
use qpair_wire::{put, u8_at};

/// The bytes of a reply without fields of its own.
pub const DEFAULT_REPLY_BYTES: usize = 0x14;

#[must_use]
pub fn function_of(message: &[u8]) -> u8 {
    u8_at(message, 3)
}

/// Makes a request of `N` bytes with only its function set.
#[must_use]
pub fn request<const N: usize>(function: u8) -> [u8; N] {
    let mut message = [0; N];
    put(&mut message, 3, &[function]);
    message
}

/// Makes the beginning of a reply to `request`, of `len` bytes: length, function, message flags,
/// and its IOC status.
#[must_use]
pub fn reply(request: &[u8], len: usize, status: u16) -> Vec<u8> {
    let mut message = vec![0; len.max(DEFAULT_REPLY_BYTES)];
    message[2] = (message.len() / 4) as u8;
    message[3] = function_of(request);
    message[7] = u8_at(request, 7);
    message[8..10].copy_from_slice(request.get(8..10).unwrap_or(&[0, 0]));
    put(&mut message, 0x0E, &status.to_le_bytes());
    message
}

/// Returns the IOC status of a reply, without the bit for log information.
#[must_use]
pub fn status_of(reply: &[u8]) -> u16 {
    u16_at(reply, 0x0E) & crate::ioc_status::MASK
}

/// Returns the log information of a reply; 0: none.
#[must_use]
pub fn log_info_of(reply: &[u8]) -> u32 {
    u32_at(reply, 0x10)
}

/// Encodes a SAS_IO_UNIT_CONTROL that makes the controller forget a device that has gone.
#[must_use]
pub fn remove_device(handle: u16) -> [u8; 0x2C] {
    let mut message = request(crate::function::SAS_IO_UNIT_CONTROL);
    message[0] = OPERATION_REMOVE_DEVICE;
    put(&mut message, 4, &handle.to_le_bytes());
    message
}

/// Operation of SAS_IO_UNIT_CONTROL: forget a device.
pub const OPERATION_REMOVE_DEVICE: u8 = 0x0D;

/// Decodes the operation and the handle of SAS_IO_UNIT_CONTROL.
#[must_use]
pub fn decode_control(message: &[u8]) -> (u8, u16) {
    (u8_at(message, 0), u16_at(message, 4))
}
