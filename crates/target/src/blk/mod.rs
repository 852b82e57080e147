//! virtio-blk.

mod inflight;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use inflight::Inflight;
pub(crate) use inflight::bytes_of as inflight_bytes;
pub(crate) use queue::{Queue, QueueOptions, SEG_MAX, Stopped};
