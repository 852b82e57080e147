//! The controller's registers.
//!
//! Invariant: a register that reads as all ones is never taken for a value; it is the error `Gone`.

use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_mpi_wire::family::Family;
use qpair_mpi_wire::init::{CAPABILITY_ATOMIC_REQUEST, Facts};
use qpair_mpi_wire::registers::{
    ATOMIC_REQUEST_DESCRIPTOR_POST, DOORBELL, GONE, HOST_DIAGNOSTIC, REGISTER_BYTES,
    REPLY_POST_HOST_INDEX, REQUEST_DESCRIPTOR_POST_LOW, SUPPLEMENTAL_REPLY_POST_HOST_INDEX,
};
use qpair_pci::PciFunction;

/// The number of reads of a register that may wrongly read as zero. The second number is for
/// registers that never hold zero for long.
const READS: u32 = 3;
const READS_OF_STATE: u32 = 30;
/// The number of reply queues for each combined register; the next constant has the bytes from one
/// register to the next.
const COMBINED: u8 = 8;
const COMBINED_STRIDE: u64 = 0x10;
/// The number of BARs of a function.
const BARS: u8 = 6;

/// Makes the error for a controller that no longer answers.
pub(crate) fn gone(name: &str) -> Error {
    Error::new(ErrorKind::Gone, format!("{name}: the controller is gone"))
        .hint("it was removed, or the process that served it ended")
}

pub(crate) fn within(error: Error, context: String) -> Error {
    let (error, way_out) = error.take_way_out();
    let outer = Error::new(error.kind(), context).caused_by(error);
    match way_out {
        Some(way_out) => outer.hint(way_out),
        None => outer,
    }
}

/// The registers, accessed by their offsets.
#[derive(Clone)]
pub(crate) struct Registers {
    function: Arc<dyn PciFunction>,
    bar: u8,
    family: Family,
    /// Whether the indices of reply queues go to the combined registers.
    is_combined: bool,
    /// Whether requests are posted in one word.
    is_atomic: bool,
}

impl Registers {
    /// Finds the registers in the first memory BAR that is large enough: cards differ in its
    /// number.
    pub(crate) fn find(function: Arc<dyn PciFunction>) -> Result<Self> {
        let (mut device, mut revision) = ([0; 2], [0; 1]);
        function.read_config(2, &mut device)?;
        function.read_config(8, &mut revision)?;
        let family = Family { device: u16::from_le_bytes(device), revision: revision[0] };
        for bar in 0..BARS {
            let mut word = [0; 4];
            function.read_config(0x10 + 4 * u32::from(bar), &mut word)?;
            let is_memory = word[0] & 1 == 0;
            if is_memory && function.bar_bytes(bar) >= REGISTER_BYTES {
                return Ok(Self { function, bar, family, is_combined: false, is_atomic: false });
            }
        }
        let context = format!("{} has no BAR with registers of MPI", function.name());
        Err(Error::new(ErrorKind::Unsupported, context))
    }

    /// Chooses the registers to use for a controller with these facts.
    pub(crate) fn adopt(&mut self, facts: &Facts) {
        self.is_combined = self.family.combines(facts.version, facts.vectors);
        self.is_atomic = facts.capabilities & CAPABILITY_ATOMIC_REQUEST != 0;
    }

    pub(crate) fn read(&self, offset: u64) -> Result<u32> {
        let reads = match offset {
            _ if !self.family.misreads() => 1,
            DOORBELL | HOST_DIAGNOSTIC => READS_OF_STATE,
            _ => READS,
        };
        let mut value = 0;
        for _ in 0..reads {
            let mut bytes = [0; 4];
            self.function.read_bar(self.bar, offset, &mut bytes)?;
            value = u32::from_le_bytes(bytes);
            if value != 0 {
                break;
            }
        }
        match value {
            GONE => Err(gone(self.function.name())),
            value => Ok(value),
        }
    }

    /// Tells the controller up to which index a reply queue was taken.
    #[inline]
    pub(crate) fn tell_replies(&self, queue: u8, index: u32) -> Result<()> {
        if self.is_combined {
            let at = u64::from(queue / COMBINED) * COMBINED_STRIDE;
            let value = u32::from(queue % COMBINED) << 24 | index;
            return self.write(SUPPLEMENTAL_REPLY_POST_HOST_INDEX + at, value);
        }
        self.write(REPLY_POST_HOST_INDEX, u32::from(queue) << 24 | index)
    }

    #[inline]
    pub(crate) fn write(&self, offset: u64, value: u32) -> Result<()> {
        self.function.write_bar(self.bar, offset, &value.to_le_bytes())
    }

    /// Posts a request by one store of 8 or 4 bytes.
    #[inline]
    pub(crate) fn post(&self, descriptor: u64) -> Result<()> {
        if self.is_atomic {
            return self.write(ATOMIC_REQUEST_DESCRIPTOR_POST, descriptor as u32);
        }
        let bytes = descriptor.to_le_bytes();
        self.function.write_bar(self.bar, REQUEST_DESCRIPTOR_POST_LOW, &bytes)
    }
}
