//! The interface between code that stores data and code that drives devices: the traits, the values
//! that pass through them, and the ways of waiting.

pub(crate) mod byte_locks;
pub(crate) mod completion_event;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod request;
pub(crate) mod size;
pub(crate) mod sleep;
pub(crate) mod wake;
