//! Software devices, over memory or over other devices.

pub(crate) mod carve;
pub(crate) mod delay;
pub(crate) mod fault;
pub(crate) mod fault_control;
pub(crate) mod limit;
pub(crate) mod null;
pub(crate) mod pair;
pub(crate) mod ram;
pub(crate) mod slice;
pub(crate) mod stripe;
pub(crate) mod stripe_channel;
