//! A device without any store above it, measured.

pub(crate) mod baseline;
pub(crate) mod ceiling;
