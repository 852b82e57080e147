//! Whether a device is blank where a store's label would go.

use std::time::Duration;

use qpair_block::{Arena, ArenaOptions, BlockDevice, ChannelOptions, Request, WaitOptions};
use qpair_engine::{Error, ErrorKind, Result};

/// Bytes from the start that hold labels; pages follow.
const LABEL_BYTES: usize = 64 << 10;

/// Refuses a device that holds anything but zeroes where its label would go.
pub(crate) fn check_blank(device: &dyn BlockDevice) -> Result<()> {
    let name = &device.info().name;
    let len_bytes = device.size_bytes().min(LABEL_BYTES as u64) as u32;
    if len_bytes == 0 {
        return Ok(());
    }
    let reading = || format!("looking at what is on {name}");
    let arena = Arena::new(LABEL_BYTES, 1, ArenaOptions::ordinary_pages()).map_err(|error| {
        Error::new(ErrorKind::NoMemory, format!("mapping memory for a label: {error}"))
    })?;
    let Some(buffer) = arena.lease() else {
        return Err(Error::new(ErrorKind::NoMemory, "no memory for a label"));
    };
    let mut channel = device
        .open_channel(&ChannelOptions { depth: 1, ..ChannelOptions::default() })
        .map_err(|error| Error::block(error, reading()))?;
    if channel.submit(Request::read(0, len_bytes, buffer, 0)).is_err() {
        return Err(Error::new(ErrorKind::Io, reading()));
    }
    let mut completions = Vec::new();
    while completions.is_empty() {
        let options = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
        channel.wait(&mut completions, options);
    }
    let Some(completion) = completions.pop() else { return Ok(()) };
    completion.result.map_err(|error| Error::io(error, reading()))?;
    let blank = completion.buffer.is_some_and(|buffer| {
        buffer.as_slice()[..len_bytes as usize].iter().all(|byte| *byte == 0)
    });
    if blank {
        return Ok(());
    }
    Err(Error::with_hint(
        ErrorKind::Exists,
        format!("{name} is not blank: there is something in its first {len_bytes} bytes"),
        "if it may be lost, ask for a format by force",
    ))
}
