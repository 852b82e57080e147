//! The PCI configuration space of a function with power management, MSI-X and PCI Express
//! capabilities.
//!
//! A mask for the bytes says which bits can be written. All others keep their value.

/// The size of a configuration space in bytes, including the extended space, which is empty.
pub const CONFIG_BYTES: usize = 4096;
/// The size of BAR 4 in bytes. The BAR holds the MSI-X table, followed by the pending bits.
pub const BAR4_BYTES: u64 = 0x4000;
/// The offset of the pending bits in BAR 4.
const PENDING_BYTES_AT: u32 = 0x2000;

/// The numbers by which drivers recognize a kind of function.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    pub vendor: u16,
    pub device: u16,
    pub revision: u8,
    /// The class code, with the programming interface first.
    pub class: [u8; 3],
    /// The size of BAR 0 in bytes, a power of two.
    pub bar0_bytes: u64,
}

const POWER_AT: usize = 0x40;
const MSIX_AT: usize = 0x50;
const EXPRESS_AT: usize = 0x60;
/// The offset of appended capabilities, after the PCI Express capability.
const APPENDED_AT: usize = 0xA0;
/// Device control, in the PCI Express capability. Its bit 15 resets the function.
const DEVICE_CONTROL_AT: usize = EXPRESS_AT + 8;
const STATUS_AT: usize = 0x06;

/// A configuration space, and which of its bits can be written.
#[derive(Debug)]
pub struct Config {
    bytes: Box<[u8; CONFIG_BYTES]>,
    writable: Box<[u8; CONFIG_BYTES]>,
}

impl Config {
    /// Returns the space in its state after a reset, for `vectors` MSI-X vectors.
    #[must_use]
    pub fn new(identity: &Identity, vectors: u16) -> Self {
        let mut config =
            Self { bytes: Box::new([0; CONFIG_BYTES]), writable: Box::new([0; CONFIG_BYTES]) };
        config.put(0x00, &identity.vendor.to_le_bytes(), &[]);
        config.put(0x02, &identity.device.to_le_bytes(), &[]);
        // Writable bits of the command register: memory, bus master, parity and system errors, no
        // INTx.
        config.put(0x04, &[0, 0], &0x0546u16.to_le_bytes());
        // The status register says that there is a list of capabilities.
        config.put(STATUS_AT, &0x0010u16.to_le_bytes(), &[]);
        config.put(0x08, &[identity.revision], &[]);
        config.put(0x09, &identity.class, &[]);
        config.put(0x0C, &[0], &[0xFF]);
        // BAR 0: memory, 64 bits; BAR 4: memory, 32 bits. Bits below the size read as zero, which
        // tells a driver the size.
        config.put(0x10, &[4, 0, 0, 0], &size_mask(identity.bar0_bytes));
        config.put(0x14, &[0; 4], &[0xFF; 4]);
        config.put(0x20, &[0; 4], &size_mask(BAR4_BYTES));
        config.put(0x2C, &identity.vendor.to_le_bytes(), &[]);
        config.put(0x2E, &identity.device.to_le_bytes(), &[]);
        config.put(0x34, &[POWER_AT as u8], &[]);
        config.put(0x3C, &[0], &[0xFF]);
        config.put_power();
        config.put_msix(vectors);
        config.put_express();
        config
    }

    /// Appends capabilities to the others, and links them.
    pub fn append(&mut self, capabilities: &[Vec<u8>]) {
        let (mut at, mut link) = (APPENDED_AT, EXPRESS_AT + 1);
        for bytes in capabilities {
            self.put(at, bytes, &[]);
            self.put(link, &[at as u8], &[]);
            link = at + 1;
            at += bytes.len().next_multiple_of(4);
        }
    }

    fn put_power(&mut self) {
        self.put(POWER_AT, &[0x01, MSIX_AT as u8], &[]);
        self.put(POWER_AT + 2, &0x0003u16.to_le_bytes(), &[]);
        // There is no soft reset from D3 to D0, and the power state can be written.
        self.put(POWER_AT + 4, &0x0008u16.to_le_bytes(), &0x0003u16.to_le_bytes());
    }

    fn put_msix(&mut self, vectors: u16) {
        self.put(MSIX_AT, &[0x11, EXPRESS_AT as u8], &[]);
        self.put(MSIX_AT + 2, &vectors.saturating_sub(1).to_le_bytes(), &0xC000u16.to_le_bytes());
        self.put(MSIX_AT + 4, &4u32.to_le_bytes(), &[]);
        self.put(MSIX_AT + 8, &(PENDING_BYTES_AT | 4).to_le_bytes(), &[]);
    }

    fn put_express(&mut self) {
        self.put(EXPRESS_AT, &[0x10, 0x00], &[]);
        // Version 2, an endpoint.
        self.put(EXPRESS_AT + 2, &0x0002u16.to_le_bytes(), &[]);
        // Role-based errors, function level reset.
        self.put(EXPRESS_AT + 4, &(1u32 << 15 | 1 << 28).to_le_bytes(), &[]);
        self.put(DEVICE_CONTROL_AT, &[0, 0], &0x7FFFu16.to_le_bytes());
        // A link of four lanes at 8 GT/s, in use.
        self.put(EXPRESS_AT + 12, &(3u32 | 4 << 4).to_le_bytes(), &[]);
        self.put(EXPRESS_AT + 16, &[0, 0], &0x0FFFu16.to_le_bytes());
        self.put(EXPRESS_AT + 18, &(3u16 | 4 << 4).to_le_bytes(), &[]);
        self.put(EXPRESS_AT + 40, &[0, 0], &0xFFFFu16.to_le_bytes());
    }

    fn put(&mut self, at: usize, bytes: &[u8], writable: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.writable[at..at + writable.len()].copy_from_slice(writable);
    }

    /// Reads a range. Returns false if it is not inside the space.
    pub fn read(&self, offset: u32, into: &mut [u8]) -> bool {
        let start = offset as usize;
        let Some(bytes) = start.checked_add(into.len()).and_then(|end| self.bytes.get(start..end))
        else {
            return false;
        };
        into.copy_from_slice(bytes);
        true
    }

    /// Writes a range and returns whether the function must be reset; `None` if the range is not
    /// inside the space.
    pub fn write(&mut self, offset: u32, from: &[u8]) -> Option<bool> {
        let start = offset as usize;
        let end = start.checked_add(from.len()).filter(|end| *end <= CONFIG_BYTES)?;
        for (at, byte) in (start..end).zip(from) {
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
        }
        let resets = (start..end).contains(&(DEVICE_CONTROL_AT + 1))
            && from[DEVICE_CONTROL_AT + 1 - start] & 0x80 != 0;
        Some(resets)
    }
}

fn size_mask(bytes: u64) -> [u8; 4] {
    (!(bytes as u32 - 1)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity {
        vendor: 0x1234,
        device: 0x5678,
        revision: 1,
        class: [0x02, 0x08, 0x01],
        bar0_bytes: 0x4000,
    };

    fn u32_at(config: &Config, at: u32) -> u32 {
        let mut bytes = [0; 4];
        assert!(config.read(at, &mut bytes));
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn a_driver_finds_class_sizes_and_capabilities() {
        let mut config = Config::new(&IDENTITY, 33);
        assert_eq!(u32_at(&config, 8) >> 8, 0x01_08_02);
        for (bar, size, kind) in [(0x10, IDENTITY.bar0_bytes, 4), (0x20, BAR4_BYTES, 0)] {
            assert_eq!(config.write(bar, &[0xFF; 4]), Some(false));
            assert_eq!(u64::from(!(u32_at(&config, bar) & !0xF)) + 1, size);
            assert_eq!(u32_at(&config, bar) & 0xF, kind);
        }
        let mut found = Vec::new();
        let mut at = u32_at(&config, 0x34) & 0xFF;
        while at != 0 {
            let word = u32_at(&config, at);
            found.push(word & 0xFF);
            if word & 0xFF == 0x11 {
                assert_eq!((word >> 16 & 0x7FF) + 1, 33);
            }
            at = word >> 8 & 0xFF;
        }
        assert_eq!(found, [0x01, 0x11, 0x10]);
        assert_eq!(u32_at(&config, 0x100), 0, "no extended capabilities");
    }

    #[test]
    fn only_what_can_be_written_is() {
        let mut config = Config::new(&IDENTITY, 1);
        let before: Vec<u32> =
            [0, 8, 0x18, 0x2C, 0x34, 0x40, 0x54].map(|at| u32_at(&config, at)).into();
        assert_eq!(config.write(0, &[0xFF; CONFIG_BYTES]), Some(true), "bit 15 of device control");
        let after: Vec<u32> =
            [0, 8, 0x18, 0x2C, 0x34, 0x40, 0x54].map(|at| u32_at(&config, at)).into();
        assert_eq!(before, after);
        assert_eq!(u32_at(&config, 4) & 0xFFFF, 0x0546);
        assert_eq!(config.write(4095, &[0, 0]), None);
        assert_eq!(config.write(u32::MAX, &[0]), None);
        assert!(!config.read(4093, &mut [0; 4]));
        assert_eq!(config.write(DEVICE_CONTROL_AT as u32, &[0, 0x80]), Some(true));
        assert_eq!(config.write(DEVICE_CONTROL_AT as u32, &[0x80]), Some(false));
    }
}
