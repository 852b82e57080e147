//! Identify data (Base §5.17.2, NVM §4.1.5): the fields that this project reads or fills.

use qpair_wire::le::{u16_at, u32_at, u64_at};
use qpair_wire::{put_text, text};

use crate::IDENTIFY_BYTES;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyController {
    pub vendor: u16,
    pub subsystem_vendor: u16,
    /// Serial number, at most 20 characters.
    pub serial: String,
    /// Model, at most 40 characters.
    pub model: String,
    /// Firmware, at most 8 characters.
    pub firmware: String,
    /// The largest transfer as a power of two of the smallest page; 0: no limit (MDTS).
    pub mdts: u8,
    /// The parts that the subsystem has more than one of (CMIC): bit 1, controllers.
    pub multi_path: u8,
    pub controller_id: u16,
    /// Version, as the register.
    pub version: u32,
    /// Optional asynchronous events (OAES).
    pub async_events: u32,
    /// Optional admin commands (OACS).
    pub admin_commands: u16,
    /// The maximum number of simultaneous aborts, minus one (ACL).
    pub abort_limit: u8,
    /// The maximum number of simultaneous asynchronous event requests, minus one (AERL).
    pub async_event_limit: u8,
    /// Log page attributes (LPA).
    pub log_pages: u8,
    /// The number of namespaces (NN).
    pub namespaces: u32,
    /// Optional NVM commands (ONCS): bit 0 compare, 2 dataset management, 3 write zeroes.
    pub nvm_commands: u16,
    /// Volatile write cache (VWC); bit 0 is set if there is one.
    pub volatile_write_cache: u8,
    /// The blocks written atomically if power fails, minus one (AWUPF).
    pub atomic_write_power_fail: u16,
    /// Scatter-gather lists (SGLS).
    pub scatter_gather: u32,
    pub subsystem: String,
}

impl IdentifyController {
    #[must_use]
    pub fn parse(data: &[u8; IDENTIFY_BYTES]) -> Self {
        Self {
            vendor: u16_at(data, 0),
            subsystem_vendor: u16_at(data, 2),
            serial: text(&data[4..24]),
            model: text(&data[24..64]),
            firmware: text(&data[64..72]),
            multi_path: data[76],
            mdts: data[77],
            controller_id: u16_at(data, 78),
            version: u32_at(data, 80),
            async_events: u32_at(data, 92),
            admin_commands: u16_at(data, 256),
            abort_limit: data[258],
            async_event_limit: data[259],
            log_pages: data[261],
            namespaces: u32_at(data, 516),
            nvm_commands: u16_at(data, 520),
            volatile_write_cache: data[525],
            atomic_write_power_fail: u16_at(data, 528),
            scatter_gather: u32_at(data, 536),
            subsystem: text(&data[768..1024]),
        }
    }

    /// Encodes the data to bytes, for an I/O controller with entries of 64 and 16 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; IDENTIFY_BYTES] {
        let mut data = [0; IDENTIFY_BYTES];
        data[0..2].copy_from_slice(&self.vendor.to_le_bytes());
        data[2..4].copy_from_slice(&self.subsystem_vendor.to_le_bytes());
        put_text(&mut data[4..24], &self.serial);
        put_text(&mut data[24..64], &self.model);
        put_text(&mut data[64..72], &self.firmware);
        data[76] = self.multi_path;
        data[77] = self.mdts;
        data[78..80].copy_from_slice(&self.controller_id.to_le_bytes());
        data[80..84].copy_from_slice(&self.version.to_le_bytes());
        data[92..96].copy_from_slice(&self.async_events.to_le_bytes());
        data[111] = 1;
        data[256..258].copy_from_slice(&self.admin_commands.to_le_bytes());
        data[258] = self.abort_limit;
        data[259] = self.async_event_limit;
        data[261] = self.log_pages;
        // The temperatures of warning and critical alarms in kelvin, because Linux expects values.
        data[266..268].copy_from_slice(&343u16.to_le_bytes());
        data[268..270].copy_from_slice(&353u16.to_le_bytes());
        data[512] = 0x66;
        data[513] = 0x44;
        data[516..520].copy_from_slice(&self.namespaces.to_le_bytes());
        data[520..522].copy_from_slice(&self.nvm_commands.to_le_bytes());
        data[525] = self.volatile_write_cache;
        data[528..530].copy_from_slice(&self.atomic_write_power_fail.to_le_bytes());
        data[536..540].copy_from_slice(&self.scatter_gather.to_le_bytes());
        for (place, byte) in data[768..1024].iter_mut().zip(self.subsystem.bytes()) {
            *place = byte;
        }
        data
    }
}

/// A format of logical blocks (LBAF).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LbaFormat {
    /// The bytes of metadata with each block (MS).
    pub metadata_bytes: u16,
    /// The bytes of data as a power of two (LBADS); below 9: the format is not supported.
    pub data_shift: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentifyNamespace {
    /// The size in blocks (NSZE).
    pub size_blocks: u64,
    /// The number of blocks that can be in use (NCAP); 0: there is no such namespace.
    pub capacity_blocks: u64,
    /// The number of blocks in use (NUSE).
    pub used_blocks: u64,
    /// Features (NSFEAT).
    pub features: u8,
    /// The supported formats, at least one (NLBAF + 1, at most 64).
    pub formats: Vec<LbaFormat>,
    /// The format in use (FLBAS).
    pub format: u8,
    /// Whether metadata comes at the end of each block.
    pub metadata_inline: bool,
    /// The blocks written atomically if power fails, minus one (NAWUPF). Valid if the features (bit
    /// 1) say that the namespace has values of its own; 0: as the controller.
    pub atomic_write_power_fail: u16,
    /// The first boundary of atomic writes, blocks (NABO).
    pub atomic_boundary_offset: u16,
    /// The distance between boundaries in blocks, minus one; 0: there are none (NABSPF).
    pub atomic_boundary_power_fail: u16,
    /// The end-to-end protection in use (DPS), type 0 to 3.
    pub protection: u8,
    /// Whether several controllers can attach the namespace at a time (NMIC).
    pub shared: bool,
    /// Whether the namespace is write-protected (NSATTR).
    pub write_protected: bool,
    /// The globally unique identifier (NGUID); zeroes: none.
    pub nguid: [u8; 16],
    /// The globally unique identifier of 8 bytes (EUI64); zeroes: none.
    pub eui64: [u8; 8],
}

impl IdentifyNamespace {
    #[must_use]
    pub fn parse(data: &[u8; IDENTIFY_BYTES]) -> Self {
        let count = usize::from(data[25]).min(63) + 1;
        let format = |number: usize| {
            let at = 128 + 4 * number;
            LbaFormat { metadata_bytes: u16_at(data, at), data_shift: data[at + 2] }
        };
        let mut nguid = [0; 16];
        nguid.copy_from_slice(&data[104..120]);
        let mut eui64 = [0; 8];
        eui64.copy_from_slice(&data[120..128]);
        Self {
            size_blocks: u64_at(data, 0),
            capacity_blocks: u64_at(data, 8),
            used_blocks: u64_at(data, 16),
            features: data[24],
            formats: (0..count).map(format).collect(),
            format: data[26] & 0xF | (data[26] >> 5 & 3) << 4,
            metadata_inline: data[26] >> 4 & 1 != 0,
            atomic_write_power_fail: u16_at(data, 36),
            atomic_boundary_offset: u16_at(data, 42),
            atomic_boundary_power_fail: u16_at(data, 44),
            protection: data[29] & 7,
            shared: data[30] & 1 != 0,
            write_protected: data[99] & 1 != 0,
            nguid,
            eui64,
        }
    }

    #[must_use]
    pub fn encode(&self) -> [u8; IDENTIFY_BYTES] {
        let mut data = [0; IDENTIFY_BYTES];
        data[0..8].copy_from_slice(&self.size_blocks.to_le_bytes());
        data[8..16].copy_from_slice(&self.capacity_blocks.to_le_bytes());
        data[16..24].copy_from_slice(&self.used_blocks.to_le_bytes());
        data[24] = self.features;
        data[25] = self.formats.len().clamp(1, 64) as u8 - 1;
        data[26] =
            self.format & 0xF | u8::from(self.metadata_inline) << 4 | (self.format >> 4 & 3) << 5;
        data[29] = self.protection;
        data[30] = self.shared.into();
        data[36..38].copy_from_slice(&self.atomic_write_power_fail.to_le_bytes());
        data[42..44].copy_from_slice(&self.atomic_boundary_offset.to_le_bytes());
        data[44..46].copy_from_slice(&self.atomic_boundary_power_fail.to_le_bytes());
        data[99] = self.write_protected.into();
        data[104..120].copy_from_slice(&self.nguid);
        data[120..128].copy_from_slice(&self.eui64);
        for (number, format) in self.formats.iter().take(64).enumerate() {
            let at = 128 + 4 * number;
            data[at..at + 2].copy_from_slice(&format.metadata_bytes.to_le_bytes());
            data[at + 2] = format.data_shift;
        }
        data
    }

    /// Returns the maximum number of blocks, a power of two, that a write that begins at a multiple
    /// of that number leaves all old or all new after a loss of power (NVM §2.1.4). `of_controller`
    /// is the controller's value, minus one (AWUPF).
    #[must_use]
    pub fn atomic_blocks(&self, of_controller: u16) -> u32 {
        let own = Some(self.atomic_write_power_fail)
            .filter(|own| self.features >> 1 & 1 != 0 && *own != 0);
        let blocks = u32::from(own.unwrap_or(of_controller)) + 1;
        let blocks = match (self.atomic_boundary_power_fail, self.atomic_boundary_offset) {
            (0, _) => blocks,
            // The largest power of two that divides the distance: writes that begin at a multiple
            // of it never cross a boundary.
            (last, 0) => blocks.min(1 << (u32::from(last) + 1).trailing_zeros()),
            // If the boundaries do not begin at block 0, no multiple is safe.
            _ => 1,
        };
        1 << blocks.ilog2()
    }

    /// Returns the format in use, if it is one of the supported formats.
    #[must_use]
    pub fn format_in_use(&self) -> Option<LbaFormat> {
        self.formats.get(usize::from(self.format)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_read_as_written() {
        let controller = IdentifyController {
            vendor: 0x1234,
            serial: "S1".into(),
            model: "a model".into(),
            firmware: "1.0".into(),
            mdts: 5,
            multi_path: 2,
            namespaces: 2,
            nvm_commands: 0b1101,
            volatile_write_cache: 1,
            subsystem: "nqn.2026-11.example:x".into(),
            ..IdentifyController::default()
        };
        assert_eq!(IdentifyController::parse(&controller.encode()), controller);
    }

    #[test]
    fn namespaces_read_as_written() {
        let namespace = IdentifyNamespace {
            size_blocks: 1 << 40,
            capacity_blocks: 1 << 39,
            formats: vec![
                LbaFormat { metadata_bytes: 0, data_shift: 9 },
                LbaFormat { metadata_bytes: 8, data_shift: 12 },
            ],
            format: 1,
            shared: true,
            write_protected: true,
            nguid: [7; 16],
            ..IdentifyNamespace::default()
        };
        let read = IdentifyNamespace::parse(&namespace.encode());
        assert_eq!(read, namespace);
        assert_eq!(read.format_in_use(), Some(LbaFormat { metadata_bytes: 8, data_shift: 12 }));
        assert_eq!(IdentifyNamespace::parse(&[0xFF; 4096]).formats.len(), 64);
    }

    #[test]
    fn what_is_atomic_keeps_to_its_boundaries() {
        let atomic = |features, own, offset, boundary| {
            let namespace = IdentifyNamespace {
                features,
                atomic_write_power_fail: own,
                atomic_boundary_offset: offset,
                atomic_boundary_power_fail: boundary,
                ..IdentifyNamespace::default()
            };
            IdentifyNamespace::parse(&namespace.encode()).atomic_blocks(31)
        };
        assert_eq!(atomic(0, 7, 0, 0), 32);
        assert_eq!(atomic(2, 7, 0, 0), 8);
        assert_eq!(atomic(2, 0, 0, 0), 32);
        assert_eq!(atomic(2, 11, 0, 0), 8, "a power of two");
        assert_eq!(atomic(0, 0, 0, 23), 8, "of boundaries 24 blocks apart");
        assert_eq!(atomic(0, 0, 3, 63), 1);
        assert_eq!(atomic(2, u16::MAX, 0, u16::MAX), 65536);
    }

    #[test]
    fn text_of_hostile_drives_is_printable() {
        assert_eq!(IdentifyController::parse(&[0x1B; 4096]).serial, "?".repeat(20));
    }
}
