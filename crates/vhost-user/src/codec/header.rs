//! The header at the beginning of every message.

use std::io;

use qpair_socket::{Fields, MessageHeader, Writer};

/// The size of a header in bytes.
pub const HEADER_BYTES: usize = 12;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

macro_rules! requests {
    ($($name:ident = $number:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Request {
            $($name = $number,)*
        }

        impl Request {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            #[must_use]
            pub fn of(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

requests! {
    GetFeatures = 1,
    SetFeatures = 2,
    SetOwner = 3,
    ResetOwner = 4,
    SetMemTable = 5,
    SetVringNum = 8,
    SetVringAddr = 9,
    SetVringBase = 10,
    GetVringBase = 11,
    SetVringKick = 12,
    SetVringCall = 13,
    SetVringErr = 14,
    GetProtocolFeatures = 15,
    SetProtocolFeatures = 16,
    GetQueueNum = 17,
    SetVringEnable = 18,
    SetBackendReqFd = 21,
    GetConfig = 24,
    SetConfig = 25,
    GetInflightFd = 31,
    SetInflightFd = 32,
    ResetDevice = 34,
    GetMaxMemSlots = 36,
    AddMemReg = 37,
    RemMemReg = 38,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The request's number; a peer may send any.
    pub request: u32,
    flags: u32,
    pub payload_bytes: u32,
}

impl Header {
    /// The back end's request, over its own socket, to read the configuration again.
    pub const CONFIG_CHANGE: u32 = 2;

    /// Makes the header of a request. With `needs_reply`, the sender waits for a reply even if the
    /// request normally has none.
    #[must_use]
    pub fn request(number: u32, payload_bytes: usize, needs_reply: bool) -> Self {
        let flags = VERSION | if needs_reply { NEED_REPLY } else { 0 };
        Self { request: number, flags, payload_bytes: payload_bytes as u32 }
    }

    #[must_use]
    pub fn reply(self, payload_bytes: usize) -> Self {
        Self { flags: VERSION | REPLY, payload_bytes: payload_bytes as u32, ..self }
    }

    /// Whether the message is a reply; otherwise it is a request.
    #[must_use]
    pub fn is_reply(self) -> bool {
        self.flags & REPLY != 0
    }

    /// Whether the sender waits for a reply even if the request normally has none.
    #[must_use]
    pub fn needs_reply(self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    /// Encodes the message: the header with the payload.
    #[must_use]
    pub fn message(self, payload: &[u8]) -> Vec<u8> {
        Writer::default()
            .u32(self.request)
            .u32(self.flags)
            .u32(self.payload_bytes)
            .bytes(payload)
            .done()
    }
}

impl MessageHeader for Header {
    const BYTES: usize = HEADER_BYTES;

    fn read(bytes: &[u8]) -> io::Result<(Self, usize)> {
        let mut fields = Fields::of(bytes);
        let mut next = || fields.u32().ok_or(io::ErrorKind::InvalidData);
        let header = Self { request: next()?, flags: next()?, payload_bytes: next()? };
        if header.flags & VERSION_MASK != VERSION {
            let what = format!("a message has version {}", header.flags & VERSION_MASK);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok((header, header.payload_bytes as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        for request in Request::ALL {
            assert_eq!(Request::of(*request as u32), Some(*request));
            for needs_reply in [false, true] {
                let header = Header::request(*request as u32, 40, needs_reply);
                let (read, payload_bytes) = Header::read(&header.message(&[])).unwrap();
                assert_eq!((read, payload_bytes), (header, 40));
                assert_eq!((read.needs_reply(), read.is_reply()), (needs_reply, false));
                let reply = Header::read(&header.reply(8).message(&[0; 8])[..12]).unwrap().0;
                // Exactly these flags, because some peers compare the whole value.
                assert_eq!((reply.flags, reply.payload_bytes), (5, 8));
            }
        }
        assert_eq!(Request::of(6), None);
    }

    #[test]
    fn what_is_none_is_refused() {
        for flags in [0u32, 2, 3, 4] {
            let bytes = [1u32, flags, 0].map(u32::to_le_bytes).concat();
            assert!(Header::read(&bytes).is_err(), "{flags}");
        }
        assert!(Header::read(&[1; 11]).is_err());
    }
}
