//! Devices and their power supply that exist only in memory and follow from a seed, and from a
//! [`SimClock`](qpair_block::time::SimClock): the basis of deterministic simulation. See docs/design/simulation.md.
//!
//! - Nothing here reads the wall clock, uses addresses, or has another source of randomness than
//!   the seed.
//! - A device does its work when a caller polls it, up to the current virtual time and in order of
//!   time. The result depends on the time alone, not on the caller.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod byte_locks;
mod channel;
mod device;
mod disk;
mod faults;
mod medium;
mod power;
mod trace;

pub use device::{SimDevice, SimOptions};
pub use faults::{SimFaults, SimLatency};
pub use power::SimPower;
pub use trace::TraceHash;
