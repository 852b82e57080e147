//! A server of the NBD protocol (fixed newstyle, simple replies) for one client.
//!
//! Requests are executed in the order of their arrival, one at a time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// The size of a block, in bytes. Requests are whole blocks.
pub(crate) const SECTOR_BYTES: u64 = 512;
const REQUEST_BYTES_MAX: u32 = 32 << 20;

const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_E889_0455_65A9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// NBD_FLAG_HAS_FLAGS, NBD_FLAG_SEND_FLUSH, NBD_FLAG_SEND_FUA.
const FLAGS: u16 = 1 | 4 | 8;
const EINVAL: u32 = 22;

/// The storage behind a server. Requests are whole sectors within its size.
pub(crate) trait Medium {
    fn size_bytes(&self) -> u64;
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes bytes. If `forced`, they must survive a loss of power (FUA).
    fn write(&mut self, offset: u64, bytes: &[u8], forced: bool) -> io::Result<()>;
    fn flush(&mut self) -> io::Result<()>;
}

/// Serves `client` until it is gone, and returns whether it sent a disconnect request
/// (NBD_CMD_DISC).
pub(crate) fn serve(client: UnixStream, medium: &mut impl Medium) -> io::Result<bool> {
    Session { client, medium }.run()
}

struct Session<'a, M> {
    client: UnixStream,
    medium: &'a mut M,
}

impl<M: Medium> Session<'_, M> {
    /// Whether this range consists of whole sectors of the medium.
    fn has(&self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(SECTOR_BYTES)
            && len.is_multiple_of(SECTOR_BYTES)
            && offset.checked_add(len).is_some_and(|end| end <= self.medium.size_bytes())
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.client.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn take_u32(&mut self) -> io::Result<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn take_u64(&mut self) -> io::Result<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// Serves requests, and returns whether the client sent a disconnect request.
    fn run(mut self) -> io::Result<bool> {
        self.client.write_all(b"NBDMAGICIHAVEOPT")?;
        // NBD_FLAG_FIXED_NEWSTYLE, NBD_FLAG_NO_ZEROES.
        self.client.write_all(&3_u16.to_be_bytes())?;
        self.take_u32()?;
        while !self.negotiate()? {}
        loop {
            if !self.request()? {
                return Ok(true);
            }
        }
    }

    /// Handles one option, and returns whether requests follow.
    fn negotiate(&mut self) -> io::Result<bool> {
        let (magic, option, len) = (self.take_u64()?, self.take_u32()?, self.take_u32()?);
        if magic != OPTION_MAGIC || len > 64 << 10 {
            return Err(io::Error::other("no option of NBD"));
        }
        let mut data = vec![0; len as usize];
        self.client.read_exact(&mut data)?;
        let bytes = self.medium.size_bytes();
        match option {
            // NBD_OPT_EXPORT_NAME
            1 => {
                self.client.write_all(&bytes.to_be_bytes())?;
                self.client.write_all(&FLAGS.to_be_bytes())?;
                Ok(true)
            }
            // NBD_OPT_INFO, NBD_OPT_GO
            6 | 7 => {
                let mut export = vec![0, 0];
                export.extend(bytes.to_be_bytes());
                export.extend(FLAGS.to_be_bytes());
                self.answer(option, 3, &export)?;
                let mut blocks = vec![0, 3];
                for bytes in [SECTOR_BYTES as u32, 4096, REQUEST_BYTES_MAX] {
                    blocks.extend(bytes.to_be_bytes());
                }
                self.answer(option, 3, &blocks)?;
                self.answer(option, 1, &[])?;
                Ok(option == 7)
            }
            // NBD_REP_ERR_UNSUP: the client continues without the option.
            _ => self.answer(option, 0x8000_0001, &[]).map(|()| false),
        }
    }

    fn answer(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        for word in [option, kind, data.len() as u32] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(data);
        self.client.write_all(&bytes)
    }

    /// Handles one request, and returns whether another may follow.
    fn request(&mut self) -> io::Result<bool> {
        let magic = self.take_u32()?;
        let flags = u16::from_be_bytes(self.take()?);
        let kind = u16::from_be_bytes(self.take()?);
        let (cookie, offset, len) = (self.take_u64()?, self.take_u64()?, self.take_u32()?);
        if magic != REQUEST_MAGIC || len > REQUEST_BYTES_MAX {
            return Err(io::Error::other("no request of NBD"));
        }
        let mut data = Vec::new();
        if kind < 2 {
            data.resize(len as usize, 0);
        }
        if kind == 1 {
            self.client.read_exact(&mut data)?;
        }
        let has = self.has(offset, len.into());
        let mut error = 0;
        match kind {
            0 if has => self.medium.read(offset, &mut data)?,
            1 if has => {
                self.medium.write(offset, &data, flags & 1 == 1)?;
                data.clear();
            }
            // NBD_CMD_DISC
            2 => return Ok(false),
            3 => self.medium.flush()?,
            _ => {
                error = EINVAL;
                data.clear();
            }
        }
        let mut reply = REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(cookie.to_be_bytes());
        reply.extend(data);
        self.client.write_all(&reply)?;
        Ok(true)
    }
}
