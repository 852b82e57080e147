//! Checks a request before the kernel sees it.

use qpair_block::{DeviceInfo, IoError, Op, Request};

/// The largest request: the size of one registered buffer, and below the kernel's own limit on a
/// transfer.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 30;

/// Checks a request against the device's limits and its size.
///
/// The check of the limits is common to all devices. The check of the buffer is repeated here
/// because the `unsafe` code of this crate relies on it: the buffer of an accepted read or write
/// holds all of its data.
#[inline]
pub(crate) fn verify(
    request: &Request,
    limits: &DeviceInfo,
    size_bytes: u64,
) -> Result<(), IoError> {
    limits.check(request, size_bytes)?;
    if matches!(request.op, Op::Read | Op::Write) {
        let end = u64::from(request.buffer_offset_bytes) + u64::from(request.len_bytes);
        if request.buffer.as_ref().is_none_or(|buffer| end > buffer.len() as u64) {
            return Err(IoError::INVALID);
        }
    }
    Ok(())
}
