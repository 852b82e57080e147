//! The commands that a disk supports.

use qpair_scsi_wire::command::opcode;

/// The commands, each with the bits of its descriptor block that are evaluated.
pub(crate) const OPERATIONS: &[(u8, Option<u16>, &[u8])] = &[
    (opcode::TEST_UNIT_READY, None, &[0x00, 0, 0, 0, 0, 0]),
    (opcode::REQUEST_SENSE, None, &[0x03, 1, 0, 0, 0xFF, 0]),
    (opcode::READ_6, None, &[0x08, 0x1F, 0xFF, 0xFF, 0xFF, 0]),
    (opcode::WRITE_6, None, &[0x0A, 0x1F, 0xFF, 0xFF, 0xFF, 0]),
    (opcode::INQUIRY, None, &[0x12, 1, 0xFF, 0xFF, 0xFF, 0]),
    (opcode::MODE_SELECT_6, None, &[0x15, 0x11, 0, 0, 0xFF, 0]),
    (opcode::MODE_SENSE_6, None, &[0x1A, 8, 0xFF, 0xFF, 0xFF, 0]),
    (opcode::START_STOP_UNIT, None, &[0x1B, 1, 0, 0, 0xF1, 0]),
    (opcode::READ_CAPACITY_10, None, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    (opcode::READ_10, None, &[0x28, 0xE8, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]),
    (opcode::WRITE_10, None, &[0x2A, 0xE8, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]),
    (opcode::VERIFY_10, None, &[0x2F, 0xF6, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]),
    (opcode::SYNCHRONIZE_CACHE_10, None, &[0x35, 2, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]),
    (opcode::WRITE_SAME_10, None, &[0x41, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]),
    (opcode::UNMAP, None, &[0x42, 1, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0]),
    (opcode::LOG_SENSE, None, &[0x4D, 1, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0]),
    (opcode::MODE_SELECT_10, None, &[0x55, 0x11, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0]),
    (opcode::MODE_SENSE_10, None, &[0x5A, 8, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0]),
    (opcode::READ_16, None, &SIXTEEN[0]),
    (opcode::WRITE_16, None, &SIXTEEN[1]),
    (opcode::VERIFY_16, None, &SIXTEEN[2]),
    (opcode::SYNCHRONIZE_CACHE_16, None, &SIXTEEN[3]),
    (opcode::WRITE_SAME_16, None, &SIXTEEN[4]),
    (
        opcode::SERVICE_ACTION_IN_16,
        Some(opcode::ACTION_READ_CAPACITY_16 as u16),
        &[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
    ),
    (opcode::REPORT_LUNS, None, &[0xA0, 0, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]),
    (
        opcode::MAINTENANCE_IN,
        Some(opcode::ACTION_REPORT_OPERATIONS as u16),
        &[0xA3, 0x0C, 0x87, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
    ),
    (
        opcode::MAINTENANCE_IN,
        Some(opcode::ACTION_TIMESTAMP as u16),
        &[0xA3, 0x0F, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
    ),
    (
        opcode::MAINTENANCE_OUT,
        Some(opcode::ACTION_TIMESTAMP as u16),
        &[0xA4, 0x0F, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0],
    ),
    (opcode::READ_12, None, &TWELVE[0]),
    (opcode::WRITE_12, None, &TWELVE[1]),
    (opcode::VERIFY_12, None, &TWELVE[2]),
];
const SIXTEEN: [[u8; 16]; 5] = [
    sixteen(opcode::READ_16, 0xE8),
    sixteen(opcode::WRITE_16, 0xE8),
    sixteen(opcode::VERIFY_16, 0xF6),
    sixteen(opcode::SYNCHRONIZE_CACHE_16, 2),
    sixteen(opcode::WRITE_SAME_16, 0xF9),
];
const TWELVE: [[u8; 12]; 3] = [
    twelve(opcode::READ_12, 0xE8),
    twelve(opcode::WRITE_12, 0xE8),
    twelve(opcode::VERIFY_12, 0xF6),
];

const fn sixteen(opcode: u8, flags: u8) -> [u8; 16] {
    let mut usage = [0xFF; 16];
    (usage[0], usage[1], usage[14], usage[15]) = (opcode, flags, 0, 0);
    usage
}

const fn twelve(opcode: u8, flags: u8) -> [u8; 12] {
    let mut usage = [0xFF; 12];
    (usage[0], usage[1], usage[10], usage[11]) = (opcode, flags, 0, 0);
    usage
}
