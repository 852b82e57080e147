//! Stops, resets and starts a controller. All of it blocks, on the thread that opens the controller
//! or on one of its own.

use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use qpair_block::{Error, ErrorKind, Result, time};
use qpair_mpi_wire::init::{Facts, facts_request};
use qpair_mpi_wire::init::{Init, VERSION, VERSION_26};
use qpair_mpi_wire::registers::{
    DIAGNOSTIC_HOLD, DIAGNOSTIC_RESET, DIAGNOSTIC_WRITE_ENABLE, DOORBELL,
    DOORBELL_MESSAGE_UNIT_RESET, HOST_DIAGNOSTIC, HOST_INTERRUPT_MASK, KEYS, MASK_ALL, MASK_REPLY,
    STATE_COREDUMP, STATE_FAULT, STATE_MASK, STATE_OPERATIONAL, STATE_READY, WHO_HOST_DRIVER,
    WRITE_SEQUENCE,
};

use crate::handshake::{handshake, wait_for};
use crate::host::Inner;
use crate::options::HbaOptions;
use crate::registers::{Registers, within};

/// The number of looks at the diagnostic register until the keys must have unlocked it.
const OPEN_TRIES: u32 = 20;

/// Makes a controller ready for the handshake, whatever state it is in. On return it accesses no
/// memory.
pub(crate) fn make_ready(registers: &Registers, options: &HbaOptions) -> Result<()> {
    registers.write(HOST_INTERRUPT_MASK, MASK_ALL)?;
    match registers.read(DOORBELL)? & STATE_MASK {
        STATE_READY => Ok(()),
        STATE_OPERATIONAL => {
            registers.write(DOORBELL, DOORBELL_MESSAGE_UNIT_RESET << 24)?;
            ready(registers, options).or_else(|_| reset(registers, options))
        }
        _ => reset(registers, options),
    }
}

fn ready(registers: &Registers, options: &HbaOptions) -> Result<()> {
    let is_ready = |value: u32| value & STATE_MASK == STATE_READY;
    wait_for(registers, DOORBELL, "becoming ready", options.reset_timeout(), is_ready)?;
    Ok(())
}

/// Performs the diagnostic reset. On success the controller is ready, and accesses no memory.
pub(crate) fn reset(registers: &Registers, options: &HbaOptions) -> Result<()> {
    let settle = options.settle();
    let mut tries = 0;
    loop {
        registers.write(WRITE_SEQUENCE, 0)?;
        for key in KEYS {
            registers.write(WRITE_SEQUENCE, key)?;
        }
        time::sleep(2 * settle);
        if registers.read(HOST_DIAGNOSTIC)? & DIAGNOSTIC_WRITE_ENABLE != 0 {
            break;
        }
        tries += 1;
        if tries == OPEN_TRIES {
            let context = "the register for a diagnostic reset does not open";
            return Err(Error::new(ErrorKind::Io, context));
        }
    }
    let diagnostic = registers.read(HOST_DIAGNOSTIC)?;
    registers.write(HOST_DIAGNOSTIC, diagnostic | DIAGNOSTIC_RESET)?;
    // A card that is being reset does not answer at all for a while.
    time::sleep(settle);
    let is_over = |value: u32| value & DIAGNOSTIC_RESET == 0;
    let what = "a diagnostic reset";
    let diagnostic = wait_for(registers, HOST_DIAGNOSTIC, what, options.reset_timeout(), is_over)?;
    registers.write(HOST_DIAGNOSTIC, diagnostic & !DIAGNOSTIC_HOLD)?;
    registers.write(WRITE_SEQUENCE, 0)?;
    ready(registers, options)
}

pub(crate) fn facts(registers: &Registers, name: &str, options: &HbaOptions) -> Result<Facts> {
    let reply = handshake(registers, &facts_request(), options.reset_timeout())
        .map_err(|error| within(error, format!("{name}: asking for its facts")))?;
    let facts = Facts::decode(&reply);
    if !matches!(facts.version, VERSION | VERSION_26) {
        let (major, minor) = (facts.version >> 8, facts.version & 0xFF);
        let context = format!("{name} speaks MPI {major}.{minor}");
        return Err(Error::new(ErrorKind::Unsupported, context)
            .hint("this driver speaks MPI 2.5 and 2.6 (SAS3004, SAS3008, SAS3108, and SAS32xx to SAS39xx)"));
    }
    Ok(facts)
}

impl Inner {
    /// Gives a ready controller its queues, all of them empty.
    pub(crate) fn initialise(&self) -> Result<()> {
        let memory = &self.memory;
        let sizes = &memory.sizes;
        let mut pool = memory.pool();
        pool.prime(self.state.get().life());
        let (reply_queues, flags) = memory.reply_queues();
        let init = Init {
            version: sizes.version,
            who: WHO_HOST_DRIVER,
            flags,
            vectors: sizes.queues,
            frame_bytes: sizes.frame_bytes,
            reply_queue_entries: sizes.reply_entries as u16,
            reply_free_entries: pool.frames() as u16,
            sense_high: (memory.sense_iova >> 32) as u32,
            reply_high: (memory.pool_iova >> 32) as u32,
            frames: memory.frames_iova,
            reply_queues,
            reply_free: memory.pool_iova >> 32 << 32 | u64::from(pool.free_low()),
            time_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_millis() as u64),
        };
        handshake(&self.registers, &init.encode(), self.options.reset_timeout())
            .map_err(|error| within(error, format!("{}: initialising it", self.name())))?;
        pool.tell(&self.registers)?;
        for queue in 0..sizes.queues {
            self.registers.tell_replies(queue, 0)?;
        }
        if self.interrupts.load(Ordering::SeqCst) {
            self.registers.write(HOST_INTERRUPT_MASK, MASK_ALL & !MASK_REPLY)?;
        }
        Ok(())
    }

    /// Returns an error if the controller has failed or is gone.
    pub(crate) fn check_state(&self) -> Result<()> {
        let doorbell = self.registers.read(DOORBELL)?;
        match doorbell & STATE_MASK {
            STATE_FAULT | STATE_COREDUMP => {
                let code = doorbell & 0xFFFF;
                let context =
                    format!("{}: the controller has failed, code {code:#06x}", self.name());
                Err(Error::new(ErrorKind::Io, context))
            }
            _ => Ok(()),
        }
    }
}
