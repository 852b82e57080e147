//! Devices and a clock that exist only in memory, decided by a seed: what deterministic simulation runs on.
//! See docs/design/simulation.md.

mod clock;

pub use clock::SimClock;
