//! Devices, their power and a clock that exist only in memory, decided by a seed: what deterministic simulation runs on.
//! See docs/design/simulation.md.
//!
//! - Nothing here looks at the wall clock, at addresses, or at another source of chance than the seed.
//! - A device does its work when a caller looks at it, up to the virtual time then, in the order in which it is due: what
//!   it has done depends on the time alone, not on which caller looked.

mod channel;
mod clock;
mod device;
mod disk;
mod faults;
mod medium;
mod power;
mod trace;

pub use clock::SimClock;
pub use device::{SimDevice, SimOptions};
pub use faults::{SimFaults, SimLatency};
pub use power::SimPower;
pub use trace::TraceHash;
