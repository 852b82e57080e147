//! The seam between what stores data and what drives devices: the traits, what passes through them,
//! and how a caller waits.

pub(crate) mod completion_event;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod request;
pub(crate) mod size;
pub(crate) mod sleep;
pub(crate) mod wake;
