//! `io_uring`: its channels, their rings, and the resources that are registered with them.
//!
//! - [`channel`]: one ring, driven by interrupts, without or with a submission thread (`iou`,
//!   `iou+k`).
//! - [`polled`]: a ring that is polled, and a second one for requests that cannot be polled
//!   (`iou+p`, `iou+k+p`).

pub(crate) mod buffers;
mod channel;
pub(crate) mod dialect;
pub(crate) mod encode;
pub(crate) mod poll_queues;
mod polled;
pub(crate) mod ring;
pub(crate) mod set_up;
mod shared;

use std::sync::Arc;

use qpair_block::{ChannelOptions, IoChannel, Result};

use dialect::{Dialect, read_once};

use crate::interface::Interface;
use crate::mode::{Mode, Polling};

pub(crate) fn check() -> Result<()> {
    ring::Ring::<io_uring::squeue::Entry>::open(8, &Mode::new(Interface::IoUring)).map(drop)
}

/// Opens a channel and drops it. Returns a description of its mode, for reports.
pub(crate) fn try_open<D: Dialect>(
    target: &Arc<D::Target>,
    mode: &Mode,
    options: &ChannelOptions,
) -> Result<String> {
    let (mut channel, words) = open_any::<D>(target.clone(), mode, options)?;
    if D::UNPROVEN || mode.polling != Polling::Interrupt {
        read_once(&mut *channel, D::limits(target), D::size_bytes(target), options.arenas.first())?
            .map_err(|cause| D::refused(target, mode, cause))?;
    }
    Ok(words)
}

pub(crate) fn open<D: Dialect>(
    target: Arc<D::Target>,
    mode: &Mode,
    options: &ChannelOptions,
) -> Result<Box<dyn IoChannel>> {
    Ok(open_any::<D>(target, mode, options)?.0)
}

fn open_any<D: Dialect>(
    target: Arc<D::Target>,
    mode: &Mode,
    options: &ChannelOptions,
) -> Result<(Box<dyn IoChannel>, String)> {
    Ok(match (mode.polling, mode.submission_thread) {
        (Polling::Interrupt, None) => {
            let channel = channel::Channel::<D, false>::open(target, mode, options)?;
            let words = channel.mode();
            (Box::new(channel), words)
        }
        (Polling::Interrupt, Some(_)) => {
            let channel = channel::Channel::<D, true>::open(target, mode, options)?;
            let words = channel.mode();
            (Box::new(channel), words)
        }
        (Polling::Poll | Polling::Hybrid, _) => {
            let channel = polled::Channel::<D>::open(target, mode, options)?;
            let words = channel.mode();
            (Box::new(channel), words)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::channel::Channel;
    use super::encode::Encoder;
    use super::poll_queues::Reach;
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
                    let entries = Channel::<Encoder, false>::entries(options);
                    let ring = Ring::open_with(entries, &mode, &[*set_up], min_wait)?;
                    Ok(Box::new(Channel::<Encoder, false>::on(ring, file, &mode, options)?))
                });
            }
        }
    }

    /// The two rings of a polled channel, on a machine that may lack poll queues. Here the first
    /// ring uses interrupts.
    #[test]
    fn a_polled_channel_conforms_over_two_rings() {
        for text in ["io_uring", "io_uring+k"] {
            let mode: Mode = text.parse().unwrap();
            conform(move |file, options| {
                Ok(Box::new(polled::Channel::<Encoder>::on(file, &mode, Reach::ALL, options)?))
            });
        }
    }
}
