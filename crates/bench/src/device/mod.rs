//! A device without any store above it, measured.

mod baseline;
mod ceiling;
mod lane;

pub use baseline::{Baseline, BaselineOptions, baseline};
pub use ceiling::{Ceiling, CeilingOptions, ceiling};
