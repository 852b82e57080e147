//! The harness of all benchmarks: clients of a system that make one request after the other, for a
//! given time, and the counts of their requests.
//!
//! Invariants:
//! - A request counts if it ends while the run measures. Its latency is the time from its
//!   beginning, or from the time it was due, to its end, with all its attempts.
//! - The clients of a thread count into one tally without locks.
//! - A request neither allocates nor calls through `dyn` in the harness.
//! - The first error of a client stops all clients, and the run returns it.

mod arrivals;
mod choice;
mod client;
mod control;
mod filler;
mod job;
mod measured;
mod plan;
mod runner;
mod tally;
#[cfg(test)]
mod tests;
mod window;

#[cfg(test)]
pub(crate) use client::complete;
pub(crate) use client::{Client, Done};
pub(crate) use filler::Filler;
pub(crate) use job::{Job, once, run_job};
pub(crate) use measured::{KindTally, Measured, per};
pub(crate) use plan::Plan;
pub(crate) use runner::measure;
