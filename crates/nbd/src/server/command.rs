//! Checks of requests, before a device sees them.

use crate::wire::request::flag;
use crate::wire::{Errno, Kind, PAYLOAD_BYTES_MAX, Request, Style};

/// The limits of an export.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub size_bytes: u64,
    /// The device's logical block.
    pub block_bytes: u32,
    pub read_only: bool,
    pub trims: bool,
    pub has_status: bool,
    /// The largest read that is answered in one chunk.
    pub chunk_bytes_max: u32,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The request is to be executed.
    Execute,
    /// The request is answered with an error, after its payload was skipped.
    Refuse(Errno),
    /// The client leaves.
    Leave,
    /// The stream can no longer be followed.
    Disconnect(&'static str),
}

/// Checks a request.
#[must_use]
pub fn check(request: &Request, style: Style, limits: &Limits) -> Checked {
    let Request { flags, kind, offset, len, .. } = *request;
    let is_extended = style == Style::Extended;
    let payload = request.payload_bytes(is_extended);
    if payload > u64::from(PAYLOAD_BYTES_MAX) {
        return Checked::Disconnect("the client announced a payload that is too long");
    }
    let refuse = Checked::Refuse;
    let known = flag::FUA
        | match kind {
            Kind::Disconnect => return Checked::Leave,
            Kind::Read if style != Style::Simple => flag::DF,
            Kind::Write if is_extended => flag::PAYLOAD_LEN,
            Kind::WriteZeroes => flag::NO_HOLE,
            Kind::BlockStatus => flag::REQ_ONE,
            _ => 0,
        };
    // Clients set FUA with all commands.
    if flags & !known != 0 {
        return refuse(Errno::INVALID);
    }
    match kind {
        Kind::Other(_) => return refuse(Errno::INVALID),
        Kind::BlockStatus if !limits.has_status => return refuse(Errno::INVALID),
        Kind::Trim if !limits.trims => return refuse(Errno::INVALID),
        Kind::Flush if (offset, len) == (0, 0) => return Checked::Execute,
        Kind::Flush => return refuse(Errno::INVALID),
        Kind::Write | Kind::Trim | Kind::WriteZeroes if limits.read_only => {
            return refuse(Errno::PERMISSION);
        }
        Kind::Read if len > u64::from(PAYLOAD_BYTES_MAX) => return refuse(Errno::INVALID),
        Kind::Read if flags & flag::DF != 0 && len > u64::from(limits.chunk_bytes_max) => {
            return refuse(Errno::OVERFLOW);
        }
        _ => {}
    }
    let grid = u64::from(limits.block_bytes) - 1;
    let fits = offset.checked_add(len).is_some_and(|end| end <= limits.size_bytes);
    if !fits {
        let is_change = matches!(kind, Kind::Write | Kind::WriteZeroes);
        return refuse(if is_change { Errno::NO_SPACE } else { Errno::INVALID });
    }
    if len == 0 || (offset | len) & grid != 0 {
        return refuse(Errno::INVALID);
    }
    Checked::Execute
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        size_bytes: 1 << 30,
        block_bytes: 512,
        read_only: false,
        trims: true,
        has_status: true,
        chunk_bytes_max: 1 << 18,
    };

    fn of(kind: Kind, flags: u16, offset: u64, len: u64) -> Request {
        Request { flags, kind, cookie: 1, offset, len }
    }

    #[test]
    fn requests_are_checked() {
        let at = |request: Request| check(&request, Style::Structured, &LIMITS);
        assert_eq!(at(of(Kind::Read, flag::DF, 512, 4096)), Checked::Execute);
        assert_eq!(at(of(Kind::Write, flag::FUA, 0, 32 << 20)), Checked::Execute);
        assert_eq!(at(of(Kind::Flush, 0, 0, 0)), Checked::Execute);
        let refused = |request| match at(request) {
            Checked::Refuse(errno) => errno.0,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(of(Kind::Read, 0, 1, 512)), 22);
        assert_eq!(refused(of(Kind::Read, 0, 0, 0)), 22);
        assert_eq!(refused(of(Kind::Read, 0, u64::MAX - 511, 512)), 22);
        assert_eq!(refused(of(Kind::Write, 0, 1 << 30, 512)), 28);
        assert_eq!(refused(of(Kind::Write, flag::DF, 0, 512)), 22);
        assert_eq!(refused(of(Kind::Read, flag::DF, 0, 1 << 19)), 75);
        assert_eq!(refused(of(Kind::Other(5), 0, 0, 512)), 22);
        let long = of(Kind::Write, 0, 0, (32 << 20) + 512);
        assert!(matches!(at(long), Checked::Disconnect(_)));
        assert_eq!(at(of(Kind::Disconnect, 0, 0, 0)), Checked::Leave);
        let read_only = Limits { read_only: true, ..LIMITS };
        let trim = of(Kind::Trim, 0, 0, 512);
        assert_eq!(check(&trim, Style::Simple, &read_only), Checked::Refuse(Errno::PERMISSION));
    }
}
