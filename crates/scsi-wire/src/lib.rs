//! The bytes of SCSI: command descriptor blocks, sense data, inquiry and vital product data,
//! capacity, mode pages. The disk driver and the target in the soft HBA share these definitions,
//! but not their behaviour.
//!
//! Sources: the headers of Linux (`include/scsi/scsi_proto.h`, `scsi_common.h`), sg3_utils
//! (`sg_lib.h`, `sg_lib_data.c`) and libiscsi (`scsi-lowlevel.h`), whose names help to find the
//! fields in the standards. All integers are big-endian. No value is trusted: data that is too
//! short or invalid gives `None` or an error, never a panic.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

pub mod capacity;
pub mod command;
pub mod inquiry;
pub mod luns;
pub mod mode;
pub mod operations;
pub mod sense;
pub mod timestamp;
pub mod unmap;
pub mod vpd;

pub use command::{Cdb, Command, Undecodable, Width};
pub use sense::{Key, Sense};

/// Status: the command succeeded.
pub const GOOD: u8 = 0x00;
/// Status: there is sense data.
pub const CHECK_CONDITION: u8 = 0x02;
/// Status: the condition that VERIFY or a similar command tests is met.
pub const CONDITION_MET: u8 = 0x04;
/// Status: the unit cannot take a command now.
pub const BUSY: u8 = 0x08;
/// Status: another initiator has reserved the unit.
pub const RESERVATION_CONFLICT: u8 = 0x18;
/// Status: the unit has no room for another command.
pub const TASK_SET_FULL: u8 = 0x28;
/// Status: a task of another initiator ended the command.
pub const TASK_ABORTED: u8 = 0x40;
