//! The metrics of a target: their text, and the server for monitoring systems.

mod server;
mod text;

pub use server::{MetricsAddress, MetricsServer};
pub use text::{escaped, put_metric};
