//! The driver over the soft controller, against a model of what the drive holds.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod faults;
mod hostile;
mod model;
mod rig;
mod script;
