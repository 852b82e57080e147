//! The system interface registers, by their offsets, and the fields in them. Each is 4 bytes.

/// State, what initialised it, and a half-word of the handshake.
pub const DOORBELL: u64 = 0x00;
/// Takes the keys that open the diagnostic register.
pub const WRITE_SEQUENCE: u64 = 0x04;
/// Diagnostic register: reset.
pub const HOST_DIAGNOSTIC: u64 = 0x08;
/// What interrupts; the handshake's flags.
pub const HOST_INTERRUPT_STATUS: u64 = 0x30;
/// Interrupts that are masked: a set bit.
pub const HOST_INTERRUPT_MASK: u64 = 0x34;
/// Up to where the host has put frames into the reply-free queue.
pub const REPLY_FREE_HOST_INDEX: u64 = 0x48;
/// Up to where the host has taken descriptors from a reply queue: the queue in bits 31 to 24, the index in 23 to 0.
pub const REPLY_POST_HOST_INDEX: u64 = 0x6C;
/// A request: 8 bytes, or two words of which the second one counts.
pub const REQUEST_DESCRIPTOR_POST_LOW: u64 = 0xC0;
/// The upper word of a request.
pub const REQUEST_DESCRIPTOR_POST_HIGH: u64 = 0xC4;
/// A request without a handle, in one word: what a controller with the capability takes in place of 8 bytes.
pub const ATOMIC_REQUEST_DESCRIPTOR_POST: u64 = 0xC8;
/// The indices of combined reply queues: 16 bytes apart, each for eight queues, whose number is in bits 31 to 24.
pub const SUPPLEMENTAL_REPLY_POST_HOST_INDEX: u64 = 0x30C;
/// Bytes of BAR 0 that hold registers.
pub const REGISTER_BYTES: u64 = 0x400;

/// Doorbell: the state.
pub const STATE_MASK: u32 = 0xF000_0000;
/// It is being reset.
pub const STATE_RESET: u32 = 0x0000_0000;
/// It takes the handshake.
pub const STATE_READY: u32 = 0x1000_0000;
/// It takes requests.
pub const STATE_OPERATIONAL: u32 = 0x2000_0000;
/// It has failed; the code is in the low half.
pub const STATE_FAULT: u32 = 0x4000_0000;
/// It has failed, and is writing down why.
pub const STATE_COREDUMP: u32 = 0x5000_0000;
/// Doorbell: a handshake is going on.
pub const DOORBELL_USED: u32 = 1 << 27;
/// What initialised it, as a value: a driver of a host.
pub const WHO_HOST_DRIVER: u8 = 4;

/// Doorbell, written: begin a handshake of as many dwords as bits 23 to 16 say.
pub const DOORBELL_HANDSHAKE: u32 = 0x42;
/// Doorbell, written: reset the message unit.
pub const DOORBELL_MESSAGE_UNIT_RESET: u32 = 0x40;

/// Interrupt status: the IOC has not yet taken what was written to the doorbell.
pub const STATUS_BUSY: u32 = 0x8000_0000;
/// Interrupt status: there are reply descriptors.
pub const STATUS_REPLY: u32 = 0x8;
/// Interrupt status: the IOC has written the doorbell.
pub const STATUS_DOORBELL: u32 = 0x1;
/// Interrupt mask: replies.
pub const MASK_REPLY: u32 = 0x8;
/// Interrupt mask: all of them.
pub const MASK_ALL: u32 = 0x4000_0009;

/// The keys, in order, after a zero that forgets what was written before.
pub const KEYS: [u32; 6] = [0xF, 0x4, 0xB, 0x2, 0x7, 0xD];
/// Diagnostic: it can be written.
pub const DIAGNOSTIC_WRITE_ENABLE: u32 = 0x80;
/// Diagnostic: reset the adapter; reads as set until that is done.
pub const DIAGNOSTIC_RESET: u32 = 0x04;
/// Diagnostic: hold the IOC in reset.
pub const DIAGNOSTIC_HOLD: u32 = 0x02;
/// Diagnostic: it was reset.
pub const DIAGNOSTIC_HISTORY: u32 = 0x20;

/// What every register of a function that is gone reads as.
pub const GONE: u32 = 0xFFFF_FFFF;
