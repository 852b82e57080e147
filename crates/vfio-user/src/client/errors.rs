//! Errors of the client, with hints.

use std::io;
use std::time::Duration;

use qpair_block::{Error, ErrorKind};

use crate::codec::Command;

pub(super) fn not_vfio_user(name: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{name} does not speak vfio-user: {why}"))
        .hint("name the socket of a vfio-user device, such as qpair softdrive makes with --socket")
}

pub(super) fn nonsense(name: &str, command: Command) -> Error {
    Error::new(ErrorKind::Io, format!("{name}: the answer to {command:?} makes no sense"))
}

pub(super) fn refused(name: &str, command: Command, errno: u32) -> Error {
    // Some servers give no reason, and some send a value that is not an error number.
    let errno = i32::try_from(errno).ok().filter(|errno| (1..4096).contains(errno)).unwrap_or(5);
    let cause = io::Error::from_raw_os_error(errno);
    let error = Error::os(cause, format!("{name}: the device refused {command:?}"));
    match error.kind() {
        ErrorKind::Busy if command == Command::Version => {
            error.hint("another driver is connected: end it, or serve another drive (--drives)")
        }
        _ if error.way_out().is_none() => error.hint("see what the device's process says"),
        _ => error,
    }
}

pub(super) fn closed(name: &str, command: Command) -> Error {
    let context = format!("{name}: the device's process closed the connection at {command:?}");
    Error::new(ErrorKind::Gone, context).hint("see what that process says, and start it again")
}

pub(super) fn too_slow(name: &str, command: Command, timeout: Duration) -> Error {
    let context =
        format!("{name} did not answer {command:?} within {:.1} s", timeout.as_secs_f64());
    Error::new(ErrorKind::Gone, context)
        .hint("is the device's process stopped, or without processor time?")
}

pub(super) fn stopped(name: &str, command: Command) -> Error {
    let context = format!("{name} has not answered {command:?}, and the wait was interrupted");
    Error::new(ErrorKind::Interrupted, context)
}

pub(super) fn cut_short(name: &str) -> Error {
    let context =
        format!("{name}: the device's process cut short memory that this program has mapped");
    Error::new(ErrorKind::Gone, context).hint(
        "that process is broken or hostile: end it, and open the device again from another one",
    )
}

pub(super) fn gone(name: &str) -> Error {
    Error::new(ErrorKind::Gone, format!("{name}: the connection to the device is closed"))
        .hint("open the device again")
}
