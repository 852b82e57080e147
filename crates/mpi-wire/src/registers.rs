//! The system interface registers: their offsets, and the fields in them. Each is 4 bytes.

/// Doorbell: the state, the initialising software, and a half-word of the handshake.
pub const DOORBELL: u64 = 0x00;
/// Write sequence: takes the keys that unlock the diagnostic register.
pub const WRITE_SEQUENCE: u64 = 0x04;
/// Diagnostic register: reset.
pub const HOST_DIAGNOSTIC: u64 = 0x08;
/// Interrupt status: the pending interrupts, and the handshake's flags.
pub const HOST_INTERRUPT_STATUS: u64 = 0x30;
/// Interrupt mask: a set bit masks an interrupt.
pub const HOST_INTERRUPT_MASK: u64 = 0x34;
/// The index up to which the host has put frames into the reply-free queue.
pub const REPLY_FREE_HOST_INDEX: u64 = 0x48;
/// The index up to which the host has taken descriptors from a reply queue: the queue in bits 31 to
/// 24, the index in 23 to 0.
pub const REPLY_POST_HOST_INDEX: u64 = 0x6C;
/// Posts a request: 8 bytes, or two words of which the second one triggers it.
pub const REQUEST_DESCRIPTOR_POST_LOW: u64 = 0xC0;
/// The upper word of a request.
pub const REQUEST_DESCRIPTOR_POST_HIGH: u64 = 0xC4;
/// Posts a request without a handle in one word, on a controller with that capability.
pub const ATOMIC_REQUEST_DESCRIPTOR_POST: u64 = 0xC8;
/// The indices of combined reply queues: registers 16 bytes apart, each for eight queues. Bits 31
/// to 24 have the number of the queue.
pub const SUPPLEMENTAL_REPLY_POST_HOST_INDEX: u64 = 0x30C;
/// Bytes of BAR 0 that hold registers.
pub const REGISTER_BYTES: u64 = 0x400;

/// Doorbell: the bits of the state.
pub const STATE_MASK: u32 = 0xF000_0000;
/// State: being reset.
pub const STATE_RESET: u32 = 0x0000_0000;
/// State: ready for the handshake.
pub const STATE_READY: u32 = 0x1000_0000;
/// State: accepts requests.
pub const STATE_OPERATIONAL: u32 = 0x2000_0000;
/// State: failed; the code is in the low half.
pub const STATE_FAULT: u32 = 0x4000_0000;
/// State: failed, and saving a core dump.
pub const STATE_COREDUMP: u32 = 0x5000_0000;
/// Doorbell: a handshake is in progress.
pub const DOORBELL_USED: u32 = 1 << 27;
/// The initialising software, as a value: a host driver.
pub const WHO_HOST_DRIVER: u8 = 4;

/// Doorbell, written: begin a handshake with the number of dwords in bits 23 to 16.
pub const DOORBELL_HANDSHAKE: u32 = 0x42;
/// Doorbell, written: reset the message unit.
pub const DOORBELL_MESSAGE_UNIT_RESET: u32 = 0x40;

/// Interrupt status: the IOC has not yet read the value written to the doorbell.
pub const STATUS_BUSY: u32 = 0x8000_0000;
/// Interrupt status: there are reply descriptors.
pub const STATUS_REPLY: u32 = 0x8;
/// Interrupt status: the IOC has written the doorbell.
pub const STATUS_DOORBELL: u32 = 0x1;
/// Interrupt mask: replies.
pub const MASK_REPLY: u32 = 0x8;
/// Interrupt mask: all of them.
pub const MASK_ALL: u32 = 0x4000_0009;

/// The keys, in order, to be written after a zero that discards earlier writes.
pub const KEYS: [u32; 6] = [0xF, 0x4, 0xB, 0x2, 0x7, 0xD];
/// Diagnostic: the register is writable.
pub const DIAGNOSTIC_WRITE_ENABLE: u32 = 0x80;
/// Diagnostic: reset the adapter; reads as set until the reset is done.
pub const DIAGNOSTIC_RESET: u32 = 0x04;
/// Diagnostic: hold the IOC in reset.
pub const DIAGNOSTIC_HOLD: u32 = 0x02;
/// Diagnostic: the adapter was reset.
pub const DIAGNOSTIC_HISTORY: u32 = 0x20;

/// The value that every register reads as once the function is gone.
pub const GONE: u32 = 0xFFFF_FFFF;
