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
    /// Doorbells in memory, if the controller looks at these: those above are rung only when it asks for it.
    shadow: Option<Arc<Shadow>>,
    stride_bytes: u32,
}

/// Shadow doorbells (Base §5.8): a page that has the doorbells of I/O queues as they are, and a page in which the controller says at which values
/// it wants to be rung.
#[derive(Debug)]
pub(crate) struct Shadow {
    memory: SharedQueueMemory,
}

impl Shadow {
    pub(crate) fn new(maps: &Arc<Maps>) -> Result<Self> {
        Ok(Self { memory: SharedQueueMemory::new(maps, 2 * PAGE_BYTES)? })
    }

    /// Where the two pages are for the controller.
    pub(crate) fn iovas(&self) -> (u64, u64) {
        (self.memory.iova(), self.memory.iova() + PAGE_BYTES as u64)
    }

    fn pages(&self) -> Option<(SharedBytes<'_>, SharedBytes<'_>)> {
        let bytes = self.memory.bytes();
        Some((bytes.part(0, PAGE_BYTES)?, bytes.part(PAGE_BYTES, PAGE_BYTES)?))
    }

    /// Tells a value; whether the controller wants to be rung.
    #[inline]
    fn tell(&self, at: usize, old: u32, new: u32) -> bool {
        let Some((shadows, events)) = self.pages() else { return true };
        tell(SharedWord { bytes: shadows, at }, SharedWord { bytes: events, at }, old, new)
    }

    /// A queue begins anew: its doorbell, and what the controller had asked for.
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
        Ok(Self { function: function.clone(), mapping, shadow: None, stride_bytes })
    }

    pub(crate) fn are_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    pub(crate) fn are_shadowed(&self) -> bool {
        self.shadow.is_some()
    }

    /// The same, with doorbells in memory for the I/O queues.
    pub(crate) fn with_shadow(&self, shadow: Arc<Shadow>) -> Self {
        Self { shadow: Some(shadow), ..self.clone() }
    }

    /// Those of one queue. The admin queue has none in memory, and neither has a queue whose would lie past the page.
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
    pub(crate) fn ring_submission(&self, old: u32, tail: u32) -> bool {
        self.doorbells.ring(self.submission, old, tail)
    }

    /// Tells the head of the completion queue.
    #[inline]
    pub(crate) fn ring_completion(&self, old: u32, head: u32) -> bool {
        self.doorbells.ring(self.completion, old, head)
    }

    /// Their queues begin anew, and the controller knows nothing of them.
    pub(crate) fn forget(&self) {
        if let Some(shadow) = &self.doorbells.shadow {
            shadow.forget(self.submission);
            shadow.forget(self.completion);
        }
    }
}

impl Doorbells {
    /// False: the controller does not take it, and is most likely gone.
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
        // A caller that needs the reason gets it from the next register that is read.
        self.function.post_bar(BAR, offset, &value.to_le_bytes()).is_ok()
    }
}
