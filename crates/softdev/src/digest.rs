//! Stable pseudo-random numbers that are derived from names.

/// Returns an FNV-1a hash of the serial number, the namespace and the salt, with a final mix so
/// that every bit depends on the whole input.
pub(crate) fn digest(serial: &str, nsid: u32, salt: u8) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in serial.bytes().chain(nsid.to_le_bytes()).chain([salt]) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash ^ (hash >> 33)
}

/// Returns a locally assigned NAA name (as the upper four bits say) where SAS needs a name. The
/// next higher name is not used for anything else.
pub(crate) fn local_name(serial: &str, number: u32, salt: u8) -> u64 {
    3 << 60 | digest(serial, number, salt) & (!0 >> 4) & !3
}
