//! Replies of the transmission phase: simple ones, and chunks of structured and extended ones.

use qpair_block::{ErrorKind, IoError};
use qpair_wire::be;

/// The magic number of a simple reply.
pub const SIMPLE: u32 = 0x6744_6698;
/// The magic number of a chunk of a structured reply.
pub const STRUCTURED: u32 = 0x668E_33EF;
/// The magic number of a chunk of an extended reply.
pub const EXTENDED: u32 = 0x6E8A_278C;

/// The flag of a reply's last chunk.
pub const DONE: u16 = 1;

/// Types of chunks.
mod chunk {
    pub(super) const NONE: u16 = 0;
    pub(super) const OFFSET_DATA: u16 = 1;
    pub(super) const OFFSET_HOLE: u16 = 2;
    pub(super) const BLOCK_STATUS: u16 = 5;
    pub(super) const BLOCK_STATUS_EXTENDED: u16 = 6;
    /// The bit that all errors have.
    pub(super) const IS_ERROR: u16 = 1 << 15;
    pub(super) const ERROR: u16 = IS_ERROR | 1;
    pub(super) const ERROR_OFFSET: u16 = IS_ERROR | 2;
}

/// How a connection's replies are framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Simple,
    Structured,
    Extended,
}

/// The error of a request, by its number in NBD, which is Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u32);

impl Errno {
    pub const PERMISSION: Self = Self(1);
    pub const IO: Self = Self(5);
    pub const NO_MEMORY: Self = Self(12);
    pub const INVALID: Self = Self(22);
    pub const NO_SPACE: Self = Self(28);
    pub const OVERFLOW: Self = Self(75);
    pub const UNSUPPORTED: Self = Self(95);
    pub const SHUTDOWN: Self = Self(108);

    /// Returns the number for a device's error.
    #[must_use]
    pub fn of(error: IoError) -> Self {
        match error.kind {
            ErrorKind::Invalid => Self::INVALID,
            ErrorKind::NoSpace => Self::NO_SPACE,
            ErrorKind::ReadOnly | ErrorKind::Denied => Self::PERMISSION,
            ErrorKind::Unsupported => Self::UNSUPPORTED,
            ErrorKind::Limit => Self::NO_MEMORY,
            _ => Self::IO,
        }
    }

    /// Returns the error that a client's caller gets.
    #[must_use]
    pub fn io_error(self) -> IoError {
        match self {
            Self::PERMISSION => IoError::READ_ONLY,
            Self::INVALID => IoError::INVALID,
            Self::UNSUPPORTED => IoError::UNSUPPORTED,
            _ => IoError::from_errno(i32::try_from(self.0).unwrap_or(5)),
        }
    }
}

/// A part of an export with one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub len: u64,
    /// [`Extent::HOLE`] and [`Extent::ZERO`].
    pub state: u32,
}

impl Extent {
    /// The part has no space.
    pub const HOLE: u32 = 1;
    /// The part reads as zeroes.
    pub const ZERO: u32 = 2;
}

/// Appends the header of a chunk whose payload has `len` bytes.
fn put_chunk(into: &mut Vec<u8>, style: Style, kind: u16, done: bool, cookie: u64, len: u64) {
    let is_extended = style == Style::Extended;
    into.extend((if is_extended { EXTENDED } else { STRUCTURED }).to_be_bytes());
    into.extend((if done { DONE } else { 0 }).to_be_bytes());
    into.extend(kind.to_be_bytes());
    into.extend(cookie.to_be_bytes());
    if is_extended {
        // The offset of the request, which clients may ignore.
        into.extend(0u64.to_be_bytes());
        into.extend(len.to_be_bytes());
    } else {
        into.extend((len as u32).to_be_bytes());
    }
}

/// Appends the header of a simple reply, which data follows if a read succeeded.
pub fn put_simple(into: &mut Vec<u8>, cookie: u64, error: u32) {
    into.extend(SIMPLE.to_be_bytes());
    into.extend(error.to_be_bytes());
    into.extend(cookie.to_be_bytes());
}

/// Appends the reply of a request without data.
pub fn put_end(into: &mut Vec<u8>, style: Style, cookie: u64, result: Result<(), Errno>) {
    match (style, result) {
        (Style::Simple, _) => put_simple(into, cookie, result.err().map_or(0, |errno| errno.0)),
        (_, Ok(())) => put_chunk(into, style, chunk::NONE, true, cookie, 0),
        (_, Err(errno)) => {
            put_chunk(into, style, chunk::ERROR, true, cookie, 6);
            into.extend(errno.0.to_be_bytes());
            into.extend(0u16.to_be_bytes());
        }
    }
}

/// Appends the header of a chunk of `len` bytes of data, which follow.
pub fn put_data(into: &mut Vec<u8>, style: Style, done: bool, cookie: u64, offset: u64, len: u32) {
    put_chunk(into, style, chunk::OFFSET_DATA, done, cookie, 8 + u64::from(len));
    into.extend(offset.to_be_bytes());
}

/// Appends the only chunk of a block status reply.
pub fn put_status(into: &mut Vec<u8>, style: Style, cookie: u64, id: u32, extents: &[Extent]) {
    if style == Style::Extended {
        let len = 8 + 16 * extents.len() as u64;
        put_chunk(into, style, chunk::BLOCK_STATUS_EXTENDED, true, cookie, len);
        into.extend(id.to_be_bytes());
        into.extend((extents.len() as u32).to_be_bytes());
        for extent in extents {
            into.extend(extent.len.to_be_bytes());
            into.extend(u64::from(extent.state).to_be_bytes());
        }
        return;
    }
    put_chunk(into, style, chunk::BLOCK_STATUS, true, cookie, 4 + 8 * extents.len() as u64);
    into.extend(id.to_be_bytes());
    for extent in extents {
        into.extend((extent.len as u32).to_be_bytes());
        into.extend(extent.state.to_be_bytes());
    }
}

/// The contents of a reply or chunk, as far as a client needs them before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// The request has ended without an error; data follows if it was a read.
    Simple,
    /// A simple reply, or an error chunk of which `skip` bytes follow.
    Error { errno: Errno, skip: u64 },
    /// Nothing.
    None,
    /// `len` bytes of data at `offset` follow.
    Data { offset: u64, len: u64 },
    /// `len` bytes at `offset` are zeroes.
    Hole { offset: u64, len: u64 },
    /// A chunk that a client did not ask for, with `skip` bytes.
    Other { skip: u64 },
}

/// A reply or chunk of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub cookie: u64,
    /// Whether this ends the reply.
    pub done: bool,
    pub chunk: Chunk,
}

impl Reply {
    /// Returns the reply at the front of `data` and the number of its bytes before the data that
    /// follows. Returns `Ok(None)` if more bytes are needed: at most 64 suffice.
    ///
    /// # Errors
    /// A description of what is wrong; the stream is then out of step.
    pub fn decode(data: &[u8]) -> Result<Option<(Self, usize)>, &'static str> {
        if data.len() < 16 {
            return Ok(None);
        }
        let is_extended = match be::u32_at(data, 0) {
            SIMPLE => {
                let errno = be::u32_at(data, 4);
                let chunk = match errno {
                    0 => Chunk::Simple,
                    _ => Chunk::Error { errno: Errno(errno), skip: 0 },
                };
                return Ok(Some((Self { cookie: be::u64_at(data, 8), done: true, chunk }, 16)));
            }
            STRUCTURED => false,
            EXTENDED => true,
            _ => return Err("a reply has the wrong magic number"),
        };
        let head = if is_extended { 32 } else { 20 };
        if data.len() < head {
            return Ok(None);
        }
        let (done, kind) = (be::u16_at(data, 4) & DONE != 0, be::u16_at(data, 6));
        let cookie = be::u64_at(data, 8);
        let len = if is_extended { be::u64_at(data, 24) } else { u64::from(be::u32_at(data, 16)) };
        // The fields that every chunk of the type has.
        let fields = match kind {
            chunk::NONE if len == 0 => 0,
            chunk::OFFSET_DATA if len > 8 => 8,
            chunk::OFFSET_HOLE if len == 12 => 12,
            chunk::ERROR if len >= 6 => 6,
            chunk::ERROR_OFFSET if len >= 14 => 6,
            chunk::NONE..=chunk::OFFSET_HOLE | chunk::ERROR | chunk::ERROR_OFFSET => {
                return Err("a chunk has the wrong length");
            }
            _ if kind & chunk::IS_ERROR != 0 && len >= 6 => 6,
            _ => 0,
        };
        if data.len() < head + fields {
            return Ok(None);
        }
        let skip = len - fields as u64;
        let chunk = match kind {
            chunk::NONE => Chunk::None,
            chunk::OFFSET_DATA => Chunk::Data { offset: be::u64_at(data, head), len: skip },
            chunk::OFFSET_HOLE => Chunk::Hole {
                offset: be::u64_at(data, head),
                len: be::u32_at(data, head + 8).into(),
            },
            _ if fields == 6 => match be::u32_at(data, head) {
                0 => return Err("an error chunk has no error"),
                errno => Chunk::Error { errno: Errno(errno), skip },
            },
            _ => Chunk::Other { skip },
        };
        Ok(Some((Self { cookie, done, chunk }, head + fields)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Option<(Reply, usize)> {
        let whole = Reply::decode(bytes).unwrap();
        // Each prefix of the header is either too short or the same.
        for end in 0..bytes.len() {
            let part = Reply::decode(&bytes[..end]).unwrap();
            assert!(part.is_none() || part == whole);
        }
        whole
    }

    #[test]
    fn replies_are_read_as_they_are_written() {
        for style in [Style::Simple, Style::Structured, Style::Extended] {
            let mut bytes = Vec::new();
            put_end(&mut bytes, style, 7, Err(Errno::NO_SPACE));
            let (reply, len) = decoded(&bytes).unwrap();
            assert!(matches!(reply.chunk, Chunk::Error { errno: Errno::NO_SPACE, skip: 0 }));
            assert_eq!((reply.cookie, reply.done, len), (7, true, bytes.len()));
            bytes.clear();
            put_end(&mut bytes, style, 8, Ok(()));
            let (reply, len) = decoded(&bytes).unwrap();
            assert!(matches!(reply.chunk, Chunk::Simple | Chunk::None) && len == bytes.len());
        }
        for style in [Style::Structured, Style::Extended] {
            let mut bytes = Vec::new();
            put_data(&mut bytes, style, false, 9, 1 << 33, 512);
            let (reply, len) = decoded(&bytes).unwrap();
            assert_eq!(reply.chunk, Chunk::Data { offset: 1 << 33, len: 512 });
            assert!(!reply.done && len == bytes.len());
            bytes.clear();
            put_status(&mut bytes, style, 1, 1, &[Extent { len: 4096, state: 3 }]);
            let (reply, len) = decoded(&bytes).unwrap();
            let Chunk::Other { skip } = reply.chunk else { panic!("{reply:?}") };
            assert_eq!(len as u64 + skip, bytes.len() as u64);
        }
        assert!(Reply::decode(&[0; 16]).is_err());
    }
}
