//! `auto`: begins with one way to the drive, and changes to a better one while the device is open.
//!
//! - [`way`]: the ways, and families of devices. [`ways`]: those to one device. `means`: which of
//!   them the machine and a drive of the kernel have.
//! - [`stored`]: what a study has found, for the beginning.
//! - `rule`: when to change, as a function of counters.
//! - `group`: the channels of one thread, which change together; its windows.
//! - `channel`: a channel that owns one or two others.
//! - [`adaptation`]: what is shown of it.
//!
//! docs/design/auto.md has the design.

pub(crate) mod adaptation;
mod channel;
mod group;
mod means;
mod process;
mod rule;
pub(crate) mod stored;
#[cfg(test)]
mod tests;
pub(crate) mod way;
pub(crate) mod ways;
