//! Errors for a store and a log device that do not belong together.

use qpair_format::superblock::LogReference;
use qpair_format::{Error, ErrorKind, Remedy};

use crate::log_superblock::Found;

/// The hint on what a repair can save when the log of a store is lost.
const LOST: &str = "if it is lost, a repair saves what was in the pages at the last checkpoint";

pub(crate) fn not_given(store_name: &str, log: &LogReference, closed: bool) -> Error {
    let name = &log.name;
    let (hint, remedy) = match closed {
        true => (
            format!(
                "give {name} as its log device; since the store was closed, a blank device will do, or the store's own space"
            ),
            Remedy::PlaceLog,
        ),
        false => (format!("give {name} as its log device; {LOST}"), Remedy::NameLog),
    };
    Error::with_remedy(
        ErrorKind::Member,
        format!(
            "{store_name} keeps its log on a device of its own, which was not given: it was {name} when the store was changed last"
        ),
        hint,
        remedy,
    )
}

/// Returns the error for a log that is needed and is not on the given device.
pub(crate) fn not_the_one(
    name: &str,
    found: &Found,
    store_name: &str,
    log: &LogReference,
) -> Error {
    if *found == Found::Damaged {
        return Error::with_remedy(
            ErrorKind::Corrupt,
            format!(
                "both superblocks of the log device {name} are damaged: the log of {store_name} cannot be read"
            ),
            LOST,
            Remedy::Repair,
        );
    }
    let blank = if *found == Found::Blank { " blank, and" } else { "" };
    let last = &log.name;
    Error::with_remedy(
        ErrorKind::Member,
        format!(
            "{name} is{blank} not the log device of {store_name}; its last log device was {last}"
        ),
        format!("give the device that it is on now, such as {last}; {LOST}"),
        Remedy::NameLog,
    )
}

/// Returns the error for a log device that is from another moment than the members.
pub fn other_moment(store_name: &str, name: &str) -> Error {
    Error::with_hint(
        ErrorKind::Member,
        format!(
            "{store_name} and its log device {name} are from different moments: one of them was restored alone"
        ),
        "restore both from one moment, or the store from a backup",
    )
}
