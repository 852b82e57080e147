//! Locates a function's MSI-X table. Programs may not write the table, or they could make the
//! device send an interrupt anywhere.

use crate::{find_capability, msix};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MsixTable {
    pub(super) bar: u8,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl MsixTable {
    /// Finds the table in a configuration space of at least 256 bytes (PCI 3.0 §6.8.2).
    pub(super) fn find(config: &[u8; 256]) -> Option<Self> {
        let at = find_capability(config, msix::NUMBER)?;
        let cap = config.get(at..at + 8)?;
        let vectors = u64::from(u16::from_le_bytes([cap[2], cap[3]]) & 0x7FF) + 1;
        let place = u32::from_le_bytes([cap[4], cap[5], cap[6], cap[7]]);
        let (bar, offset) = ((place & 7) as u8, u64::from(place & !7));
        Some(Self { bar, offset, len: 16 * vectors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP_MSIX: u8 = msix::NUMBER;
    const STATUS: usize = 0x06;
    const STATUS_CAPABILITIES: u8 = 1 << 4;
    const CAPABILITIES: usize = 0x34;

    #[test]
    fn is_found_behind_others() {
        let mut config = [0; 256];
        assert_eq!(MsixTable::find(&config), None);
        config[STATUS] = STATUS_CAPABILITIES;
        assert_eq!(MsixTable::find(&config), None);
        config[CAPABILITIES] = 0x40;
        config[0x40..0x42].copy_from_slice(&[0x01, 0x50]);
        config[0x50..0x58].copy_from_slice(&[CAP_MSIX, 0, 64, 0x80, 0x04, 0x20, 0, 0]);
        let table = MsixTable { bar: 4, offset: 0x2000, len: 65 * 16 };
        assert_eq!(MsixTable::find(&config), Some(table));
        // A circular chain of capabilities.
        config[0x50..0x52].copy_from_slice(&[0x05, 0x40]);
        assert_eq!(MsixTable::find(&config), None);
        assert_eq!(MsixTable::find(&[0xff; 256]), None);
    }
}
