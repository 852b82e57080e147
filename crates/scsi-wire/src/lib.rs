//! The bytes of SCSI: command descriptor blocks, sense data, inquiry and vital product data, capacity, mode pages. Used by the disk and by
//! the target in the soft HBA, so that both mean the same by the same name; what each does with them is its own.
//!
//! Sources: the headers of Linux (`include/scsi/scsi_proto.h`, `scsi_common.h`), sg3_utils (`sg_lib.h`, `sg_lib_data.c`) and libiscsi
//! (`scsi-lowlevel.h`), by whose names the standards' fields are found. All integers are big-endian. Nothing here trusts a value: what is too
//! short or makes no sense is `None` or an error, never a panic.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod bytes;
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

/// Status of a command that did what it was to do.
pub const GOOD: u8 = 0x00;
/// There is sense data.
pub const CHECK_CONDITION: u8 = 0x02;
/// VERIFY and its kin: what was asked for is so.
pub const CONDITION_MET: u8 = 0x04;
/// The unit cannot take a command now.
pub const BUSY: u8 = 0x08;
/// Another initiator has reserved the unit.
pub const RESERVATION_CONFLICT: u8 = 0x18;
/// The unit has no room for another command.
pub const TASK_SET_FULL: u8 = 0x28;
/// The command was ended by a task that another initiator asked for.
pub const TASK_ABORTED: u8 = 0x40;
