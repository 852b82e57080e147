//! What a target counts, for those who watch it.

mod server;
mod text;

pub use server::{MetricsAddress, MetricsServer};
