//! The registers: state, the handshake through the doorbell, and the diagnostic register with its
//! keys.
//!
//! Reading a register has no effect: a handshake proceeds when the driver clears its interrupt.

use std::sync::atomic::Ordering;

use qpair_mpi_wire::registers::{
    DIAGNOSTIC_HISTORY, DIAGNOSTIC_RESET, DIAGNOSTIC_WRITE_ENABLE, DOORBELL, DOORBELL_HANDSHAKE,
    DOORBELL_MESSAGE_UNIT_RESET, DOORBELL_USED, HOST_DIAGNOSTIC, HOST_INTERRUPT_MASK,
    HOST_INTERRUPT_STATUS, KEYS, MASK_ALL, REPLY_FREE_HOST_INDEX, REPLY_POST_HOST_INDEX,
    STATE_FAULT, STATE_OPERATIONAL, STATE_READY, STATE_RESET, STATUS_DOORBELL,
    SUPPLEMENTAL_REPLY_POST_HOST_INDEX, WHO_HOST_DRIVER, WRITE_SEQUENCE,
};

use super::device::SoftHba;

/// The maximum length of a request by handshake, in dwords.
const HANDSHAKE_DWORDS_MAX: usize = 128;
/// The number of combined registers for reply queue indices.
const SUPPLEMENTAL_REGISTERS: u64 = 16;

/// The progress of a handshake.
#[derive(Debug, Default)]
enum Handshake {
    #[default]
    None,
    /// The driver still has to write this many dwords.
    Taking { words: Vec<u8>, dwords: usize },
    /// The driver reads the reply, half-word by half-word.
    Giving { reply: Vec<u8>, at: usize },
}

#[derive(Debug)]
pub(crate) struct Control {
    state: u32,
    who: u8,
    handshake: Handshake,
    /// The half-word in the doorbell register.
    data: u16,
    /// The doorbell bit of the interrupt status.
    rang: bool,
    /// The number of keys written so far in the right order.
    keys: usize,
    is_open: bool,
    was_reset: bool,
    /// Whether the controller never completes the reset that it has begun.
    hangs: bool,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            state: STATE_READY,
            who: 0,
            handshake: Handshake::None,
            data: 0,
            rang: false,
            keys: 0,
            is_open: false,
            was_reset: false,
            hangs: false,
        }
    }
}

impl Control {
    fn ring(&mut self) {
        self.rang = true;
    }

    pub(crate) fn set_operational(&mut self) {
        (self.state, self.who) = (STATE_OPERATIONAL, WHO_HOST_DRIVER);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.state == STATE_READY
    }

    pub(crate) fn who(&self) -> u8 {
        self.who
    }
}

impl SoftHba {
    pub(crate) fn read_register(&self, offset: u64) -> u32 {
        let control = self.control();
        match offset {
            DOORBELL => {
                let used = match control.handshake {
                    Handshake::None => 0,
                    _ => DOORBELL_USED,
                };
                match self.fault_code() {
                    Some(code) => STATE_FAULT | u32::from(code),
                    None if control.hangs => STATE_RESET,
                    None => {
                        control.state
                            | used
                            | u32::from(control.who & 7) << 24
                            | u32::from(control.data)
                    }
                }
            }
            HOST_DIAGNOSTIC => {
                let open = if control.is_open { DIAGNOSTIC_WRITE_ENABLE } else { 0 };
                let history = if control.was_reset { DIAGNOSTIC_HISTORY } else { 0 };
                let reset = if control.hangs { DIAGNOSTIC_RESET } else { 0 };
                open | history | reset
            }
            // The controller takes doorbell words at once, so it never sets the bit that says it is
            // busy.
            HOST_INTERRUPT_STATUS if control.rang => STATUS_DOORBELL,
            HOST_INTERRUPT_MASK => self.mask.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    pub(crate) fn write_register(&self, offset: u64, value: u32) {
        match offset {
            DOORBELL => self.write_doorbell(value),
            WRITE_SEQUENCE => self.write_key(value),
            HOST_DIAGNOSTIC => self.write_diagnostic(value),
            HOST_INTERRUPT_STATUS => self.clear_interrupt(),
            HOST_INTERRUPT_MASK => self.mask.store(value & MASK_ALL, Ordering::Relaxed),
            REPLY_FREE_HOST_INDEX => self.set_reply_free_index(value),
            REPLY_POST_HOST_INDEX => self.set_reply_index((value >> 24) as u8, value & 0xFF_FFFF),
            _ => {
                let combined = offset.wrapping_sub(SUPPLEMENTAL_REPLY_POST_HOST_INDEX);
                if combined < SUPPLEMENTAL_REGISTERS * 0x10 && combined.is_multiple_of(0x10) {
                    let queue = combined / 0x10 * 8 + u64::from(value >> 24 & 7);
                    self.set_reply_index(queue as u8, value & 0xFF_FFFF);
                }
            }
        }
    }

    fn write_doorbell(&self, value: u32) {
        let mut control = self.control();
        if control.hangs || self.fault_code().is_some() {
            return;
        }
        let rang = control.rang;
        if let Handshake::Taking { words, dwords } = &mut control.handshake {
            self.strict.check(
                !rang,
                format_args!("handshake: a word before the controller's doorbell was cleared"),
            );
            words.extend(value.to_le_bytes());
            if words.len() < *dwords * 4 {
                return;
            }
            let request = std::mem::take(words);
            let reply = self.handshaken(&request, &mut control);
            control.data = half_word(&reply, 0);
            control.handshake = Handshake::Giving { reply, at: 0 };
            control.ring();
            return;
        }
        let is_idle = matches!(control.handshake, Handshake::None);
        self.strict.check(is_idle, format_args!("doorbell: {value:#010x} within a handshake"));
        match value >> 24 {
            DOORBELL_HANDSHAKE => {
                let dwords = (value >> 16 & 0xFF) as usize;
                let is_whole = (1..=HANDSHAKE_DWORDS_MAX).contains(&dwords);
                self.strict.check(is_whole, format_args!("handshake: {dwords} words"));
                if is_whole {
                    control.handshake = Handshake::Taking { words: Vec::new(), dwords };
                    control.ring();
                }
            }
            DOORBELL_MESSAGE_UNIT_RESET => {
                self.forget_driver();
                *control = Control { was_reset: control.was_reset, ..Control::default() };
            }
            other => self.strict.check(false, format_args!("doorbell: function {other:#04x}")),
        }
    }

    fn clear_interrupt(&self) {
        let mut control = self.control();
        control.rang = false;
        if let Handshake::Giving { reply, at } = &mut control.handshake {
            *at += 2;
            if *at < reply.len() {
                let data = half_word(reply, *at);
                control.data = data;
            } else {
                control.data = 0;
                control.handshake = Handshake::None;
            }
            control.ring();
        }
    }

    fn write_key(&self, value: u32) {
        let mut control = self.control();
        let expected = KEYS.get(control.keys).copied();
        match value & 0xF {
            key if Some(key) == expected => control.keys += 1,
            key => control.keys = usize::from(key == KEYS[0]),
        }
        control.is_open = control.keys == KEYS.len();
    }

    fn write_diagnostic(&self, value: u32) {
        let mut control = self.control();
        self.strict
            .check(control.is_open, format_args!("diagnostic register: written without the keys"));
        if !control.is_open || value & DIAGNOSTIC_RESET == 0 {
            return;
        }
        // From here on, no thread accesses the driver's memory.
        self.forget_driver();
        self.forget_fault();
        self.reset_units();
        let hangs = self.faults.takes_hang();
        *control = Control {
            was_reset: true,
            is_open: true,
            keys: KEYS.len(),
            hangs,
            ..Control::default()
        };
    }
}

fn half_word(reply: &[u8], at: usize) -> u16 {
    let byte = |at: usize| reply.get(at).copied().unwrap_or(0);
    u16::from_le_bytes([byte(at), byte(at + 1)])
}
