//! Operation codes.

#![expect(missing_docs, reason = "named as the standards name them")]
pub const TEST_UNIT_READY: u8 = 0x00;
pub const REQUEST_SENSE: u8 = 0x03;
pub const READ_6: u8 = 0x08;
pub const WRITE_6: u8 = 0x0A;
pub const INQUIRY: u8 = 0x12;
pub const MODE_SELECT_6: u8 = 0x15;
pub const MODE_SENSE_6: u8 = 0x1A;
pub const START_STOP_UNIT: u8 = 0x1B;
pub const READ_CAPACITY_10: u8 = 0x25;
pub const READ_10: u8 = 0x28;
pub const WRITE_10: u8 = 0x2A;
pub const VERIFY_10: u8 = 0x2F;
pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
pub const WRITE_SAME_10: u8 = 0x41;
pub const UNMAP: u8 = 0x42;
pub const LOG_SENSE: u8 = 0x4D;
pub const MODE_SELECT_10: u8 = 0x55;
pub const MODE_SENSE_10: u8 = 0x5A;
pub const READ_16: u8 = 0x88;
pub const WRITE_16: u8 = 0x8A;
pub const VERIFY_16: u8 = 0x8F;
pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
pub const WRITE_SAME_16: u8 = 0x93;
pub const SERVICE_ACTION_IN_16: u8 = 0x9E;
pub const REPORT_LUNS: u8 = 0xA0;
pub const MAINTENANCE_IN: u8 = 0xA3;
pub const MAINTENANCE_OUT: u8 = 0xA4;
pub const READ_12: u8 = 0xA8;
pub const WRITE_12: u8 = 0xAA;
pub const VERIFY_12: u8 = 0xAF;
/// Service action of [`SERVICE_ACTION_IN_16`]: READ CAPACITY (16).
pub const ACTION_READ_CAPACITY_16: u8 = 0x10;
/// Service action of [`MAINTENANCE_IN`]: REPORT SUPPORTED OPERATION CODES.
pub const ACTION_REPORT_OPERATIONS: u8 = 0x0C;
/// Service action of [`MAINTENANCE_IN`]: REPORT TIMESTAMP; and of [`MAINTENANCE_OUT`]: SET
/// TIMESTAMP.
pub const ACTION_TIMESTAMP: u8 = 0x0F;
