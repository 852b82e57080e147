//! The time that a disk needs for a command.

use qpair_memory::locks::Mutex;
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Op, Result, time};
use qpair_scsi_wire::Command;
use qpair_scsi_wire::command::Range;

use crate::flash::{Flash, Profile};
use crate::platter::{Platter, ROTATION};

/// The timing of a disk's commands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DiskProfile {
    /// A flash drive, with one of the profiles of soft NVMe drives. With the profile `none`,
    /// commands take no time.
    Flash(Profile),
    /// A rotating disk with 7200 turns a minute.
    Rotating,
}

impl DiskProfile {
    pub(super) const NAMES: [(&str, Self); 6] = [
        ("none", Self::Flash(Profile::NONE)),
        ("sas-ssd", Self::Flash(Profile::SAS_SSD)),
        ("hdd", Self::Rotating),
        ("tlc", Self::Flash(Profile::TLC)),
        ("qlc", Self::Flash(Profile::QLC)),
        ("optane", Self::Flash(Profile::OPTANE)),
    ];

    /// Returns the profile of that name: `hdd`, or that of a flash profile (`none`, `tlc`, ...).
    ///
    /// # Errors
    /// `Invalid` if no profile has that name.
    pub fn named(name: &str) -> Result<Self> {
        let found = Self::NAMES.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, profile)| profile).ok_or_else(|| {
            let known = Self::NAMES.map(|(known, _)| known).join(", ");
            Error::new(ErrorKind::Invalid, format!("there is no profile \"{name}\""))
                .hint(format!("the profiles are {known}"))
        })
    }

    /// Returns the rotation rate as vital product data has it: 1 for a medium that does not rotate.
    pub(crate) fn rotation(self) -> u16 {
        match self {
            Self::Flash(_) => 1,
            Self::Rotating => ROTATION,
        }
    }
}

impl Default for DiskProfile {
    fn default() -> Self {
        Self::Flash(Profile::NONE)
    }
}

#[derive(Debug)]
enum Model {
    Instant,
    Flash(Box<Flash>),
    Rotating(Mutex<Platter>),
}

#[derive(Debug)]
pub(crate) struct Timing {
    model: Model,
    start: Instant,
    block_bytes: u64,
    /// Whether a write may end in the cache.
    has_cache: bool,
}

impl Timing {
    pub(crate) fn new(
        profile: DiskProfile,
        (capacity_bytes, block_bytes): (u64, u32),
        has_cache: bool,
        seed: u64,
    ) -> Result<Self> {
        let model = match profile {
            DiskProfile::Flash(profile) if profile.is_none() => Model::Instant,
            DiskProfile::Flash(profile) => {
                Model::Flash(Box::new(Flash::new(profile, capacity_bytes, seed)?))
            }
            DiskProfile::Rotating => Model::Rotating(Mutex::new(Platter::new(capacity_bytes))),
        };
        Ok(Self { model, start: time::now(), block_bytes: block_bytes.into(), has_cache })
    }

    /// Returns when a command that came now is done; `None` for at once.
    #[inline]
    pub(crate) fn due(&self, command: &Command) -> Option<Instant> {
        match self.model {
            Model::Instant => None,
            _ => self.due_later(command),
        }
    }

    fn due_later(&self, command: &Command) -> Option<Instant> {
        let of = |range: Range| {
            (
                range.block.saturating_mul(self.block_bytes),
                u64::from(range.blocks) * self.block_bytes,
            )
        };
        let (op, (at, len), through) = match *command {
            Command::Read { range, .. } | Command::Verify { range, .. } => {
                (Op::Read, of(range), false)
            }
            Command::Write { range, force_unit_access, .. } => {
                (Op::Write, of(range), force_unit_access)
            }
            Command::WriteSame { range, .. } => (Op::WriteZeroes, of(range), false),
            Command::SynchronizeCache { .. } => (Op::Flush, (0, 0), false),
            Command::Unmap { .. } => (Op::Discard, (0, 0), false),
            _ => return None,
        };
        let now_ns = (time::now() - self.start).as_nanos() as u64;
        let done_ns = match &self.model {
            Model::Instant => now_ns,
            Model::Flash(flash) => flash.schedule(now_ns, op, at, len, through),
            Model::Rotating(platter) => {
                let cached = self.has_cache && !through;
                let mut platter = platter.lock();
                platter.schedule(now_ns, op, at, len, cached)
            }
        };
        self.start.checked_add(Duration::from_nanos(done_ns))
    }
}
