//! Standard inquiry data: the kind and the name of a unit.

use qpair_wire::{put_text, text, u8_at};

/// The size of inquiry data as encoded here, in bytes.
pub const INQUIRY_BYTES: usize = 96;
/// The type of a direct access block device: a disk.
pub const TYPE_DISK: u8 = 0x00;
/// The type of a host-managed zoned disk.
pub const TYPE_ZONED: u8 = 0x14;
/// The type of a unit that does not exist.
pub const TYPE_NONE: u8 = 0x1F;

/// Standard inquiry data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inquiry {
    /// The peripheral qualifier. 0: the unit exists; 1: it could exist; 3: it cannot exist.
    pub qualifier: u8,
    pub device_type: u8,
    /// Whether the medium is removable.
    pub is_removable: bool,
    /// The version of the standard (6: SPC-4, 7: SPC-5).
    pub version: u8,
    /// Whether the unit has protection information (PROTECT).
    pub protect: bool,
    /// Whether the unit queues commands (CMDQUE).
    pub queues: bool,
    /// The vendor, at most 8 characters.
    pub vendor: String,
    /// The product, at most 16 characters.
    pub product: String,
    /// The revision, at most 4 characters.
    pub revision: String,
}

impl Inquiry {
    /// Decodes the data; `None` if it is shorter than the 36 bytes that every unit has.
    #[must_use]
    pub fn decode(data: &[u8]) -> Option<Self> {
        if data.len() < 36 {
            return None;
        }
        Some(Self {
            qualifier: data[0] >> 5,
            device_type: data[0] & 0x1F,
            is_removable: data[1] & 0x80 != 0,
            version: data[2],
            protect: data[5] & 1 != 0,
            queues: u8_at(data, 7) & 2 != 0,
            vendor: text(&data[8..16]),
            product: text(&data[16..32]),
            revision: text(&data[32..36]),
        })
    }

    /// Encodes the data, with version descriptors of SAM-5, SPC-4 and SBC-3.
    #[must_use]
    pub fn encode(&self) -> [u8; INQUIRY_BYTES] {
        let mut data = [0; INQUIRY_BYTES];
        data[0] = self.qualifier << 5 | self.device_type & 0x1F;
        data[1] = u8::from(self.is_removable) << 7;
        data[2] = self.version;
        // The response format is 2, and LUNs are hierarchical.
        data[3] = 0x12;
        data[4] = (INQUIRY_BYTES - 5) as u8;
        data[5] = u8::from(self.protect);
        data[7] = u8::from(self.queues) << 1;
        put_text(&mut data[8..16], &self.vendor);
        put_text(&mut data[16..32], &self.product);
        put_text(&mut data[32..36], &self.revision);
        data[58..64].copy_from_slice(&[0x00, 0xA0, 0x04, 0x60, 0x04, 0xC0]);
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_bytes() {
        let inquiry = Inquiry {
            qualifier: 0,
            device_type: TYPE_DISK,
            is_removable: false,
            version: 6,
            protect: false,
            queues: true,
            vendor: "QPAIR".into(),
            product: "SOFT SAS".into(),
            revision: "0001".into(),
        };
        assert_eq!(Inquiry::decode(&inquiry.encode()), Some(inquiry));
        assert_eq!(Inquiry::decode(&[0; 35]), None);
        assert!(Inquiry::decode(&[0xFF; 36]).unwrap().vendor.starts_with('?'));
    }
}
