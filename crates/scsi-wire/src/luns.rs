//! Logical unit numbers: eight bytes, of which a simple target uses two.

use qpair_wire::be::u32_at;

/// A logical unit number in its encoded form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lun(pub [u8; 8]);

impl Lun {
    /// Encodes a plain number: peripheral addressing up to 255, flat addressing up to 16383. `None`
    /// above that.
    #[must_use]
    pub fn of(number: u16) -> Option<Self> {
        let [high, low] = number.to_be_bytes();
        let method = match number {
            0..=0xFF => 0,
            0x100..=0x3FFF => 0x40,
            _ => return None,
        };
        Some(Self([method | high, low, 0, 0, 0, 0, 0, 0]))
    }

    /// Returns the plain number; `None` if another addressing method is used.
    #[must_use]
    pub fn number(self) -> Option<u16> {
        let [first, second, rest @ ..] = self.0;
        let number = u16::from_be_bytes([first & 0x3F, second]);
        let is_plain = match first >> 6 {
            0 => first == 0,
            1 => true,
            _ => false,
        };
        (is_plain && rest == [0; 6]).then_some(number)
    }
}

/// Decodes the units in REPORT LUNS data.
pub fn decode(data: &[u8]) -> impl Iterator<Item = Lun> {
    let end = 8usize.saturating_add(u32_at(data, 0) as usize).min(data.len());
    data.get(8..end).unwrap_or(&[]).as_chunks::<8>().0.iter().map(|bytes| Lun(*bytes))
}

/// Encodes REPORT LUNS data.
#[must_use]
pub fn encode(units: &[Lun]) -> Vec<u8> {
    let mut data = (8 * units.len() as u32).to_be_bytes().to_vec();
    data.extend([0; 4]);
    units.iter().for_each(|lun| data.extend(lun.0));
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_bytes() {
        let luns: Vec<Lun> = [0, 1, 255, 256, 16383].map(|n| Lun::of(n).unwrap()).into();
        assert_eq!(decode(&encode(&luns)).collect::<Vec<_>>(), luns);
        let numbers: Vec<_> = luns.iter().map(|lun| lun.number().unwrap()).collect();
        assert_eq!(numbers, [0, 1, 255, 256, 16383]);
        assert_eq!(Lun::of(16384), None);
        assert_eq!(Lun([0xC1, 1, 0, 0, 0, 0, 0, 0]).number(), None, "a well-known unit");
        assert_eq!(Lun([0, 1, 0, 2, 0, 0, 0, 0]).number(), None, "a second level");
        assert_eq!(decode(&[0xFF; 12]).count(), 0);
    }
}
