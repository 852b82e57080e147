//! The controller's registers and doorbells.
//!
//! Invariant: a register that reads as all ones is never taken for a value; it is the error `Gone`.

use std::fmt;
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::Mapping;
use qpair_nvme_wire::registers::{DOORBELLS, GONE, doorbell};
use qpair_pci::PciFunction;

/// The BAR that has the registers.
const BAR: u8 = 0;

/// That a controller answers no more.
pub(crate) fn gone(name: &str) -> Error {
    Error::new(ErrorKind::Gone, format!("{name}: the controller is gone"))
        .hint("it was removed, or the process that served it ended")
}

/// Registers by their offsets.
#[derive(Clone)]
pub(crate) struct Registers {
    function: Arc<dyn PciFunction>,
}

impl Registers {
    pub(crate) fn new(function: Arc<dyn PciFunction>) -> Self {
        Self { function }
    }

    pub(crate) fn read_u32(&self, offset: u64) -> Result<u32> {
        let mut bytes = [0; 4];
        self.function.read_bar(BAR, offset, &mut bytes)?;
        match u32::from_le_bytes(bytes) {
            GONE => Err(gone(self.function.name())),
            value => Ok(value),
        }
    }

    pub(crate) fn write_u32(&self, offset: u64, value: u32) -> Result<()> {
        self.function.write_bar(BAR, offset, &value.to_le_bytes())
    }

    pub(crate) fn write_u64(&self, offset: u64, value: u64) -> Result<()> {
        self.function.write_bar(BAR, offset, &value.to_le_bytes())
    }
}

/// Where doorbells are, and how they are reached.
#[derive(Clone)]
pub(crate) struct Doorbells {
    function: Arc<dyn PciFunction>,
    /// From the first doorbell on.
    mapping: Option<Arc<Mapping>>,
    stride_bytes: u32,
}

impl fmt::Debug for Doorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.mapping.is_some() { "mapped doorbells" } else { "trapped doorbells" })
    }
}

impl Doorbells {
    /// How many queues' doorbells, the admin queue's among them, lie inside a BAR of `bar_bytes`.
    pub(crate) fn queues_max(bar_bytes: u64, stride_bytes: u32) -> u64 {
        bar_bytes.saturating_sub(DOORBELLS) / (2 * u64::from(stride_bytes))
    }

    /// Those of the admin queue and `queues` more, which lie inside the BAR.
    pub(crate) fn open(
        function: &Arc<dyn PciFunction>,
        stride_bytes: u32,
        queues: u16,
    ) -> Result<Self> {
        let end = doorbell(queues, true, stride_bytes) + 4 - DOORBELLS;
        let room = function.bar_bytes(BAR).saturating_sub(DOORBELLS);
        let len = usize::try_from(end.next_multiple_of(4096).min(room)).unwrap_or(usize::MAX);
        let mapping = function.map_bar(BAR, DOORBELLS, len)?;
        Ok(Self { function: function.clone(), mapping, stride_bytes })
    }

    pub(crate) fn are_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    /// Those of one queue.
    pub(crate) fn of(&self, queue: u16) -> DoorbellPair {
        let at = |is_completion| doorbell(queue, is_completion, self.stride_bytes) - DOORBELLS;
        DoorbellPair {
            doorbells: self.clone(),
            submission: at(false) as usize,
            completion: at(true) as usize,
        }
    }
}

/// The two doorbells of a queue pair.
#[derive(Debug)]
pub(crate) struct DoorbellPair {
    doorbells: Doorbells,
    submission: usize,
    completion: usize,
}

impl DoorbellPair {
    /// Tells the tail of the submission queue: what was written to the queue before is seen by a controller that sees this.
    #[inline]
    pub(crate) fn ring_submission(&self, tail: u32) -> bool {
        self.doorbells.ring(self.submission, tail)
    }

    /// Tells the head of the completion queue.
    #[inline]
    pub(crate) fn ring_completion(&self, head: u32) -> bool {
        self.doorbells.ring(self.completion, head)
    }
}

impl Doorbells {
    /// False: the controller does not take it, and is most likely gone.
    #[inline]
    fn ring(&self, at: usize, value: u32) -> bool {
        match &self.mapping {
            Some(mapping) => {
                mapping.bytes().store_u32_release(at, value);
                true
            }
            None => self.trap(at, value),
        }
    }

    #[cold]
    fn trap(&self, at: usize, value: u32) -> bool {
        let offset = DOORBELLS + at as u64;
        // A caller that needs the reason gets it from the next register that is read.
        self.function.write_bar(BAR, offset, &value.to_le_bytes()).is_ok()
    }
}
