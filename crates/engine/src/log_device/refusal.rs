//! What people are told whose store and log device do not belong together.

use crate::error::{Error, ErrorKind};
use crate::labels::{Found, LogReference};

pub(crate) fn not_given(store_name: &str, log: &LogReference, closed: bool) -> Error {
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

/// The log of a store is not where it was said to be, and is needed.
pub(crate) fn not_the_one(
    name: &str,
    found: &Found,
    store_name: &str,
    log: &LogReference,
) -> Error {
    let lost = "`qpair repair` saves what was in the pages at the last checkpoint";
    if *found == Found::Damaged {
        return Error::with_hint(
            ErrorKind::Corrupt,
            format!(
                "both labels of the log device {name} are damaged: the log of {store_name} cannot be read"
            ),
            lost,
        );
    }
    let blank = if *found == Found::Blank { " blank, and" } else { "" };
    let last = &log.name;
    Error::with_hint(
        ErrorKind::Member,
        format!(
            "{name} is{blank} not the log device of {store_name}, whose log was on {last} when it was changed last"
        ),
        format!(
            "give the device that it is on now, such as `--log-device {last}`; if that is lost, {lost}"
        ),
    )
}

pub(crate) fn other_moment(store_name: &str, name: &str) -> Error {
    Error::with_hint(
        ErrorKind::Member,
        format!(
            "{store_name} and its log device {name} are of different moments: one of them was restored alone"
        ),
        "restore both from one moment, or the store from a backup",
    )
}
