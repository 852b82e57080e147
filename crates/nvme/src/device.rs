//! A namespace as a block device.

use std::fmt;
use std::sync::Arc;

use qpair_block::{BlockDevice, ChannelOptions, DeviceInfo, Error, ErrorKind, IoChannel, Result};

use crate::channel::NvmeChannel;
use crate::controller::Controller;
use crate::identify::NamespaceInfo;
use crate::options::WaitMode;

/// The largest request in bytes. Channels split it into commands.
const TRANSFER_BYTES_MAX: u32 = 1 << 30;
/// The memory alignment that every controller accepts: a dword (Base §4.1.1).
pub(crate) const MEMORY_ALIGNMENT_BYTES: u32 = 4;

pub struct NvmeDevice {
    controller: Arc<Controller>,
    info: DeviceInfo,
    size_bytes: u64,
    geometry: Geometry,
}

/// The properties of a namespace that a channel needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) nsid: u32,
    pub(crate) block_shift: u32,
    /// The maximum number of bytes of one command; a multiple of the block.
    pub(crate) piece_bytes_max: u32,
    pub(crate) size_bytes: u64,
}

impl Geometry {
    #[inline(always)]
    pub(crate) fn block_mask(&self) -> u64 {
        (1 << self.block_shift) - 1
    }

    /// Returns the first two dwords of a command.
    #[inline(always)]
    pub(crate) fn head(&self, cid: u16, opcode: u8) -> u64 {
        u64::from(opcode) | u64::from(cid) << 16 | u64::from(self.nsid) << 32
    }
}

impl fmt::Debug for NvmeDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NvmeDevice {}", self.info.name)
    }
}

impl NvmeDevice {
    pub(crate) fn new(controller: Arc<Controller>, namespace: &NamespaceInfo) -> Self {
        let about = controller.info();
        let doorbells = match (about.doorbells_mapped, about.doorbells_shadowed) {
            (true, _) => "mapped",
            (false, true) => "shadow",
            (false, false) => "trapped",
        };
        let wait = match controller.options.wait {
            WaitMode::Poll => "polled",
            WaitMode::Sleep => "interrupts",
            WaitMode::Auto if controller.has_interrupts() => "interrupts or polled",
            WaitMode::Auto => "polled",
        };
        let info = DeviceInfo {
            name: format!("{}/ns{}", about.name, namespace.nsid),
            interface: "nvme".to_owned(),
            mode: format!(
                "user-space driver over {}, a queue pair a channel, {wait}, {doorbells} doorbells",
                about.transport
            ),
            logical_block_bytes: namespace.logical_block_bytes,
            memory_alignment_bytes: MEMORY_ALIGNMENT_BYTES,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            atomic_write_bytes_min: namespace.logical_block_bytes,
            atomic_write_bytes: namespace.atomic_write_bytes,
            volatile_write_cache: controller.limits.volatile_write_cache,
            read_only: false,
            discards: controller.limits.deallocate,
            writes_zeroes: controller.limits.write_zeroes,
            growable: false,
            depth_max: controller.queue_entries_max() - 1,
            shared_memory: controller.maps.needs_shared_memory(),
        };
        let geometry = Geometry {
            nsid: namespace.nsid,
            block_shift: namespace.block_shift,
            piece_bytes_max: namespace.piece_bytes_max(&controller.limits),
            size_bytes: namespace.size_bytes,
        };
        Self { info, size_bytes: namespace.size_bytes, geometry, controller }
    }

    /// Renames the device, to the specifier that it was opened by.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.info.name = name.into();
        self
    }

    #[must_use]
    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// Returns the maximum number of bytes that one command moves; larger requests take several
    /// commands.
    #[must_use]
    pub fn command_bytes_max(&self) -> u32 {
        self.geometry.piece_bytes_max
    }

    /// Opens a channel that waits in this manner, whatever the controller's option says.
    ///
    /// # Errors
    /// As `open_channel`; `Unsupported` for a sleep on a controller without interrupts.
    pub fn open_channel_that(
        &self,
        waits: WaitMode,
        options: &ChannelOptions,
    ) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        let waits = match waits {
            WaitMode::Auto if self.controller.has_interrupts() => WaitMode::Sleep,
            WaitMode::Auto => WaitMode::Poll,
            WaitMode::Sleep => {
                self.controller.check_interrupts()?;
                WaitMode::Sleep
            }
            WaitMode::Poll => WaitMode::Poll,
        };
        let (controller, info) = (&self.controller, &self.info);
        let channel = NvmeChannel::open(controller, self.geometry, info, waits, options)?;
        Ok(Box::new(channel))
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }
}

impl BlockDevice for NvmeDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.size_bytes {
            return Ok(());
        }
        let context = format!(
            "{} has {} bytes and cannot have {size_bytes}",
            self.info.name, self.size_bytes
        );
        Err(Error::new(ErrorKind::NoSpace, context).hint("a namespace has a fixed size"))
    }

    fn resets(&self) -> u64 {
        self.controller.resets()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.open_channel_that(self.controller.options.wait, options)
    }
}
