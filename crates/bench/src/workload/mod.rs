//! One workload of single operations over one store.

mod client;
mod kind;
mod options;
mod report;
mod run;

pub use kind::Workload;
pub use options::RunOptions;
pub use report::Report;
pub(crate) use run::open_filled;
pub use run::run;
