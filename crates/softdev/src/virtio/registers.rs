//! The common configuration: features, status and queues.

use qpair_virtio::pci::{NO_VECTOR, common};
use qpair_virtio::ring::Layout;
use qpair_virtio::scsi::FEATURE_HOTPLUG;
use qpair_virtio::{
    FEATURE_ACCESS_PLATFORM, FEATURE_INDIRECT, FEATURE_VERSION_1, STATUS_FEATURES_OK,
};

/// The size and the addresses of a queue, as the driver has set them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueRegisters {
    pub(super) size: u16,
    pub(super) is_enabled: bool,
    /// The addresses of the descriptor table, the available ring and the used ring.
    pub(super) addresses: [u64; 3],
}

#[derive(Debug)]
pub(super) struct Registers {
    offered: u64,
    features: u64,
    device_word: u32,
    driver_word: u32,
    pub(super) status: u8,
    selected: u16,
    pub(super) queues: Vec<QueueRegisters>,
    entries: u16,
}

impl Registers {
    pub(super) fn new(queues: u16, entries: u16, has_indirect: bool) -> Self {
        let indirect = if has_indirect { FEATURE_INDIRECT } else { 0 };
        Self {
            offered: FEATURE_VERSION_1 | FEATURE_ACCESS_PLATFORM | FEATURE_HOTPLUG | indirect,
            features: 0,
            device_word: 0,
            driver_word: 0,
            status: 0,
            selected: 0,
            queues: vec![QueueRegisters { size: entries, ..Default::default() }; queues.into()],
            entries,
        }
    }

    /// Restores the initial state.
    pub(super) fn reset(&mut self) {
        let has_indirect = self.offered & FEATURE_INDIRECT != 0;
        *self = Self::new(self.queues.len() as u16, self.entries, has_indirect);
    }

    pub(super) fn has_indirect(&self) -> bool {
        self.features & FEATURE_INDIRECT != 0
    }

    /// Reads a register. Returns `None` if there is no register of that width.
    pub(super) fn read(&self, offset: u64, len: usize) -> Option<u64> {
        let queue = self.queues.get(usize::from(self.selected)).copied().unwrap_or_default();
        let word =
            |value: u64, word: u32| if word < 2 { value >> (32 * word) & 0xFFFF_FFFF } else { 0 };
        Some(match (offset, len) {
            (common::DEVICE_FEATURE_SELECT, 4) => self.device_word.into(),
            (common::DEVICE_FEATURE, 4) => word(self.offered, self.device_word),
            (common::DRIVER_FEATURE_SELECT, 4) => self.driver_word.into(),
            (common::DRIVER_FEATURE, 4) => word(self.features, self.driver_word),
            (common::CONFIG_VECTOR | common::QUEUE_VECTOR, 2) => NO_VECTOR.into(),
            (common::QUEUES, 2) => self.queues.len() as u64,
            (common::STATUS, 1) => self.status.into(),
            (common::GENERATION, 1) => 0,
            (common::QUEUE_SELECT | common::QUEUE_NOTIFY, 2) => self.selected.into(),
            (common::QUEUE_SIZE, 2) => queue.size.into(),
            (common::QUEUE_ENABLE, 2) => queue.is_enabled.into(),
            (common::QUEUE_DESCRIPTORS..common::BYTES, 4) => {
                let address = queue.addresses[(offset - common::QUEUE_DESCRIPTORS) as usize / 8];
                word(address, (offset % 8 / 4) as u32)
            }
            _ => return None,
        })
    }

    /// Writes a register, except for the status, which the device handles. Returns false if there
    /// is no register of that width.
    pub(super) fn write(&mut self, offset: u64, len: usize, value: u64) -> bool {
        let set = |of: &mut u64, word: u32| {
            if word < 2 {
                let shift = 32 * word;
                *of = *of & !(0xFFFF_FFFF << shift) | value << shift;
            }
        };
        let is_settled = self.status & STATUS_FEATURES_OK != 0;
        let queue = self.queues.get_mut(usize::from(self.selected));
        match (offset, len) {
            (common::DEVICE_FEATURE_SELECT, 4) => self.device_word = value as u32,
            (common::DRIVER_FEATURE_SELECT, 4) => self.driver_word = value as u32,
            (common::DRIVER_FEATURE, 4) if !is_settled => {
                set(&mut self.features, self.driver_word);
            }
            (common::QUEUE_SELECT, 2) => self.selected = value as u16,
            (common::QUEUE_SIZE, 2) => {
                if let Some(queue) = queue.filter(|queue| !queue.is_enabled) {
                    queue.size = value as u16;
                }
            }
            (common::QUEUE_ENABLE, 2) => {
                let is_sound = |queue: &QueueRegisters| {
                    Layout::new(queue.size).is_some_and(|it| it.size() <= self.entries)
                };
                if let Some(queue) = queue.filter(|queue| value == 1 && is_sound(queue)) {
                    queue.is_enabled = true;
                }
            }
            (common::QUEUE_DESCRIPTORS..common::BYTES, 4) => {
                if let Some(queue) = queue.filter(|queue| !queue.is_enabled) {
                    let which = (offset - common::QUEUE_DESCRIPTORS) as usize / 8;
                    set(&mut queue.addresses[which], (offset % 8 / 4) as u32);
                }
            }
            // The register cannot be written, or not in this state.
            _ => return self.read(offset, len).is_some(),
        }
        true
    }

    /// Whether the features that the driver has chosen are acceptable.
    pub(super) fn are_features_sound(&self) -> bool {
        let needed = FEATURE_VERSION_1 | FEATURE_ACCESS_PLATFORM;
        self.features & !self.offered == 0 && self.features & needed == needed
    }
}
