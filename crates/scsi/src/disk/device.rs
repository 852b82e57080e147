//! A disk and its properties.

use qpair_memory::locks::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    BlockDevice, ChannelOptions, DeviceInfo, Error, ErrorKind, IoChannel, Op, Result,
};
use qpair_scsi_wire::Command;
use qpair_scsi_wire::timestamp::{self, TIMESTAMP_BYTES};
use tracing::warn;

use super::channel::ScsiChannel;
use super::facts::DiskFacts;
use super::plan::Plan;
use super::power::Token;
use super::reset;
use crate::canary::Canary;
use crate::host::{Host, Unit};
use crate::middle::{Runner, UnitState};
use crate::options::ScsiOptions;

/// The largest request in bytes. Channels split it into commands.
const TRANSFER_BYTES_MAX: u32 = 1 << 30;
/// The memory alignment that controllers require: a dword.
pub(crate) const MEMORY_ALIGNMENT_BYTES: u32 = 4;

/// A logical unit as a block device.
pub struct ScsiDisk {
    host: Arc<dyn Host>,
    unit: Unit,
    state: Arc<UnitState>,
    options: ScsiOptions,
    facts: DiskFacts,
    info: DeviceInfo,
    plan: Plan,
    /// Whether the timestamp was set, or cannot be.
    is_watched: Mutex<bool>,
}

impl fmt::Debug for ScsiDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScsiDisk {} ({})", self.info.name, self.facts.name)
    }
}

impl ScsiDisk {
    /// Opens a unit of a target and reads its properties. `name` becomes the name of the device.
    ///
    /// # Errors
    /// `NotFound` if there is no such unit; `Unsupported`, with the device's name, if it is not a
    /// disk that can be used here; the host's errors.
    pub fn open(
        host: Arc<dyn Host>,
        unit: Unit,
        name: impl Into<String>,
        options: ScsiOptions,
    ) -> Result<Self> {
        let name = name.into();
        let state = Arc::new(UnitState { name: name.clone(), ..UnitState::default() });
        let facts = DiskFacts::ask(&host, unit, &name, state.clone(), options)?;
        let about = host.info();
        let mut plan = Plan::new(&facts, about.transfer_bytes_max);
        plan.write_cache &= options.canary != Some(Canary::CacheNotFlushed);
        let info = DeviceInfo {
            name,
            interface: "scsi".to_owned(),
            mode: format!(
                "user-space driver {} ({}), {}",
                about.driver,
                about.about,
                if options.sleeps { "asleep for interrupts" } else { "polled" }
            ),
            logical_block_bytes: facts.logical_block_bytes,
            memory_alignment_bytes: MEMORY_ALIGNMENT_BYTES,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            atomic_write_bytes_min: 0,
            atomic_write_bytes: 0,
            volatile_write_cache: facts.write_cache,
            read_only: facts.read_only,
            discards: plan.piece_bytes_max(Op::Discard) > 0,
            writes_zeroes: plan.piece_bytes_max(Op::WriteZeroes) > 0,
            growable: false,
            depth_max: about.depth_max,
            shared_memory: about.shared_memory,
        };
        let is_watched = Mutex::new(false);
        Ok(Self { host, unit, state, options, facts, info, plan, is_watched })
    }

    /// Sets the timestamp of a unit that has one, before the first channel writes anything. Opening
    /// a disk only to read its properties does not change it.
    fn watch(&self) -> Result<()> {
        let mut is_watched = self.is_watched.lock();
        if self.facts.timestamp && !*is_watched {
            let mut runner = Runner::open(&self.host, self.unit, self.state.clone(), self.options)?;
            let (token, command) =
                (Token::new(), Command::SetTimestamp { len: TIMESTAMP_BYTES as u32 });
            // A unit that refuses it is treated as one without a timestamp: docs/design/scsi.md has
            // the consequences.
            let is_set = runner.tell(command, &timestamp::encode_set(token.ms)).is_ok();
            self.state.power.watch(is_set.then_some(token));
            self.state.power.set_has_witness(is_set);
        }
        *is_watched = true;
        Ok(())
    }

    #[must_use]
    pub fn facts(&self) -> &DiskFacts {
        &self.facts
    }

    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    #[must_use]
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }
}

impl BlockDevice for ScsiDisk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.plan.size_bytes
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.size_bytes() {
            return Ok(());
        }
        let context = format!(
            "{} has {} bytes and cannot have {size_bytes}",
            self.info.name,
            self.size_bytes()
        );
        Err(Error::new(ErrorKind::NoSpace, context).hint("a disk has a fixed size"))
    }

    fn reset(&self) -> Result<()> {
        warn!(name: "reset", disk = self.info.name, "the disk is reset");
        let number = self.state.recall.begin();
        let task_timeout = Duration::from_millis(self.options.task_timeout_ms.into());
        reset::reset(&self.host, self.unit, task_timeout)?;
        // A command's time, and that of the ladder's tasks.
        let timeout = self.options.timeout() + 3 * task_timeout;
        match self.state.recall.wait(number, timeout) {
            0 => Ok(()),
            channels => Err(reset::not_taken_back(&self.info.name, channels, timeout)),
        }
    }

    fn resets(&self) -> u64 {
        self.host.resets()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        self.watch()?;
        let channel = ScsiChannel::open(
            &self.host,
            self.unit,
            (self.state.clone(), self.options),
            self.plan,
            &self.info,
            options,
        )?;
        Ok(Box::new(channel))
    }
}
