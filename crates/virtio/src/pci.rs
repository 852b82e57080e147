//! Virtio over PCI, version 1: ids, capabilities, the common configuration.

pub const VENDOR: u16 = 0x1AF4;
/// The number of a vendor-specific capability, the kind that virtio uses.
pub const CAPABILITY_VENDOR: u8 = 0x09;

pub const KIND_COMMON: u8 = 1;
/// Capability for the notification area of queues.
pub const KIND_NOTIFY: u8 = 2;
/// Capability for the cause of an interrupt without MSI-X.
pub const KIND_ISR: u8 = 3;
pub const KIND_DEVICE: u8 = 4;

/// The vector number that stands for none, for a queue or the configuration.
pub const NO_VECTOR: u16 = 0xFFFF;

pub mod common {
    /// The index of the device feature word to read. u32.
    pub const DEVICE_FEATURE_SELECT: u64 = 0;
    /// The selected word of the device's features. u32.
    pub const DEVICE_FEATURE: u64 = 4;
    /// The index of the driver feature word to write. u32.
    pub const DRIVER_FEATURE_SELECT: u64 = 8;
    /// The selected word of the driver's features. u32.
    pub const DRIVER_FEATURE: u64 = 12;
    /// The vector for changes of the configuration. u16.
    pub const CONFIG_VECTOR: u64 = 16;
    /// The number of queues. u16.
    pub const QUEUES: u64 = 18;
    /// The status. u8.
    pub const STATUS: u64 = 20;
    /// A counter that changes with the device's configuration. u8.
    pub const GENERATION: u64 = 21;
    /// The queue that the following registers apply to. u16.
    pub const QUEUE_SELECT: u64 = 22;
    /// The size of the queue. u16.
    pub const QUEUE_SIZE: u64 = 24;
    /// The vector of the queue. u16.
    pub const QUEUE_VECTOR: u64 = 26;
    /// Whether the queue is in use. u16.
    pub const QUEUE_ENABLE: u64 = 28;
    /// The offset at which the queue is notified, in units of the capability's multiplier. u16.
    pub const QUEUE_NOTIFY: u64 = 30;
    /// The address of the queue's descriptors, as two u32.
    pub const QUEUE_DESCRIPTORS: u64 = 32;
    /// The address of the queue's available ring, as two u32.
    pub const QUEUE_AVAILABLE: u64 = 40;
    /// The address of the queue's used ring, as two u32.
    pub const QUEUE_USED: u64 = 48;
    pub const BYTES: u64 = 56;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The kind: one of the `KIND_` values.
    pub kind: u8,
    pub bar: u8,
    /// The offset of the area in the BAR.
    pub offset: u32,
    pub len: u32,
    /// For [`KIND_NOTIFY`]: the bytes from one queue's place to the next.
    pub multiplier: u32,
}

/// The maximum number of capabilities to look at, so that a circular list ends.
const CAPABILITIES_MAX: usize = 48;

pub fn capabilities(config: &[u8; 256]) -> impl Iterator<Item = Capability> {
    let has_list = config[0x06] & 0x10 != 0;
    let mut at = if has_list { usize::from(config[0x34] & 0xFC) } else { 0 };
    let list = std::iter::from_fn(move || {
        let here = config.get(at..).filter(|_| at >= 0x40)?;
        at = usize::from(here[1] & 0xFC);
        Some(here)
    });
    list.take(CAPABILITIES_MAX).filter_map(|here| {
        let word = |at: usize| Some(u32::from_le_bytes(*here.get(at..)?.first_chunk::<4>()?));
        let kind = *here.get(3)?;
        (here[0] == CAPABILITY_VENDOR).then_some(())?;
        let multiplier = if kind == KIND_NOTIFY { word(16)? } else { 0 };
        Some(Capability { kind, bar: *here.get(4)?, offset: word(8)?, len: word(12)?, multiplier })
    })
}

impl Capability {
    /// Encodes the capability without its link.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let len = if self.kind == KIND_NOTIFY { 20 } else { 16 };
        let mut bytes = vec![CAPABILITY_VENDOR, 0, len, self.kind, self.bar, 0, 0, 0];
        bytes.extend(self.offset.to_le_bytes());
        bytes.extend(self.len.to_le_bytes());
        if self.kind == KIND_NOTIFY {
            bytes.extend(self.multiplier.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_found() {
        let mut config = [0; 256];
        config[0x34] = 0x40;
        let one =
            Capability { kind: KIND_NOTIFY, bar: 4, offset: 0x3000, len: 0x1000, multiplier: 4 };
        let two = Capability { kind: KIND_COMMON, bar: 4, offset: 0, len: 0x38, multiplier: 0 };
        config[0x40..0x54].copy_from_slice(&one.encode());
        config[0x41] = 0x60;
        // A capability of another type in between.
        config[0x60..0x62].copy_from_slice(&[0x11, 0xF0]);
        config[0xF0..].copy_from_slice(&two.encode());
        assert_eq!(capabilities(&config).count(), 0, "no list");
        config[6] = 0x10;
        assert_eq!(capabilities(&config).collect::<Vec<_>>(), [one, two]);
        // One capability links to itself, and one extends past the end.
        config[0x61] = 0x60;
        assert_eq!(capabilities(&config).collect::<Vec<_>>(), [one]);
        config[0x61] = 0xFC;
        config[0xFC..].copy_from_slice(&[CAPABILITY_VENDOR, 0, 16, KIND_COMMON]);
        assert_eq!(capabilities(&config).collect::<Vec<_>>(), [one]);
    }
}
