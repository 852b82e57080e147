//! Sense data: the reason why a command failed. It has two forms with the same content, fixed and
//! descriptor.

use std::fmt;

use qpair_wire::be::{u16_at, u32_at, u64_at};
use qpair_wire::{get, put, u8_at};

/// The size of fixed sense data as encoded here, in bytes.
pub const FIXED_BYTES: usize = 18;
/// The size of descriptor sense data as encoded here, in bytes: the header, information, and a
/// field pointer.
pub const DESCRIPTOR_BYTES: usize = 8 + 12 + 8;

/// The sense key: the class of the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Key {
    #[default]
    NoSense = 0,
    RecoveredError = 1,
    NotReady = 2,
    MediumError = 3,
    HardwareError = 4,
    IllegalRequest = 5,
    UnitAttention = 6,
    DataProtect = 7,
    BlankCheck = 8,
    VendorSpecific = 9,
    CopyAborted = 10,
    AbortedCommand = 11,
    Reserved = 12,
    VolumeOverflow = 13,
    Miscompare = 14,
    Completed = 15,
}

impl Key {
    /// Returns the key with this number; the upper four bits are ignored.
    #[must_use]
    pub fn of(number: u8) -> Self {
        const KEYS: [Key; 16] = [
            Key::NoSense,
            Key::RecoveredError,
            Key::NotReady,
            Key::MediumError,
            Key::HardwareError,
            Key::IllegalRequest,
            Key::UnitAttention,
            Key::DataProtect,
            Key::BlankCheck,
            Key::VendorSpecific,
            Key::CopyAborted,
            Key::AbortedCommand,
            Key::Reserved,
            Key::VolumeOverflow,
            Key::Miscompare,
            Key::Completed,
        ];
        KEYS[usize::from(number & 15)]
    }

    /// Returns the name of the key, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSense => "no sense",
            Self::RecoveredError => "recovered error",
            Self::NotReady => "not ready",
            Self::MediumError => "medium error",
            Self::HardwareError => "hardware error",
            Self::IllegalRequest => "illegal request",
            Self::UnitAttention => "unit attention",
            Self::DataProtect => "data protect",
            Self::BlankCheck => "blank check",
            Self::VendorSpecific => "vendor specific",
            Self::CopyAborted => "copy aborted",
            Self::AbortedCommand => "aborted command",
            Self::Reserved => "reserved",
            Self::VolumeOverflow => "volume overflow",
            Self::Miscompare => "miscompare",
            Self::Completed => "completed",
        }
    }
}

/// The additional sense code and its qualifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Code(pub u8, pub u8);

impl Code {
    pub const NONE: Self = Self(0x00, 0x00);
    pub const BECOMING_READY: Self = Self(0x04, 0x01);
    pub const NEEDS_START: Self = Self(0x04, 0x02);
    pub const WRITE_ERROR: Self = Self(0x0C, 0x00);
    pub const UNRECOVERED_READ_ERROR: Self = Self(0x11, 0x00);
    pub const PARAMETER_LIST_LENGTH: Self = Self(0x1A, 0x00);
    pub const MISCOMPARE: Self = Self(0x1D, 0x00);
    pub const INVALID_OPCODE: Self = Self(0x20, 0x00);
    pub const BLOCK_OUT_OF_RANGE: Self = Self(0x21, 0x00);
    pub const INVALID_FIELD_IN_CDB: Self = Self(0x24, 0x00);
    pub const NO_SUCH_UNIT: Self = Self(0x25, 0x00);
    pub const INVALID_FIELD_IN_LIST: Self = Self(0x26, 0x00);
    pub const WRITE_PROTECTED: Self = Self(0x27, 0x00);
    pub const SPACE_EXHAUSTED: Self = Self(0x27, 0x07);
    pub const POWER_ON_OR_RESET: Self = Self(0x29, 0x00);
    pub const POWER_ON: Self = Self(0x29, 0x01);
    pub const BUS_RESET: Self = Self(0x29, 0x02);
    pub const DEVICE_RESET: Self = Self(0x29, 0x03);
    pub const NEXUS_LOSS: Self = Self(0x29, 0x07);
    pub const MODE_CHANGED: Self = Self(0x2A, 0x01);
    pub const CAPACITY_CHANGED: Self = Self(0x2A, 0x09);
    pub const SAVING_NOT_SUPPORTED: Self = Self(0x39, 0x00);
    pub const NO_MEDIUM: Self = Self(0x3A, 0x00);
    pub const UNITS_CHANGED: Self = Self(0x3F, 0x0E);
    pub const INTERNAL_FAILURE: Self = Self(0x44, 0x00);

    /// Returns the text of a code that disks use; `None` for other codes.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(code, _)| *code == self).map(|(_, name)| *name)
    }
}

/// The part of the standard's list that disks use.
const NAMES: &[(Code, &str)] = &[
    (Code(0x00, 0x00), "no additional sense information"),
    (Code(0x00, 0x1D), "ATA pass-through information available"),
    (Code(0x02, 0x00), "no seek complete"),
    (Code(0x03, 0x00), "peripheral device write fault"),
    (Code(0x04, 0x00), "logical unit not ready, cause not reportable"),
    (Code(0x04, 0x01), "logical unit is in process of becoming ready"),
    (Code(0x04, 0x02), "logical unit not ready, initializing command required"),
    (Code(0x04, 0x03), "logical unit not ready, manual intervention required"),
    (Code(0x04, 0x04), "logical unit not ready, format in progress"),
    (Code(0x04, 0x09), "logical unit not ready, self-test in progress"),
    (Code(0x04, 0x11), "logical unit not ready, notify (enable spinup) required"),
    (Code(0x05, 0x00), "logical unit does not respond to selection"),
    (Code(0x08, 0x00), "logical unit communication failure"),
    (Code(0x0B, 0x00), "warning"),
    (Code(0x0B, 0x01), "warning - specified temperature exceeded"),
    (Code(0x0C, 0x00), "write error"),
    (Code(0x0C, 0x02), "write error - auto reallocation failed"),
    (Code(0x10, 0x00), "ID CRC or ECC error"),
    (Code(0x10, 0x01), "logical block guard check failed"),
    (Code(0x10, 0x02), "logical block application tag check failed"),
    (Code(0x10, 0x03), "logical block reference tag check failed"),
    (Code(0x11, 0x00), "unrecovered read error"),
    (Code(0x11, 0x01), "read retries exhausted"),
    (Code(0x11, 0x04), "unrecovered read error - auto reallocate failed"),
    (Code(0x14, 0x01), "record not found"),
    (Code(0x15, 0x01), "mechanical positioning error"),
    (Code(0x17, 0x01), "recovered data with retries"),
    (Code(0x18, 0x00), "recovered data with error correction applied"),
    (Code(0x1A, 0x00), "parameter list length error"),
    (Code(0x1D, 0x00), "miscompare during verify operation"),
    (Code(0x20, 0x00), "invalid command operation code"),
    (Code(0x21, 0x00), "logical block address out of range"),
    (Code(0x24, 0x00), "invalid field in CDB"),
    (Code(0x25, 0x00), "logical unit not supported"),
    (Code(0x26, 0x00), "invalid field in parameter list"),
    (Code(0x27, 0x00), "write protected"),
    (Code(0x27, 0x07), "space allocation failed write protect"),
    (Code(0x28, 0x00), "not ready to ready change, medium may have changed"),
    (Code(0x29, 0x00), "power on, reset, or bus device reset occurred"),
    (Code(0x29, 0x01), "power on occurred"),
    (Code(0x29, 0x02), "SCSI bus reset occurred"),
    (Code(0x29, 0x03), "bus device reset function occurred"),
    (Code(0x29, 0x04), "device internal reset"),
    (Code(0x29, 0x07), "I_T nexus loss occurred"),
    (Code(0x2A, 0x01), "mode parameters changed"),
    (Code(0x2A, 0x09), "capacity data has changed"),
    (Code(0x2F, 0x00), "commands cleared by another initiator"),
    (Code(0x31, 0x00), "medium format corrupted"),
    (Code(0x32, 0x00), "no defect spare location available"),
    (Code(0x38, 0x07), "thin provisioning soft threshold reached"),
    (Code(0x39, 0x00), "saving parameters not supported"),
    (Code(0x3A, 0x00), "medium not present"),
    (Code(0x3F, 0x01), "microcode has been changed"),
    (Code(0x3F, 0x0E), "reported LUNs data has changed"),
    (Code(0x44, 0x00), "internal target failure"),
    (Code(0x47, 0x00), "SCSI parity error"),
    (Code(0x47, 0x03), "information unit iuCRC error detected"),
    (Code(0x48, 0x00), "initiator detected error message received"),
    (Code(0x4B, 0x00), "data phase error"),
    (Code(0x4E, 0x00), "overlapped commands attempted"),
    (Code(0x55, 0x03), "insufficient resources"),
    (Code(0x5D, 0x00), "failure prediction threshold exceeded"),
    (Code(0x5D, 0xFF), "failure prediction threshold exceeded (false)"),
];

/// The content of sense data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sense {
    /// The class of the reason.
    pub key: Key,
    /// The reason.
    pub code: Code,
    /// Whether the error belongs to an earlier command.
    pub is_deferred: bool,
    /// The block of a medium error.
    pub information: Option<u64>,
    /// The invalid byte of an illegal request, and whether the byte is in the command descriptor
    /// block or in the parameters.
    pub field: Option<(u16, bool)>,
}

impl Sense {
    /// Creates sense data with only a key and a code.
    #[must_use]
    pub fn new(key: Key, code: Code) -> Self {
        Self { key, code, ..Self::default() }
    }

    /// Creates sense data for an invalid byte of the command descriptor block.
    #[must_use]
    pub fn invalid_field(byte: u16) -> Self {
        let field = Some((byte, true));
        Self { field, ..Self::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_CDB) }
    }

    /// Decodes either form; `None` if the bytes are not sense data.
    #[must_use]
    pub fn decode(data: &[u8]) -> Option<Self> {
        let response = *data.first()? & 0x7F;
        match response {
            0x70 | 0x71 => Some(Self::decode_fixed(data, response == 0x71)),
            0x72 | 0x73 => Some(Self::decode_descriptors(data, response == 0x73)),
            _ => None,
        }
    }

    fn decode_fixed(data: &[u8], is_deferred: bool) -> Self {
        // The additional length may cover fewer bytes than were received.
        let len = (8 + usize::from(u8_at(data, 7))).min(data.len());
        let data = &data[..len];
        let is_valid = u8_at(data, 0) & 0x80 != 0;
        let field = field_of(&get::<3>(data, 15));
        Self {
            key: Key::of(u8_at(data, 2)),
            code: Code(u8_at(data, 12), u8_at(data, 13)),
            is_deferred,
            information: is_valid.then(|| u32_at(data, 3).into()),
            field,
        }
    }

    fn decode_descriptors(data: &[u8], is_deferred: bool) -> Self {
        let code = Code(u8_at(data, 2), u8_at(data, 3));
        let key = Key::of(u8_at(data, 1));
        let mut sense = Self { key, code, is_deferred, information: None, field: None };
        let end = (8 + usize::from(u8_at(data, 7))).min(data.len());
        let mut rest = data.get(8..end).unwrap_or(&[]);
        while let [kind, len, ..] = *rest {
            let (one, next) = rest.split_at((2 + usize::from(len)).min(rest.len()));
            match kind {
                0x00 if one.len() >= 12 && one[2] & 0x80 != 0 => {
                    sense.information = Some(u64_at(one, 4));
                }
                0x02 if one.len() >= 7 => sense.field = field_of(&get::<3>(one, 4)),
                _ => {}
            }
            rest = next;
        }
        sense
    }

    /// Encodes the fixed form. Information over 32 bits is left out, since the form has no room for
    /// it.
    #[must_use]
    pub fn encode_fixed(&self) -> [u8; FIXED_BYTES] {
        let mut data = [0; FIXED_BYTES];
        data[0] = 0x70 | u8::from(self.is_deferred);
        data[2] = self.key as u8;
        if let Some(information) = self.information.and_then(|it| u32::try_from(it).ok()) {
            data[0] |= 0x80;
            put(&mut data, 3, &information.to_be_bytes());
        }
        data[7] = (FIXED_BYTES - 8) as u8;
        (data[12], data[13]) = (self.code.0, self.code.1);
        put(&mut data, 15, &self.field_bytes());
        data
    }

    /// Encodes the descriptor form. Returns the bytes, and how many of them are used.
    #[must_use]
    pub fn encode_descriptors(&self) -> ([u8; DESCRIPTOR_BYTES], usize) {
        let mut data = [0; DESCRIPTOR_BYTES];
        data[0] = 0x72 | u8::from(self.is_deferred);
        data[1] = self.key as u8;
        (data[2], data[3]) = (self.code.0, self.code.1);
        let mut at = 8;
        if let Some(information) = self.information {
            put(&mut data, at, &[0x00, 0x0A, 0x80]);
            put(&mut data, at + 4, &information.to_be_bytes());
            at += 12;
        }
        if self.field.is_some() {
            put(&mut data, at, &[0x02, 0x06]);
            put(&mut data, at + 4, &self.field_bytes());
            at += 8;
        }
        data[7] = (at - 8) as u8;
        (data, at)
    }

    fn field_bytes(&self) -> [u8; 3] {
        let Some((byte, is_cdb)) = self.field else { return [0; 3] };
        let [high, low] = byte.to_be_bytes();
        [0x80 | u8::from(is_cdb) << 6, high, low]
    }
}

/// Decodes the sense-key specific bytes as a pointer to a field.
fn field_of(bytes: &[u8; 3]) -> Option<(u16, bool)> {
    (bytes[0] & 0x80 != 0).then(|| (u16_at(bytes, 1), bytes[0] & 0x40 != 0))
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Code(code, qualifier) = self.code;
        write!(f, "{}, {code:02x}/{qualifier:02x}", self.key.name())?;
        if let Some(name) = self.code.name() {
            write!(f, " {name}")?;
        }
        if let Some(information) = self.information {
            write!(f, ", at block {information}")?;
        }
        if let Some((byte, is_cdb)) = self.field {
            write!(f, ", byte {byte} of the {}", if is_cdb { "CDB" } else { "parameter list" })?;
        }
        if self.is_deferred {
            write!(f, ", of an earlier command")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_sense() -> impl Strategy<Value = Sense> {
        (
            0u8..16,
            any::<(u8, u8)>(),
            any::<bool>(),
            any::<Option<u32>>(),
            any::<Option<(u16, bool)>>(),
        )
            .prop_map(|(key, (code, qualifier), is_deferred, information, field)| Sense {
                key: Key::of(key),
                code: Code(code, qualifier),
                is_deferred,
                information: information.map(u64::from),
                field,
            })
    }

    proptest! {
        #[test]
        fn both_forms_say_the_same(sense in any_sense()) {
            prop_assert_eq!(Sense::decode(&sense.encode_fixed()), Some(sense));
            let (data, len) = sense.encode_descriptors();
            prop_assert_eq!(Sense::decode(&data[..len]), Some(sense));
        }

        #[test]
        fn any_bytes_are_read(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut data = data;
            let _ = Sense::decode(&data);
            if let Some(first) = data.first_mut() {
                *first = 0x72;
            }
            let _ = Sense::decode(&data);
        }
    }

    #[test]
    fn wide_information_needs_descriptors() {
        let sense = Sense {
            information: Some(1 << 40),
            ..Sense::new(Key::MediumError, Code::UNRECOVERED_READ_ERROR)
        };
        assert_eq!(Sense::decode(&sense.encode_fixed()).unwrap().information, None);
        let (data, len) = sense.encode_descriptors();
        assert_eq!(Sense::decode(&data[..len]), Some(sense));
        assert_eq!(
            sense.to_string(),
            "medium error, 11/00 unrecovered read error, at block 1099511627776"
        );
    }

    /// The bytes are sense data as Linux logs it:
    /// `72 05 24 00 00 00 00 08 02 06 00 00 c0 00 01 00`.
    #[test]
    fn a_pasted_one() {
        let data = [0x72, 5, 0x24, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0xC0, 0, 1, 0];
        let sense = Sense::decode(&data).unwrap();
        assert_eq!(
            sense.to_string(),
            "illegal request, 24/00 invalid field in CDB, byte 1 of the CDB"
        );
        assert_eq!(Sense::decode(&[]), None);
        assert_eq!(Sense::decode(&[0x7F; 18]), None);
    }
}
