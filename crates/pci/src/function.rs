//! A PCI function as its driver sees it.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use qpair_block::Result;
use qpair_memory::{Arena, Mapping};

/// The command register of the configuration space (`linux/pci_regs.h`).
pub mod command {
    /// Where it is.
    pub const AT: u32 = 4;
    /// Registers in memory answer.
    pub const MEMORY: u16 = 1 << 1;
    /// The device reaches memory.
    pub const BUS_MASTER: u16 = 1 << 2;
    /// No interrupts by INTx.
    pub const NO_INTX: u16 = 1 << 10;
}

/// A PCI function that this program drives. Control plane: usable from any thread, and may block.
///
/// Three ways to one: VFIO (hardware), vfio-user (a device in another process), [`crate::InProcess`] (a device model in this one).
///
/// Errors are the block layer's: `Gone` where the function was removed or its process ended, `Denied`, `Limit` and
/// `Unsupported` with the way out where one is known.
pub trait PciFunction: Send + Sync + fmt::Debug {
    /// Its name for people: `0000:3b:00.0`, `vfio-user:/run/x.sock`, `softnvme`.
    fn name(&self) -> &str;

    /// How it is reached, in one word for tables: `vfio`, `vfio-user`, `in-process`.
    fn transport(&self) -> &'static str;

    /// Reads its configuration space.
    ///
    /// # Errors
    /// See above; `Invalid` outside of the space.
    fn read_config(&self, offset: u32, into: &mut [u8]) -> Result<()>;

    /// Writes its configuration space.
    ///
    /// # Errors
    /// See above.
    fn write_config(&self, offset: u32, bytes: &[u8]) -> Result<()>;

    /// Sets and clears bits of its [`command`] register.
    ///
    /// # Errors
    /// See above.
    fn change_command(&self, set: u16, clear: u16) -> Result<()> {
        let mut bytes = [0; 2];
        self.read_config(command::AT, &mut bytes)?;
        let word = u16::from_le_bytes(bytes) & !clear | set;
        self.write_config(command::AT, &word.to_le_bytes())
    }

    /// Bytes of a base address register's range; 0: there is none.
    fn bar_bytes(&self, bar: u8) -> u64;

    /// Reads registers: `into` has 1, 2, 4 or 8 bytes, as the device has registers, and is read by one access where the transport can.
    ///
    /// # Errors
    /// See above; `Invalid` outside of the range.
    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Writes registers, as [`PciFunction::read_bar`] reads them.
    ///
    /// # Errors
    /// See above.
    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes registers that have no answer worth waiting for, such as doorbells: it may return before the function has the value, which comes
    /// before all that is written or read later.
    ///
    /// # Errors
    /// As [`PciFunction::write_bar`], as far as they are known at once.
    fn post_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_bar(bar, offset, bytes)
    }

    /// Maps registers, so that they are reached without a call. `None` if this range cannot be mapped: use
    /// [`PciFunction::write_bar`] (a doorbell that traps).
    ///
    /// # Errors
    /// See above.
    fn map_bar(&self, bar: u8, offset: u64, len: usize) -> Result<Option<Arc<Mapping>>>;

    /// Opens an arena to the device: the address of its first byte for the device (IOVA); the arena is contiguous from there on for
    /// [`Arena::mapped_bytes`]. The function keeps the arena until [`PciFunction::unmap_dma`]. Mapped once; a second call is an error.
    ///
    /// # Errors
    /// `Limit` where memory may not be locked or addresses run out; `Invalid` if the arena is not a shared one and
    /// [`PciFunction::needs_shared_memory`]; see above.
    fn map_dma(&self, arena: &Arc<Arena>) -> Result<u64>;

    /// Closes an arena to the device. On return the device reaches it no more.
    ///
    /// # Errors
    /// See above; the arena is no longer kept then either, unless the device may still reach it.
    fn unmap_dma(&self, arena: &Arena) -> Result<()>;

    /// Opens memory that others gave, as [`PciFunction::map_dma`] opens an arena: the address of its first byte for the device. `None`
    /// where the transport cannot: then what is in it is copied.
    ///
    /// # Errors
    /// As [`PciFunction::map_dma`].
    fn map_region(&self, _region: &Arc<Mapping>) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Closes what [`PciFunction::map_region`] opened. On return the device reaches it no more.
    ///
    /// # Errors
    /// As [`PciFunction::unmap_dma`].
    fn unmap_region(&self, region: &Mapping) -> Result<()> {
        let context = format!("{}: {region:?} is not open to it", self.name());
        Err(qpair_block::Error::new(qpair_block::ErrorKind::NotFound, context))
    }

    /// Whether arenas must be made with `ArenaOptions::shared`.
    fn needs_shared_memory(&self) -> bool;

    /// Whether the arenas that are opened to it are of reserved huge pages alone. Data in other memory is copied.
    fn needs_huge_pages(&self) -> bool {
        false
    }

    /// MSI-X vectors that it has.
    fn irq_count(&self) -> u32;

    /// Lets vector `vector` signal `event` from now on, or nothing.
    ///
    /// # Errors
    /// See above; `Invalid` past [`PciFunction::irq_count`].
    fn set_irq(&self, vector: u32, event: Option<BorrowedFd<'_>>) -> Result<()>;

    /// Resets the function. On return it does not access memory until it is set up again.
    ///
    /// # Errors
    /// `Unsupported` where it cannot; see above.
    fn reset(&self) -> Result<()>;

    /// The device's own work, if it has no processor of its own: a thread that waits for the device calls it.
    fn stepper(&self) -> Option<Arc<dyn Step>> {
        None
    }
}

/// A device that runs on the processor of the threads that wait for it.
pub trait Step: Send + Sync {
    /// Does what there is to do now for one queue, of the driver's own number (NVMe: 0 for the admin queues). Threads that step
    /// different queues do not wait for each other.
    fn step(&self, queue: u16) -> Stepped;
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stepped {
    /// Whether anything was done.
    pub progress: bool,
    /// When there will be something to do even if nothing new comes; `None`: not by itself.
    pub due: Option<Instant>,
}

impl Stepped {
    /// What this step and another one did.
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
