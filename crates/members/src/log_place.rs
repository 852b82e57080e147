//! The location of a store's log, and the check that it fits the store's superblock.

use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_format::superblock::{LogReference, StoreState, Superblock};
use qpair_format::{Error, ErrorKind, Remedy, Result};

use crate::blank::find_content;
use crate::log_device::{
    Attached, appoint, attach, attach_new, refuse_read_only, refuse_too_small,
};
use crate::log_superblock::{Found, LogSuperblock};
use crate::refusal::{not_given, not_the_one, other_moment};

/// Selects where a store keeps its write-ahead log.
///
/// ```
/// use qpair_members::LogPlace;
///
/// let device = std::sync::Arc::new(qpair_block::RamDevice::new(Default::default())?);
/// let place = LogPlace::Device(device);
/// assert!(matches!(place, LogPlace::Device(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub enum LogPlace {
    /// The log is in the store's own space. A store that has a log device can then only be opened
    /// read-only, without its log.
    #[default]
    Unsaid,
    /// The log is in the store's own space from now on. If it was elsewhere, the store must have
    /// been closed.
    Store,
    /// The log is on this device, which holds nothing else. If the log was elsewhere, the store
    /// must have been closed, and the device must be blank, or an earlier log device of this store.
    Device(Arc<dyn BlockDevice>),
}

impl LogPlace {
    /// Makes a log device for a store that is being created, and makes the store's superblock name
    /// it. The superblock of the log device must be written before those of the members: it says
    /// that the store is being created, whatever a crash leaves on them.
    pub fn make(&self, superblock: &mut Superblock) -> Result<Option<Attached>> {
        let Self::Device(device) = self else { return Ok(None) };
        refuse_too_small(device.as_ref())?;
        appoint(device, superblock).map(Some)
    }

    /// Determines where the log of an existing store must be, and updates the superblock in memory.
    /// The superblocks on the members are updated with the first change.
    ///
    /// # Errors
    /// `Member` if a device is missing, belongs to another store, or is from another moment;
    /// `Exists` if the device has other content; `ReadOnly` if it cannot be written.
    pub fn settle(
        &self,
        store_name: &str,
        superblock: &mut Superblock,
        read_only: bool,
    ) -> Result<Option<Attached>> {
        let closed = superblock.state == StoreState::Clean;
        match (self, superblock.log.clone()) {
            (Self::Unsaid | Self::Store, None) => Ok(None),
            // A store opened for reading needs no log.
            (Self::Unsaid | Self::Store, Some(_)) if read_only => Ok(None),
            (Self::Unsaid, Some(log)) => Err(not_given(store_name, &log, closed)),
            (Self::Store, Some(_)) if closed => {
                superblock.log = None;
                Ok(None)
            }
            (Self::Store, Some(log)) => Err(Error::with_remedy(
                ErrorKind::Member,
                format!(
                    "{store_name} was not closed, and its log is on the log device {}: without it commits would be lost",
                    log.name
                ),
                format!("open and close it with {}; then the log can move", log.name),
                Remedy::NameLog,
            )),
            (Self::Device(device), log) => {
                self.settle_on(device, log.as_ref(), store_name, superblock, read_only)
            }
        }
    }

    fn settle_on(
        &self,
        device: &Arc<dyn BlockDevice>,
        log: Option<&LogReference>,
        store_name: &str,
        superblock: &mut Superblock,
        read_only: bool,
    ) -> Result<Option<Attached>> {
        let name = &device.info().name;
        let closed = superblock.state == StoreState::Clean;
        let found = LogSuperblock::find(device.as_ref())?;
        let own = match &found {
            Found::Superblock(own) if own.store_id != superblock.store_id => {
                return Err(Error::with_hint(
                    ErrorKind::Member,
                    format!("{name} is the log device of another store than {store_name}"),
                    match log {
                        Some(log) => format!(
                            "each store has its own; the log of this one was on {} when it was changed last",
                            log.name
                        ),
                        None => {
                            "each store has a log device of its own; give a blank device".to_owned()
                        }
                    },
                ));
            }
            Found::Superblock(own) => Some(*own),
            Found::Member => {
                return Err(Error::with_hint(
                    ErrorKind::Member,
                    format!("{name} is a member of a store, not a log device"),
                    "give the device that the store's log is on",
                ));
            }
            _ => None,
        };
        match (log, own) {
            (Some(log), Some(own)) if log.id == own.id => {
                if !closed && own.generation > superblock.generation {
                    return Err(other_moment(store_name, name));
                }
                if read_only {
                    return Ok(None);
                }
                refuse_read_only(device.as_ref())?;
                attach(device, own, superblock).map(Some)
            }
            (Some(log), _) if !closed => Err(not_the_one(name, &found, store_name, log)),
            (None, _) if !closed => Err(Error::with_hint(
                ErrorKind::Member,
                format!("{store_name} was not closed, and its log is in its own space"),
                "open and close it once without a log device, which recovers it; then the log can move",
            )),
            (_, _) if read_only => Err(Error::with_hint(
                ErrorKind::Member,
                format!("{name} is not the log device of {store_name}"),
                "leave the log device out: a closed store can be read without it",
            )),
            (_, Some(own)) => {
                refuse_read_only(device.as_ref())?;
                attach(device, own, superblock).map(Some)
            }
            (_, None) => {
                refuse_read_only(device.as_ref())?;
                let what = match found {
                    Found::Damaged => Some("is a log device whose superblocks are both damaged"),
                    Found::Blank if find_content(device.as_ref())?.is_none() => None,
                    _ => Some("is not blank"),
                };
                if let Some(what) = what {
                    return Err(Error::with_hint(
                        ErrorKind::Exists,
                        format!("{name} {what}: the log of {store_name} is not moved there"),
                        "if what is on it may be lost, overwrite its first and its last MiB with zeroes; or give another device",
                    ));
                }
                refuse_too_small(device.as_ref())?;
                attach_new(device, superblock).map(Some)
            }
        }
    }

    /// Returns the log device of a store that is inspected without opening it.
    ///
    /// # Errors
    /// `Member` if the log device was not given, or another one was; `Corrupt`, or the device's
    /// error.
    pub fn look(&self, store_name: &str, superblock: &Superblock) -> Result<Option<Attached>> {
        let Some(log) = &superblock.log else { return Ok(None) };
        let Self::Device(device) = self else {
            let closed = superblock.state == StoreState::Clean;
            return Err(not_given(store_name, log, closed));
        };
        match LogSuperblock::find(device.as_ref())? {
            Found::Superblock(own) if own.store_id == superblock.store_id && own.id == log.id => {
                Ok(Some(Attached { device: device.clone(), superblock: own }))
            }
            found => Err(not_the_one(&device.info().name, &found, store_name, log)),
        }
    }
}
