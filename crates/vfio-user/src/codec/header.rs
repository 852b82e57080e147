//! The header at the beginning of every message.

use std::io;

use qpair_socket::{Fields, MessageHeader, Writer};

pub const HEADER_BYTES: usize = 16;

const TYPE_MASK: u32 = 0xF;
const TYPE_REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Command {
    Version = 1,
    DmaMap = 2,
    DmaUnmap = 3,
    GetDeviceInfo = 4,
    GetRegionInfo = 5,
    GetRegionIoFds = 6,
    GetIrqInfo = 7,
    SetIrqs = 8,
    RegionRead = 9,
    RegionWrite = 10,
    DmaRead = 11,
    DmaWrite = 12,
    Reset = 13,
    RegionWriteMulti = 15,
    DeviceFeature = 16,
    MigrationRead = 17,
    MigrationWrite = 18,
}

impl Command {
    #[must_use]
    pub fn of(number: u16) -> Option<Self> {
        use Command as C;
        Some(match number {
            1 => C::Version,
            2 => C::DmaMap,
            3 => C::DmaUnmap,
            4 => C::GetDeviceInfo,
            5 => C::GetRegionInfo,
            6 => C::GetRegionIoFds,
            7 => C::GetIrqInfo,
            8 => C::SetIrqs,
            9 => C::RegionRead,
            10 => C::RegionWrite,
            11 => C::DmaRead,
            12 => C::DmaWrite,
            13 => C::Reset,
            15 => C::RegionWriteMulti,
            16 => C::DeviceFeature,
            17 => C::MigrationRead,
            18 => C::MigrationWrite,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The identifier, chosen by the sender of the command and repeated in the reply.
    pub id: u16,
    /// The command's number; a peer may send any.
    pub command: u16,
    /// The bytes of the message, including the header.
    pub message_bytes: u32,
    flags: u32,
    /// The errno of a reply that [`Header::is_error`].
    pub errno: u32,
}

impl MessageHeader for Header {
    const BYTES: usize = HEADER_BYTES;

    fn read(bytes: &[u8]) -> io::Result<(Self, usize)> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let header = Self::parse(bytes).filter(|header| !header.is_neither());
        let header =
            header.ok_or_else(|| wrong("a message is neither a command nor a reply".into()))?;
        let payload_bytes = header.payload_bytes();
        let payload_bytes = payload_bytes.ok_or_else(|| {
            wrong(format!("a message cannot have {} bytes", header.message_bytes))
        })?;
        Ok((header, payload_bytes))
    }
}

impl Header {
    #[must_use]
    pub fn command(id: u16, command: Command, payload_bytes: usize) -> Self {
        Self::with(id, command as u16, payload_bytes, 0, 0)
    }

    /// Marks a command as one whose sender waits for no reply.
    #[must_use]
    pub fn posted(self) -> Self {
        Self { flags: self.flags | NO_REPLY, ..self }
    }

    #[must_use]
    pub fn reply(self, payload_bytes: usize) -> Self {
        Self::with(self.id, self.command, payload_bytes, TYPE_REPLY, 0)
    }

    /// Makes the header of an error reply to `self`. No payload follows it.
    #[must_use]
    pub fn error(self, errno: u32) -> Self {
        Self::with(self.id, self.command, 0, TYPE_REPLY | ERROR, errno)
    }

    fn with(id: u16, command: u16, payload_bytes: usize, flags: u32, errno: u32) -> Self {
        let message_bytes = u32::try_from(HEADER_BYTES + payload_bytes).unwrap_or(u32::MAX);
        Self { id, command, message_bytes, flags, errno }
    }

    /// Whether the message is a reply; otherwise it is a command.
    #[must_use]
    pub fn is_reply(self) -> bool {
        self.flags & TYPE_MASK == TYPE_REPLY
    }

    #[must_use]
    pub fn is_neither(self) -> bool {
        self.flags & TYPE_MASK > TYPE_REPLY
    }

    /// Whether the sender waits for no reply.
    #[must_use]
    pub fn wants_no_reply(self) -> bool {
        self.flags & NO_REPLY != 0
    }

    /// Whether the message is the reply to a command that failed.
    #[must_use]
    pub fn is_error(self) -> bool {
        self.flags & ERROR != 0
    }

    /// Returns the number of bytes after the header; `None` if the message claims to be shorter
    /// than its header.
    #[must_use]
    pub fn payload_bytes(self) -> Option<usize> {
        (self.message_bytes as usize).checked_sub(HEADER_BYTES)
    }

    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        Some(Self {
            id: fields.u16()?,
            command: fields.u16()?,
            message_bytes: fields.u32()?,
            flags: fields.u32()?,
            errno: fields.u32()?,
        })
    }

    /// Encodes the message: the header and its payload.
    #[must_use]
    pub fn message(self, payload: &[u8]) -> Vec<u8> {
        Writer::default()
            .u16(self.id)
            .u16(self.command)
            .u32(self.message_bytes)
            .u32(self.flags)
            .u32(self.errno)
            .bytes(payload)
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_bytes() {
        let header = Header::command(0x0102, Command::RegionRead, 16);
        let bytes = header.message(&[7; 16]);
        assert_eq!(&bytes[..16], &[2, 1, 9, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Header::parse(&bytes), Some(header));
        assert!(!header.is_reply() && !header.is_error() && !header.wants_no_reply());
        assert_eq!(header.payload_bytes(), Some(16));

        let error = header.error(22);
        assert!(error.is_reply() && error.is_error());
        assert_eq!(error.message(&[]), [2, 1, 9, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 22, 0, 0, 0]);
        let reply = header.reply(4);
        assert!(reply.is_reply() && !reply.is_error());
        assert_eq!((reply.id, reply.command, reply.message_bytes), (0x0102, 9, 20));
    }

    #[test]
    fn what_is_too_short() {
        assert_eq!(Header::parse(&[0; 15]), None);
        assert_eq!(Header::parse(&[0; 16]).unwrap().payload_bytes(), None);
        let odd = Header::parse(&[0, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert!(odd.is_neither());
    }

    #[test]
    fn numbers_of_commands() {
        for number in 0..=u16::MAX {
            if let Some(command) = Command::of(number) {
                assert_eq!(command as u16, number);
            }
        }
        assert_eq!(Command::of(14), None, "dirty pages are gone from the protocol");
    }
}
