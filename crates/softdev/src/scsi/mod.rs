//! A SCSI target: logical units of disks, which answer commands.
//!
//! A unit knows no transport: its caller has the command descriptor block, and has found the memory
//! that goes with it.

mod blocks;
mod unit;

pub(crate) use unit::{Answer, Data, Unit};
