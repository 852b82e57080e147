//! The options of a controller.

use qpair_block::{Error, ErrorKind, Result};

/// The maximum number of I/O queue pairs that fit the area of doorbells and the table of vectors.
const QUEUES_MAX: u16 = 511;

/// The way in which drivers announce commands to a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbells {
    /// Doorbells are memory that drivers map. They wake no thread: a thread must poll them.
    #[default]
    Mapped,
    /// Each doorbell write is a call.
    Trapped,
    /// Each doorbell write is a call, and drivers are offered doorbells in their own memory
    /// (Doorbell Buffer Config). Then only the writes that wake a thread are calls.
    Shadow,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerOptions {
    /// The maximum number of I/O queue pairs, 1 to 511.
    pub queues_max: u16,
    /// The maximum number of entries of an I/O queue, 2 to 65536.
    pub queue_entries_max: u32,
    /// The largest transfer as a power of two of 4 KiB, 1 to 10.
    pub mdts: u8,
    pub doorbells: Doorbells,
    /// Whether there is a volatile write cache, so that drivers flush.
    pub volatile_write_cache: bool,
    /// The serial number, at most 20 printable characters.
    pub serial: String,
    /// The model, at most 40 characters.
    pub model: String,
    /// The subsystem's name (NQN), which all of its controllers share.
    pub subsystem: String,
    /// The controller's number in its subsystem.
    pub controller_id: u16,
    /// The highest number of a namespace.
    pub namespaces_max: u32,
    /// Whether the subsystem may have other controllers. If so, drivers may enable the event of
    /// changed namespaces.
    pub is_shared: bool,
}

impl ControllerOptions {
    /// Returns the largest transfer in bytes.
    #[must_use]
    pub fn transfer_bytes_max(&self) -> u32 {
        4096 << self.mdts.min(10)
    }

    /// Checks whether a controller can be created with these options.
    ///
    /// # Errors
    /// `Invalid`, with a description of the wrong option.
    pub fn check(&self) -> Result<()> {
        in_range("queues", self.queues_max.into(), 1, QUEUES_MAX.into())?;
        in_range("entries", self.queue_entries_max.into(), 2, 65536)?;
        in_range("mdts", self.mdts.into(), 1, 10)?;
        let printable = self.serial.bytes().all(|byte| (0x21..0x7F).contains(&byte));
        if self.serial.len() > 20 || !printable {
            let context = format!("an NVMe controller cannot have serial={:?}", self.serial);
            return Err(Error::new(ErrorKind::Invalid, context)
                .hint("give at most 20 printable characters without blanks"));
        }
        Ok(())
    }
}

fn in_range(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let context = format!("an NVMe controller cannot have {name}={value}");
    Err(Error::new(ErrorKind::Invalid, context).hint(format!("{name} is from {least} to {most}")))
}
