//! virtio-blk.

mod config;
mod inflight;
mod queue;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use config::{CONFIG_BYTES, WRITE_BACK_AT, config, feature};
pub(crate) use inflight::Inflight;
pub(crate) use inflight::bytes_of as inflight_bytes;
pub(crate) use queue::{Queue, QueueOptions, Stopped};
