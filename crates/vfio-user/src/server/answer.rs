//! The answers to commands.

use std::os::fd::OwnedFd;

use qpair_block::{Error, ErrorKind};
use rustix::io::Errno;

/// The reply to a command, or the error that it failed with.
pub(super) type Answer = Result<Reply, Errno>;

#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) payload: Vec<u8>,
    pub(super) fd: Option<OwnedFd>,
}

impl Reply {
    pub(super) fn of(payload: Vec<u8>) -> Answer {
        Ok(Self { payload, fd: None })
    }

    pub(super) fn empty() -> Answer {
        Ok(Self::default())
    }
}

pub(super) fn errno_of(error: &Error) -> Errno {
    match error.kind() {
        ErrorKind::Invalid => Errno::INVAL,
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::Exists => Errno::EXIST,
        ErrorKind::Denied => Errno::ACCESS,
        ErrorKind::Busy => Errno::BUSY,
        ErrorKind::NoSpace | ErrorKind::Limit => Errno::NOSPC,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        ErrorKind::ReadOnly => Errno::ROFS,
        ErrorKind::Gone => Errno::NODEV,
        _ => Errno::IO,
    }
}
