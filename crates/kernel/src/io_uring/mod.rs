//! `io_uring`: its channels, their rings, and what is registered with them.
//!
//! - [`channel`]: one ring, driven by interrupts, without or with a submission thread (`iou`, `iou+k`);
//! - [`polled`]: a ring that is polled, and a second one for what cannot be polled for (`iou+p`, `iou+k+p`).

mod buffers;
mod channel;
mod encode;
mod poll_queues;
mod polled;
pub(crate) mod ring;
pub(crate) mod set_up;
mod shared;

use std::sync::Arc;

use qpair_block::{ChannelOptions, IoChannel, Result};

use crate::file::File;
use crate::interface::Interface;
use crate::mode::{Mode, Polling};

/// Sets up a ring and takes it down.
pub(crate) fn check() -> Result<()> {
    ring::Ring::<io_uring::squeue::Entry>::open(8, &Mode::new(Interface::IoUring)).map(drop)
}

/// Opens a channel and drops it: its mode, in words for reports.
pub(crate) fn try_open(file: Arc<File>, mode: &Mode, options: &ChannelOptions) -> Result<String> {
    match (mode.polling, mode.submission_thread) {
        (Polling::Interrupt, None) => {
            Ok(channel::Channel::<false>::open(file, mode, options)?.mode())
        }
        (Polling::Interrupt, Some(_)) => {
            Ok(channel::Channel::<true>::open(file, mode, options)?.mode())
        }
        (Polling::Poll | Polling::Hybrid, _) => polled::try_open(file, mode, options),
    }
}

/// Opens a channel.
pub(crate) fn open(
    file: Arc<File>,
    mode: &Mode,
    options: &ChannelOptions,
) -> Result<Box<dyn IoChannel>> {
    Ok(match (mode.polling, mode.submission_thread) {
        (Polling::Interrupt, None) => {
            Box::new(channel::Channel::<false>::open(file, mode, options)?)
        }
        (Polling::Interrupt, Some(_)) => {
            Box::new(channel::Channel::<true>::open(file, mode, options)?)
        }
        (Polling::Poll | Polling::Hybrid, _) => {
            Box::new(polled::Channel::open(file, mode, options)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::channel::Channel;
    use super::polled;
    use super::ring::Ring;
    use super::set_up::SetUp;
    use crate::device::tests::conform;
    use crate::interface::Interface;
    use crate::mode::Mode;

    #[test]
    fn every_set_up_conforms() {
        let mode = Mode::new(Interface::IoUring);
        for set_up in SetUp::ALL {
            for min_wait in [true, false] {
                conform(move |file, options| {
                    let entries = Channel::<false>::entries(options);
                    let ring = Ring::open_with(entries, &mode, &[*set_up], min_wait)?;
                    Ok(Box::new(Channel::<false>::on(ring, file, &mode, options)?))
                });
            }
        }
    }

    /// The two rings of a polled channel, on a machine that need not have poll queues: here the first takes interrupts.
    #[test]
    fn a_polled_channel_conforms_over_two_rings() {
        for text in ["io_uring", "io_uring+k"] {
            let mode: Mode = text.parse().unwrap();
            conform(move |file, options| {
                Ok(Box::new(polled::Channel::on_any(file, &mode, options)?))
            });
        }
    }
}
