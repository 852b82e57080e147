//! The device of its own that a store keeps its write-ahead log on. See docs/design/write-ahead-log.md.
//!
//! - The store's label names it by its id, and its own label names the store. Both agree before anything is read or written there.
//! - Nothing lies behind its label but segments of the logs. Which are free follows from the logs: those that the last durable
//!   checkpoint begins in, and what comes after them, are not.
//! - A store changes its log device, or begins or ceases to have one, only when it was closed: then there is no log.

mod label;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qpair_block::{BlockDevice, PAIR_SECOND_BYTES};

use super::superblock::{LABEL_BYTES, LogReference, StoreState, Superblock};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{LogPosition, Segments};
use label::Found;
pub(crate) use label::LogLabel;

/// Where a store keeps its write-ahead log.
#[derive(Clone, Debug, Default)]
pub enum LogPlace {
    /// In the store's own space. One that has its log on a device of its own is opened for reading only without it.
    #[default]
    Unsaid,
    /// In the store's own space from now on, wherever it was. If it was elsewhere, the store must have been closed.
    Store,
    /// On this device, which holds nothing else. If it was elsewhere, the store must have been closed, and the device must be
    /// blank, or have been a log device of this store before.
    Device(Arc<dyn BlockDevice>),
}

/// Segments that each worker's log needs, so that all of them can go on until a checkpoint gives some back: the one that it
/// is in, two to go on in, and one beside.
const SEGMENTS_PER_WORKER: u64 = 4;
/// A file grows to this many times the distance of checkpoints, if it can.
const CHECKPOINTS_MAX: u64 = 4;
/// By so many segments at least.
const GROWTH_SEGMENTS_MIN: u64 = 8;

/// A log device that fits the store, before the store is open.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) label: LogLabel,
}

/// The log device of an open store.
#[derive(Debug)]
pub(crate) struct LogDevice {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// As it was found when the store was opened.
    label: LogLabel,
    segment_bytes: u64,
    /// Up to where it is used, bytes.
    end_bytes_max: u64,
    workers: u64,
    segments: Mutex<Segments>,
}

/// Whether a place in a log is on a log device, and not in the store's own space.
pub(crate) fn is_on_log_device(address_bytes: u64) -> bool {
    address_bytes >= PAIR_SECOND_BYTES
}

/// Whether a log that begins there lies on a log device.
pub(crate) fn any_on_log_device(logs: &[Vec<u8>]) -> bool {
    let positions = logs.iter().filter_map(|log| LogPosition::decode(log).ok());
    positions.into_iter().any(|position| is_on_log_device(position.segment_offset_bytes))
}

impl LogPlace {
    /// Makes a log device of it for a store that is being made, and has the store's label name it.
    pub(super) fn make(&self, label: &mut Superblock) -> Result<Option<Attached>> {
        let Self::Device(device) = self else { return Ok(None) };
        refuse_too_small(device.as_ref())?;
        attach_new(device, label).map(Some)
    }

    /// Finds out where the log of a store that is there is to be, and has the label in memory say so; on the members it says
    /// so from the first change on.
    ///
    /// # Errors
    /// `Member` if a device is missing, another store's, or of another moment; `Exists` if there is something on it;
    /// `ReadOnly` if it cannot be written.
    pub(super) fn settle(
        &self,
        store_name: &str,
        label: &mut Superblock,
        read_only: bool,
    ) -> Result<Option<Attached>> {
        let closed = label.state == StoreState::Clean;
        match (self, label.log.clone()) {
            (Self::Unsaid | Self::Store, None) => Ok(None),
            // Who only reads needs no log.
            (Self::Unsaid | Self::Store, Some(_)) if read_only => Ok(None),
            (Self::Unsaid, Some(log)) => Err(not_given(store_name, &log, closed)),
            (Self::Store, Some(_)) if closed => {
                label.log = None;
                Ok(None)
            }
            (Self::Store, Some(log)) => Err(Error::with_hint(
                ErrorKind::Member,
                format!(
                    "{store_name} was not closed, and its log is on a device of its own, {}: without it commits would be lost",
                    log.name
                ),
                format!(
                    "open it with `--log-device {}`; once it is closed the log can move",
                    log.name
                ),
            )),
            (Self::Device(device), log) => {
                self.settle_on(device, log.as_ref(), store_name, label, read_only)
            }
        }
    }

    fn settle_on(
        &self,
        device: &Arc<dyn BlockDevice>,
        log: Option<&LogReference>,
        store_name: &str,
        label: &mut Superblock,
        read_only: bool,
    ) -> Result<Option<Attached>> {
        let name = &device.info().name;
        let closed = label.state == StoreState::Clean;
        let found = LogLabel::find(device.as_ref())?;
        let own = match &found {
            Found::Label(own) if own.store_id != label.store_id => {
                return Err(Error::with_hint(
                    ErrorKind::Member,
                    format!("{name} is the log device of another store than {store_name}"),
                    "each store has a log device of its own",
                ));
            }
            Found::Label(own) => Some(*own),
            Found::Member => {
                return Err(Error::with_hint(
                    ErrorKind::Member,
                    format!("{name} is a member of a store, and no log device"),
                    "give the device that the store's log is on",
                ));
            }
            _ => None,
        };
        match (log, own) {
            (Some(log), Some(own)) if log.id == own.id => {
                if !closed && own.generation > label.generation {
                    return Err(other_moment(store_name, name));
                }
                if read_only {
                    return Ok(None);
                }
                refuse_read_only(device.as_ref())?;
                attach(device, own, label).map(Some)
            }
            (Some(log), _) if !closed => Err(Error::with_hint(
                ErrorKind::Member,
                format!(
                    "{name} is not the log device of {store_name}, which was not closed: its log is on {}",
                    log.name
                ),
                format!("give that one: `--log-device {}`", log.name),
            )),
            (None, _) if !closed => Err(Error::with_hint(
                ErrorKind::Member,
                format!("{store_name} was not closed, and its log is in its own space"),
                "open it once without `--log-device`, which recovers it; once it is closed the log can move",
            )),
            (_, _) if read_only => Err(Error::with_hint(
                ErrorKind::Member,
                format!("{name} is not the log device of {store_name}"),
                "for reading a store that was closed no log device is needed",
            )),
            (_, Some(own)) => {
                refuse_read_only(device.as_ref())?;
                attach(device, own, label).map(Some)
            }
            (_, None) => {
                refuse_read_only(device.as_ref())?;
                if found != Found::Blank {
                    let what = match found {
                        Found::Damaged => "is a log device whose labels are both damaged",
                        _ => "is not blank",
                    };
                    return Err(Error::with_hint(
                        ErrorKind::Exists,
                        format!("{name} {what}: the log of {store_name} is not moved there"),
                        "if what is on it may be lost, overwrite its first 64 KiB with zeroes; or give another device",
                    ));
                }
                refuse_too_small(device.as_ref())?;
                attach_new(device, label).map(Some)
            }
        }
    }

    /// The log device of a store that is looked at without opening it; or why its log cannot be read.
    ///
    /// # Errors
    /// `Member` if it was not given, or another one was; `Corrupt`, and what the device says.
    pub(super) fn look(
        &self,
        store_name: &str,
        label: &Superblock,
    ) -> Result<Option<Arc<dyn BlockDevice>>> {
        let Some(log) = &label.log else { return Ok(None) };
        let Self::Device(device) = self else {
            let closed = label.state == StoreState::Clean;
            return Err(not_given(store_name, log, closed));
        };
        match LogLabel::find(device.as_ref())? {
            Found::Label(own) if own.store_id == label.store_id && own.id == log.id => {
                Ok(Some(device.clone()))
            }
            Found::Damaged => Err(Error::new(
                ErrorKind::Corrupt,
                format!("both labels of the log device {} are damaged", device.info().name),
            )),
            _ => Err(Error::with_hint(
                ErrorKind::Member,
                format!("{} is not the log device of {store_name}", device.info().name),
                format!("its log is on {}", log.name),
            )),
        }
    }
}

fn not_given(store_name: &str, log: &LogReference, closed: bool) -> Error {
    let name = &log.name;
    Error::with_hint(
        ErrorKind::Member,
        format!(
            "{store_name} keeps its log on a device of its own, which was not given: it was {name} when the store was changed last"
        ),
        match closed {
            true => format!(
                "say `--log-device {name}`; since the store was closed, a blank device will do, or `--log-device none` for its own space"
            ),
            false => format!(
                "say `--log-device {name}`; if that is lost, `qpair repair` saves what was in the pages at the last checkpoint"
            ),
        },
    )
}

fn other_moment(store_name: &str, name: &str) -> Error {
    Error::with_hint(
        ErrorKind::Member,
        format!(
            "{store_name} and its log device {name} are of different moments: one of them was restored alone"
        ),
        "restore both from one moment, or the store from a backup",
    )
}

fn refuse_read_only(device: &dyn BlockDevice) -> Result<()> {
    match device.info().read_only {
        false => Ok(()),
        true => Err(Error::new(
            ErrorKind::ReadOnly,
            format!("the log device {} cannot be written", device.info().name),
        )),
    }
}

/// Makes room for the logs of all workers.
///
/// # Errors
/// `NoSpace` if there is too little.
pub(super) fn make_room(device: &dyn BlockDevice, segment_bytes: u64, workers: u64) -> Result<()> {
    let least_bytes = LABEL_BYTES + workers * SEGMENTS_PER_WORKER * segment_bytes;
    if device.size_bytes() >= least_bytes {
        return Ok(());
    }
    device.grow(least_bytes).map_err(|error| {
        let (name, size_bytes) = (&device.info().name, device.size_bytes());
        Error::with_hint(
            ErrorKind::NoSpace,
            format!(
                "the log device {name} has {size_bytes} bytes, too few for the logs of {workers} workers, and cannot grow: {error}"
            ),
            format!("it needs at least {least_bytes} bytes; fewer workers need less"),
        )
    })
}

/// Refuses what has no room for a label.
fn refuse_too_small(device: &dyn BlockDevice) -> Result<()> {
    if device.size_bytes() < LABEL_BYTES
        && let Err(error) = device.grow(LABEL_BYTES)
    {
        return Err(Error::block(error, "making room for the label of a log device"));
    }
    Ok(())
}

/// Has the label name a log device.
fn attach(
    device: &Arc<dyn BlockDevice>,
    own: LogLabel,
    label: &mut Superblock,
) -> Result<Attached> {
    if own.generation > label.generation {
        // The store is older than its log device, and was closed. No life may have the number of one that wrote there: its
        // chunks would count. The next label must not go over the one that counts.
        let same_slot = own.generation.is_multiple_of(2) == label.generation.is_multiple_of(2);
        label.generation = own.generation + u64::from(!same_slot);
    }
    label.log = Some(LogReference { id: own.id, name: device.info().name.clone() });
    Ok(Attached { device: device.clone(), label: own })
}

fn attach_new(device: &Arc<dyn BlockDevice>, label: &mut Superblock) -> Result<Attached> {
    let mut id = [0; 16];
    fastrand::fill(&mut id);
    let own = LogLabel {
        store_id: label.store_id,
        id,
        generation: label.generation,
        created_s: label.created_s,
    };
    own.write_new(device.as_ref())?;
    attach(device, own, label)
}

impl LogDevice {
    /// Takes an attached device into use, with room for the logs of all workers.
    ///
    /// # Errors
    /// `NoSpace` if it has too little.
    pub(super) fn new(
        attached: Attached,
        segment_bytes: u64,
        workers: u64,
        checkpoint_bytes: u64,
    ) -> Result<Self> {
        let Attached { device, label } = attached;
        make_room(device.as_ref(), segment_bytes, workers)?;
        let size_bytes = device.size_bytes();
        let wanted_bytes =
            LABEL_BYTES.saturating_add(checkpoint_bytes.saturating_mul(CHECKPOINTS_MAX));
        Ok(Self {
            end_bytes_max: match device.info().growable {
                true => size_bytes.max(wanted_bytes),
                false => size_bytes,
            },
            segments: Mutex::new(Segments::new(LABEL_BYTES, segment_bytes)),
            device,
            label,
            segment_bytes,
            workers,
        })
    }

    fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of what is on it, as an address of the workers' channels.
    pub(crate) fn end_address(&self) -> u64 {
        PAIR_SECOND_BYTES + self.device.size_bytes()
    }

    /// A segment, by its address.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(crate) fn allocate(&self) -> Result<u64> {
        let mut segments = self.segments();
        let free = segments.first_free();
        let end_bytes = segments.end_bytes(free);
        if end_bytes > self.device.size_bytes() {
            self.grow(end_bytes)?;
        }
        segments.take(free);
        Ok(PAIR_SECOND_BYTES + free)
    }

    fn grow(&self, end_bytes: u64) -> Result<()> {
        let name = &self.device.info().name;
        let hint = "the store goes on once a checkpoint has made segments free; give it a larger log device";
        if end_bytes > self.end_bytes_max {
            return Err(Error::with_hint(
                ErrorKind::NoSpace,
                format!(
                    "the log device {name} is full: its {} bytes are in use",
                    self.end_bytes_max
                ),
                hint,
            ));
        }
        let size_bytes = self.device.size_bytes();
        let step = (size_bytes / 4).max(GROWTH_SEGMENTS_MIN * self.segment_bytes);
        let wanted = end_bytes.max(size_bytes + step).min(self.end_bytes_max);
        let grown = self.device.grow(wanted).or_else(|_| self.device.grow(end_bytes));
        grown.map_err(|error| {
            Error::with_hint(
                ErrorKind::NoSpace,
                format!("the log device {name} cannot grow to {end_bytes} bytes: {error}"),
                hint,
            )
        })
    }

    /// Gives segments back, by their addresses.
    pub(crate) fn give(&self, addresses: Vec<u64>) {
        let mut segments = self.segments();
        addresses.into_iter().for_each(|address| segments.give(address - PAIR_SECOND_BYTES));
    }

    /// Keeps what recovery still reads, segments of so many bytes, until [`LogDevice::release_claims`].
    pub(crate) fn claim(&self, addresses: &[u64], segment_bytes: u64) {
        let mut segments = self.segments();
        for address in addresses {
            let start = address.saturating_sub(PAIR_SECOND_BYTES);
            segments.claim(start..start.saturating_add(segment_bytes));
        }
    }

    /// What recovery has read is needed no more.
    pub(crate) fn release_claims(&self) {
        self.segments().release_claims();
    }

    /// Whether so much of it is in use that a checkpoint should make some of it free.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let segments = self.segments();
        segments.used() * 2 > segments.count(self.end_bytes_max)
    }

    /// Refuses a commit for whose record there is never room: more than what one log gets if all others have what they need.
    ///
    /// # Errors
    /// `TooLarge`.
    pub(crate) fn check_record(&self, bytes: u64) -> Result<()> {
        let segments = self.segments().count(self.end_bytes_max);
        let others = (self.workers - 1) * (SEGMENTS_PER_WORKER - 1);
        // The current one may be full, and another is only named; of each some is left unused.
        let most =
            segments.saturating_sub(others + 2) * (self.segment_bytes - self.segment_bytes / 4);
        if bytes <= most {
            return Ok(());
        }
        Err(Error::with_hint(
            ErrorKind::TooLarge,
            format!(
                "a commit of up to {bytes} bytes has no room on the log device {}, which takes {most} at once",
                self.device.info().name
            ),
            "commit in smaller parts, or give the store a larger log device",
        ))
    }

    /// Bytes of it in use, and bytes up to which it may be.
    pub(crate) fn space(&self) -> (u64, u64) {
        (self.segments().used() * self.segment_bytes, self.end_bytes_max)
    }

    /// Whether a log of this life of the store can be on it: it was there when that life began.
    pub(super) fn fits(&self, store_name: &str, logs: &[Vec<u8>]) -> Result<()> {
        let lives = logs.iter().filter_map(|log| LogPosition::decode(log).ok());
        match lives.into_iter().all(|position| position.incarnation <= self.label.generation) {
            true => Ok(()),
            false => Err(other_moment(store_name, &self.device.info().name)),
        }
    }

    /// Notes on the device that a life of the store begins to write there, durably.
    pub(super) fn mark(&self, generation: u64) -> Result<()> {
        LogLabel { generation, ..self.label }.write(self.device.as_ref())
    }
}
