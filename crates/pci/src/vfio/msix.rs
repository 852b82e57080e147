//! Where a function keeps its MSI-X table: programs may not write it, or an interrupt could be sent anywhere.

/// The place of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MsixTable {
    pub(super) bar: u8,
    pub(super) offset: u64,
    pub(super) len: u64,
}

const STATUS: usize = 0x06;
const STATUS_CAPABILITIES: u8 = 1 << 4;
const CAPABILITIES: usize = 0x34;
const CAP_MSIX: u8 = 0x11;

impl MsixTable {
    /// Finds it in a configuration space of at least 256 bytes (PCI 3.0 §6.8.2).
    pub(super) fn find(config: &[u8; 256]) -> Option<Self> {
        if config[STATUS] & STATUS_CAPABILITIES == 0 {
            return None;
        }
        let mut at = usize::from(config[CAPABILITIES] & !3);
        for _ in 0..48 {
            let cap = config.get(at..at + 8).filter(|_| at >= 0x40)?;
            if cap[0] == CAP_MSIX {
                let vectors = u64::from(u16::from_le_bytes([cap[2], cap[3]]) & 0x7FF) + 1;
                let place = u32::from_le_bytes([cap[4], cap[5], cap[6], cap[7]]);
                let (bar, offset) = ((place & 7) as u8, u64::from(place & !7));
                return Some(Self { bar, offset, len: 16 * vectors });
            }
            at = usize::from(cap[1] & !3);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // A chain in a circle.
        config[0x50..0x52].copy_from_slice(&[0x05, 0x40]);
        assert_eq!(MsixTable::find(&config), None);
        assert_eq!(MsixTable::find(&[0xff; 256]), None);
    }
}
