//! Capabilities of a function, in its configuration space.

const STATUS: usize = 6;
const STATUS_CAPABILITIES: u8 = 1 << 4;
const CAPABILITIES: usize = 0x34;

/// Returns the offset in a configuration space of the first capability with this number (PCI 3.0
/// §6.7).
///
/// `None` if there is none, or if fewer than eight bytes of it lie inside the space.
#[must_use]
pub fn find_capability(config: &[u8; 256], number: u8) -> Option<usize> {
    if config[STATUS] & STATUS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = usize::from(config[CAPABILITIES] & !3);
    for _ in 0..48 {
        let capability = config.get(at..at + 8).filter(|_| at >= 0x40)?;
        if capability[0] == number {
            return Some(at);
        }
        at = usize::from(capability[1] & !3);
    }
    None
}

/// The capability of interrupts by messages (PCI 3.0 §6.8.2).
pub mod msix {
    pub const NUMBER: u8 = 0x11;
    pub const CONTROL: u32 = 2;
    /// Control word: the function sends messages.
    pub const ENABLE: u16 = 1 << 15;
    /// Control word: all vectors are masked, whatever their own mask bits say.
    pub const MASK_ALL: u16 = 1 << 14;
}
