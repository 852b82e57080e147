//! A SCSI target: the logical units of disks, which execute commands.
//!
//! A unit does not depend on a transport: its caller provides the command descriptor block, and has
//! looked up the memory for the data.

mod blocks;
mod unit;

pub(crate) use unit::{Answer, Data, Unit};
