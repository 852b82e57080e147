//! virtio-blk.

mod inflight;
mod queue;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use inflight::Inflight;
pub use inflight::bytes_of as inflight_bytes;
pub(crate) use queue::{Queue, QueueOptions, Stopped};
