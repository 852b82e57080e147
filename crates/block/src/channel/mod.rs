//! The parts from which channels are made, and several channels used as one.

pub(crate) mod bounces;
pub(crate) mod content;
pub(crate) mod group;
pub(crate) mod holding;
pub(crate) mod member;
pub(crate) mod poller;
pub(crate) mod ready;
pub(crate) mod reconnection;
pub(crate) mod serial;
pub(crate) mod slots;
pub(crate) mod unflushed_writes;
