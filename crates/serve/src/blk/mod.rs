//! virtio-blk.

mod device;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use device::Blk;
