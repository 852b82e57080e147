//! The controller's registers.
//!
//! Invariant: a register that reads as all ones is never taken for a value; it is the error `Gone`.

use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_mpi_wire::registers::{GONE, REGISTER_BYTES, REQUEST_DESCRIPTOR_POST_LOW};
use qpair_pci::PciFunction;

/// BARs that there can be.
const BARS: u8 = 6;

/// That a controller answers no more.
pub(crate) fn gone(name: &str) -> Error {
    Error::new(ErrorKind::Gone, format!("{name}: the controller is gone"))
        .hint("it was removed, or the process that served it ended")
}

/// An error, in the course of what.
pub(crate) fn within(error: Error, context: String) -> Error {
    let (error, way_out) = error.take_way_out();
    let outer = Error::new(error.kind(), context).caused_by(error);
    match way_out {
        Some(way_out) => outer.hint(way_out),
        None => outer,
    }
}

/// Registers by their offsets.
#[derive(Clone)]
pub(crate) struct Registers {
    function: Arc<dyn PciFunction>,
    bar: u8,
}

impl Registers {
    /// In the first BAR that is memory and large enough: cards differ in which one that is.
    pub(crate) fn find(function: Arc<dyn PciFunction>) -> Result<Self> {
        for bar in 0..BARS {
            let mut word = [0; 4];
            function.read_config(0x10 + 4 * u32::from(bar), &mut word)?;
            let is_memory = word[0] & 1 == 0;
            if is_memory && function.bar_bytes(bar) >= REGISTER_BYTES {
                return Ok(Self { function, bar });
            }
        }
        let context = format!("{}: no BAR has registers of MPI", function.name());
        Err(Error::new(ErrorKind::Unsupported, context))
    }

    pub(crate) fn read(&self, offset: u64) -> Result<u32> {
        let mut bytes = [0; 4];
        self.function.read_bar(self.bar, offset, &mut bytes)?;
        match u32::from_le_bytes(bytes) {
            GONE => Err(gone(self.function.name())),
            value => Ok(value),
        }
    }

    #[inline]
    pub(crate) fn write(&self, offset: u64, value: u32) -> Result<()> {
        self.function.write_bar(self.bar, offset, &value.to_le_bytes())
    }

    /// Posts a request: one store of 8 bytes.
    #[inline]
    pub(crate) fn post(&self, descriptor: u64) -> Result<()> {
        let bytes = descriptor.to_le_bytes();
        self.function.write_bar(self.bar, REQUEST_DESCRIPTOR_POST_LOW, &bytes)
    }
}
