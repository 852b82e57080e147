//! Numbers that are made up from names, always the same.

/// FNV-1a over what names a namespace, and a last mix so that all bits depend on all.
pub(crate) fn digest(serial: &str, nsid: u32, salt: u8) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in serial.bytes().chain(nsid.to_le_bytes()).chain([salt]) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash ^ (hash >> 33)
}

/// A name for what SAS has names for: locally assigned, as its upper four bits say; the one above
/// it is free.
pub(crate) fn local_name(serial: &str, number: u32, salt: u8) -> u64 {
    3 << 60 | digest(serial, number, salt) & (!0 >> 4) & !3
}
