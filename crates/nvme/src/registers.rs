//! The controller's registers and doorbells.
//!
//! Invariant: a register that reads as all ones is never taken for a value; it is the error `Gone`.

use std::fmt;
use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::doorbell::{SharedWord, tell};
use qpair_memory::{Mapping, SharedBytes};
use qpair_nvme_wire::PAGE_BYTES;
use qpair_nvme_wire::registers::{DOORBELLS, GONE, doorbell};
use qpair_pci::{Maps, PciFunction, SharedQueueMemory};

const BAR: u8 = 0;

/// Makes the error for a controller that no longer answers.
pub(crate) fn gone(name: &str) -> Error {
    Error::new(ErrorKind::Gone, format!("{name}: the controller is gone"))
        .hint("it was removed, or the process that served it ended")
}

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

#[derive(Clone)]
pub(crate) struct Doorbells {
    function: Arc<dyn PciFunction>,
    /// The mapped registers, from the first doorbell on.
    mapping: Option<Arc<Mapping>>,
    /// Doorbells in memory, if the controller polls them. The registers are then written only when
    /// the controller asks for that.
    shadow: Option<Arc<Shadow>>,
    stride_bytes: u32,
}

/// Shadow doorbells (Base §5.8): a page with the current values of the doorbells of I/O queues, and
/// a page in which the controller says at which values it wants to be rung.
#[derive(Debug)]
pub(crate) struct Shadow {
    memory: SharedQueueMemory,
}

impl Shadow {
    pub(crate) fn new(maps: &Arc<Maps>) -> Result<Self> {
        Ok(Self { memory: SharedQueueMemory::new(maps, 2 * PAGE_BYTES)? })
    }

    /// Returns the addresses of the two pages for the controller.
    pub(crate) fn iovas(&self) -> (u64, u64) {
        (self.memory.iova(), self.memory.iova() + PAGE_BYTES as u64)
    }

    fn pages(&self) -> Option<(SharedBytes<'_>, SharedBytes<'_>)> {
        let bytes = self.memory.bytes();
        Some((bytes.part(0, PAGE_BYTES)?, bytes.part(PAGE_BYTES, PAGE_BYTES)?))
    }

    /// Stores a new value. Returns whether the controller wants to be rung.
    #[inline]
    fn tell(&self, at: usize, old: u32, new: u32) -> bool {
        let Some((shadows, events)) = self.pages() else { return true };
        tell(SharedWord { bytes: shadows, at }, SharedWord { bytes: events, at }, old, new)
    }

    /// Clears the doorbell of a new queue, and the value that the controller had asked to be rung
    /// at.
    fn forget(&self, at: usize) {
        if let Some((shadows, events)) = self.pages() {
            shadows.store_u32(at, 0);
            events.store_u32(at, 0);
        }
    }
}

impl fmt::Debug for Doorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (&self.mapping, &self.shadow) {
            (Some(_), _) => "mapped doorbells",
            (None, Some(_)) => "shadow doorbells",
            (None, None) => "trapped doorbells",
        })
    }
}

impl Doorbells {
    /// Returns the number of queues, including the admin queue, whose doorbells lie inside a BAR of
    /// `bar_bytes`.
    pub(crate) fn queues_max(bar_bytes: u64, stride_bytes: u32) -> u64 {
        bar_bytes.saturating_sub(DOORBELLS) / (2 * u64::from(stride_bytes))
    }

    /// Opens the doorbells of the admin queue and of `queues` more, which must lie inside the BAR.
    pub(crate) fn open(
        function: &Arc<dyn PciFunction>,
        stride_bytes: u32,
        queues: u16,
    ) -> Result<Self> {
        let end = doorbell(queues, true, stride_bytes) + 4 - DOORBELLS;
        let room = function.bar_bytes(BAR).saturating_sub(DOORBELLS);
        let len = usize::try_from(end.next_multiple_of(4096).min(room)).unwrap_or(usize::MAX);
        let mapping = function.map_bar(BAR, DOORBELLS, len)?;
        Ok(Self { function: function.clone(), mapping, shadow: None, stride_bytes })
    }

    pub(crate) fn are_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    pub(crate) fn are_shadowed(&self) -> bool {
        self.shadow.is_some()
    }

    /// Adds doorbells in memory for the I/O queues.
    pub(crate) fn with_shadow(&self, shadow: Arc<Shadow>) -> Self {
        Self { shadow: Some(shadow), ..self.clone() }
    }

    /// Returns the doorbells of one queue. The admin queue has none in memory, nor has a queue
    /// whose doorbell would lie past the page.
    pub(crate) fn of(&self, queue: u16) -> DoorbellPair {
        let at = |is_completion| doorbell(queue, is_completion, self.stride_bytes) - DOORBELLS;
        let has_shadow = queue != 0 && at(true) + 4 <= PAGE_BYTES as u64;
        let shadow = self.shadow.clone().filter(|_| has_shadow);
        DoorbellPair {
            doorbells: Self { shadow, ..self.clone() },
            submission: at(false) as usize,
            completion: at(true) as usize,
        }
    }
}

#[derive(Debug)]
pub(crate) struct DoorbellPair {
    doorbells: Doorbells,
    submission: usize,
    completion: usize,
}

impl DoorbellPair {
    /// Announces the tail of the submission queue. A controller that sees the tail also sees the
    /// entries before it.
    #[inline]
    pub(crate) fn ring_submission(&self, old: u32, tail: u32) -> bool {
        self.doorbells.ring(self.submission, old, tail)
    }

    #[inline]
    pub(crate) fn ring_completion(&self, old: u32, head: u32) -> bool {
        self.doorbells.ring(self.completion, old, head)
    }

    /// Clears both doorbells for new queues, which the controller does not know yet.
    pub(crate) fn forget(&self) {
        if let Some(shadow) = &self.doorbells.shadow {
            shadow.forget(self.submission);
            shadow.forget(self.completion);
        }
    }
}

impl Doorbells {
    /// Writes a doorbell. Returns false if the controller did not accept the value, most likely
    /// because it is gone.
    #[inline]
    fn ring(&self, at: usize, old: u32, value: u32) -> bool {
        match (&self.mapping, &self.shadow) {
            (Some(mapping), _) => {
                mapping.bytes().store_u32_release(at, value);
                true
            }
            (None, Some(shadow)) => !shadow.tell(at, old, value) || self.trap(at, value),
            (None, None) => self.trap(at, value),
        }
    }

    #[cold]
    fn trap(&self, at: usize, value: u32) -> bool {
        let offset = DOORBELLS + at as u64;
        // A caller that needs the reason gets it from the next register read.
        self.function.post_bar(BAR, offset, &value.to_le_bytes()).is_ok()
    }
}
