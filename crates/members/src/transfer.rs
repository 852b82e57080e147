//! Blocking transfers, several at a time.

use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, Completion, IoChannel, WaitOptions,
};
use qpair_format::{Error, ErrorKind, Result};

/// The maximum number of bytes of one transfer.
const TRANSFER_BYTES: usize = 256 << 10;
/// The number of transfers in flight.
const WINDOW: u32 = 16;

pub fn wait(channel: &mut dyn IoChannel, completions: &mut Vec<Completion>) {
    channel.wait(completions, WaitOptions { want: 1, linger: Duration::ZERO, timeout: None });
}

/// Creates memory for transfers of these devices. Its blocks have the size of the smallest of their
/// largest requests.
pub fn transfer_arena(devices: &[&dyn BlockDevice]) -> Result<Arc<Arena>> {
    let most = devices.iter().map(|device| device.info().transfer_bytes_max as usize);
    let bytes = most.fold(TRANSFER_BYTES, usize::min);
    let bytes = 1 << bytes.ilog2();
    // Use no more than any channel accepts, so that submitting never meets a full queue.
    let count = devices.iter().map(|device| device.info().depth_max).fold(WINDOW, u32::min);
    Arena::new(bytes, count, ArenaOptions::ordinary_pages()).map_err(|error| {
        Error::new(ErrorKind::NoMemory, format!("mapping memory for transfers: {error}"))
    })
}

pub fn open_channel(device: &dyn BlockDevice, arena: &Arc<Arena>) -> Result<Box<dyn IoChannel>> {
    let depth = WINDOW.min(device.info().depth_max);
    let options = ChannelOptions { depth, arenas: vec![arena.clone()], wake: None };
    device.open_channel(&options).map_err(|error| {
        Error::block(error, format!("opening a channel to {}", device.info().name))
    })
}
