//! A PCI function as its driver sees it.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use qpair_block::Result;
use qpair_memory::{Arena, Mapping};

/// The command register of the configuration space (`linux/pci_regs.h`).
pub mod command {
    pub const AT: u32 = 4;
    /// The function answers accesses to its memory BARs.
    pub const MEMORY: u16 = 1 << 1;
    /// The function may access memory.
    pub const BUS_MASTER: u16 = 1 << 2;
    /// The function raises no INTx interrupts.
    pub const NO_INTX: u16 = 1 << 10;
}

/// A PCI function that this program drives. Control plane: usable from any thread, and may block.
///
/// There are three implementations: VFIO (hardware), vfio-user (a device in another process) and
/// [`crate::InProcess`] (a device model in this process).
///
/// Errors are those of the block layer: `Gone` if the function was removed or its process ended;
/// `Denied`, `Limit` and `Unsupported`, with a hint where a remedy is known.
pub trait PciFunction: Send + Sync + fmt::Debug {
    /// Returns the function's name for people: `0000:3b:00.0`, `vfio-user:/run/x.sock`, `softnvme`.
    fn name(&self) -> &str;

    /// Returns the transport in one word, for tables: `vfio`, `vfio-user`, `in-process`.
    fn transport(&self) -> &'static str;

    /// Reads the configuration space.
    ///
    /// # Errors
    /// See above; `Invalid` if the range lies outside the space.
    fn read_config(&self, offset: u32, into: &mut [u8]) -> Result<()>;

    /// Writes the configuration space.
    ///
    /// # Errors
    /// See above.
    fn write_config(&self, offset: u32, bytes: &[u8]) -> Result<()>;

    /// Sets and clears bits of the [`command`] register.
    ///
    /// # Errors
    /// See above.
    fn change_command(&self, set: u16, clear: u16) -> Result<()> {
        let mut bytes = [0; 2];
        self.read_config(command::AT, &mut bytes)?;
        let word = u16::from_le_bytes(bytes) & !clear | set;
        self.write_config(command::AT, &word.to_le_bytes())
    }

    /// Returns the size of a BAR's range in bytes, or 0 if the function does not have it.
    fn bar_bytes(&self, bar: u8) -> u64;

    /// Reads registers. `into` has 1, 2, 4 or 8 bytes, the width of the device's register, and is
    /// filled by one access if the transport supports that.
    ///
    /// # Errors
    /// See above; `Invalid` if the range lies outside the BAR.
    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Writes registers, as [`PciFunction::read_bar`] reads them.
    ///
    /// # Errors
    /// See above.
    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes registers without waiting for the answer, for example doorbells.
    ///
    /// The call may return before the function has the value. The function receives the value
    /// before anything that is written or read later.
    ///
    /// # Errors
    /// As [`PciFunction::write_bar`], as far as errors are known at once.
    fn post_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_bar(bar, offset, bytes)
    }

    /// Maps registers, so that they can be accessed without a call. Returns `None` if this range
    /// cannot be mapped: use [`PciFunction::write_bar`] (a doorbell that traps).
    ///
    /// # Errors
    /// See above.
    fn map_bar(&self, bar: u8, offset: u64, len: usize) -> Result<Option<Arc<Mapping>>>;

    /// Opens an arena to the device and returns the address of its first byte for the device
    /// (IOVA).
    ///
    /// The arena is contiguous from there on for [`Arena::mapped_bytes`]. The function keeps the
    /// arena until [`PciFunction::unmap_dma`]. An arena can be open only once: a second call is an
    /// error.
    ///
    /// # Errors
    /// `Limit` if memory may not be locked or addresses run out; `Invalid` if the arena is not a
    /// shared one and [`PciFunction::needs_shared_memory`]; see above.
    fn map_dma(&self, arena: &Arc<Arena>) -> Result<u64>;

    /// Closes an arena to the device. On return the device can no longer access it.
    ///
    /// # Errors
    /// See above. The function then keeps the arena only if the device may still access it.
    fn unmap_dma(&self, arena: &Arena) -> Result<()>;

    /// Opens memory from another process, as [`PciFunction::map_dma`] opens an arena, and returns
    /// the address of its first byte for the device.
    ///
    /// `None` if the transport cannot: drivers then copy the data.
    ///
    /// # Errors
    /// As [`PciFunction::map_dma`].
    fn map_region(&self, _region: &Arc<Mapping>) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Closes memory that [`PciFunction::map_region`] opened. On return the device can no longer
    /// access it.
    ///
    /// # Errors
    /// As [`PciFunction::unmap_dma`].
    fn unmap_region(&self, region: &Mapping) -> Result<()> {
        let context = format!("{region:?} is not open to {}", self.name());
        Err(qpair_block::Error::new(qpair_block::ErrorKind::NotFound, context))
    }

    /// Whether arenas must be made with `ArenaOptions::shared`.
    fn needs_shared_memory(&self) -> bool;

    /// Whether the arenas that are opened to the function must consist of reserved huge pages. Data
    /// in other memory is copied.
    fn needs_huge_pages(&self) -> bool {
        false
    }

    /// Returns the number of MSI-X vectors.
    fn irq_count(&self) -> u32;

    /// Makes vector `vector` signal `event` from now on, or nothing if `event` is `None`.
    ///
    /// # Errors
    /// See above; `Invalid` past [`PciFunction::irq_count`].
    fn set_irq(&self, vector: u32, event: Option<BorrowedFd<'_>>) -> Result<()>;

    /// Resets the function. On return it does not access memory until it is set up again.
    ///
    /// # Errors
    /// `Unsupported` if the function cannot be reset; see above.
    fn reset(&self) -> Result<()>;

    /// Returns the device's own work, if it has no processor of its own: threads that wait for the
    /// device must step it.
    fn stepper(&self) -> Option<Arc<dyn Step>> {
        None
    }
}

/// A device that runs on the processor of the threads that wait for it.
pub trait Step: Send + Sync {
    /// Does the work that one queue has now. `queue` is the driver's own number (NVMe: 0 for the
    /// admin queues). Threads that step different queues do not wait for each other.
    fn step(&self, queue: u16) -> Stepped;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stepped {
    pub progress: bool,
    /// The time of the next work if nothing new comes; `None` if there is none.
    pub due: Option<Instant>,
}

impl Stepped {
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            progress: self.progress | other.progress,
            due: match (self.due, other.due) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            },
        }
    }
}
