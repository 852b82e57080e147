//! One workload of single operations over one store.

pub(crate) mod client;
pub(crate) mod kind;
pub(crate) mod run;
