//! What a target counts, for its monitoring.

mod server;
mod text;

pub use server::{MetricsAddress, MetricsServer};
