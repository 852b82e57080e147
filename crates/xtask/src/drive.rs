//! A drive with a volatile cache, for a virtual machine: an NBD server (its protocol's fixed newstyle, simple replies) over an
//! image file. See docs/design/guest-lab.md.
//!
//! - What a guest writes is visible at once, and in the image once a flush or the write's own force-unit-access has come.
//! - A client that goes without saying so is a machine that lost power: of each sector that was written and not flushed, chance
//!   decides whether the image has it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;

const SECTOR_BYTES: u64 = 512;
/// Bytes of one request, at most.
const REQUEST_BYTES_MAX: u32 = 32 << 20;

const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_E889_0455_65A9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// NBD_FLAG_HAS_FLAGS, NBD_FLAG_SEND_FLUSH, NBD_FLAG_SEND_FUA.
const FLAGS: u16 = 1 | 4 | 8;
const EINVAL: u32 = 22;

/// Options of `cargo xtask drive`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to listen; one client is served
    #[arg(long)]
    socket: PathBuf,
    /// What the drive holds; its length is the drive's
    #[arg(long)]
    image: PathBuf,
    /// Decides what a power cut takes
    #[arg(long)]
    seed: u64,
    /// Says that what is only in the cache is durable: a drive on which stores must lose commits
    #[arg(long)]
    lies: bool,
}

/// Serves one client until it goes.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]
pub(crate) fn run(options: &Options) -> ExitCode {
    match serve(options) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("the drive: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> io::Result<String> {
    let image = OpenOptions::new().read(true).write(true).open(&options.image)?;
    let _ = std::fs::remove_file(&options.socket);
    let (client, _) = UnixListener::bind(&options.socket)?.accept()?;
    let bytes = image.metadata()?.len();
    let mut drive = Drive {
        image,
        bytes,
        cache: BTreeMap::new(),
        lies: options.lies,
        writes: 0,
        forced: 0,
        flushes: 0,
    };
    // Whatever goes wrong with a client that was killed, it was killed.
    let said_goodbye = Session { client, drive: &mut drive }.run().unwrap_or(false);
    let Drive { writes, forced, flushes, .. } = drive;
    let took = match said_goodbye {
        true => {
            drive.keep_all()?;
            "nothing is lost".to_owned()
        }
        false => drive.cut(fastrand::Rng::with_seed(options.seed))?,
    };
    Ok(format!("{writes} writes, {forced} of them forced, {flushes} flushes; {took}"))
}

struct Drive {
    image: File,
    bytes: u64,
    /// Sectors that were written and are not in the image.
    cache: BTreeMap<u64, [u8; SECTOR_BYTES as usize]>,
    lies: bool,
    writes: u64,
    /// Writes that were forced to the medium (FUA).
    forced: u64,
    flushes: u64,
}

impl Drive {
    /// Whether these bytes are whole sectors of the drive.
    fn has(&self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(SECTOR_BYTES)
            && len.is_multiple_of(SECTOR_BYTES)
            && offset.checked_add(len).is_some_and(|end| end <= self.bytes)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.image.read_exact_at(bytes, offset)?;
        let first = offset / SECTOR_BYTES;
        let end = first + bytes.len() as u64 / SECTOR_BYTES;
        for (sector, content) in self.cache.range(first..end) {
            let at = ((sector - first) * SECTOR_BYTES) as usize;
            bytes[at..at + content.len()].copy_from_slice(content);
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8], forced: bool) -> io::Result<()> {
        self.writes += 1;
        self.forced += u64::from(forced);
        let (first, (sectors, _)) = (offset / SECTOR_BYTES, bytes.as_chunks());
        if forced && !self.lies {
            for sector in first..first + sectors.len() as u64 {
                self.cache.remove(&sector);
            }
            return self.image.write_all_at(bytes, offset);
        }
        self.cache.extend((first..).zip(sectors.iter().copied()));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushes += 1;
        if self.lies { Ok(()) } else { self.keep_all() }
    }

    fn keep_all(&mut self) -> io::Result<()> {
        self.keep(|_| true).map(|_| ())
    }

    /// Puts those of the cached sectors into the image that `keeps` names; how many. The others are gone.
    fn keep(&mut self, mut keeps: impl FnMut(u64) -> bool) -> io::Result<usize> {
        let mut kept = 0;
        for (sector, content) in std::mem::take(&mut self.cache) {
            if keeps(sector) {
                kept += 1;
                self.image.write_all_at(&content, sector * SECTOR_BYTES)?;
            }
        }
        Ok(kept)
    }

    fn cut(&mut self, mut rng: fastrand::Rng) -> io::Result<String> {
        let cached = self.cache.len();
        let kept = match rng.u8(0..3) {
            0 => self.keep(|_| false)?,
            1 => self.keep(|_| rng.bool())?,
            // By the page of 4 KiB, and now and then one is torn.
            _ => {
                let (mut page, mut fate) = (u64::MAX, false);
                self.keep(|sector| {
                    if sector / 8 != page || rng.u8(0..32) == 0 {
                        (page, fate) = (sector / 8, rng.bool());
                    }
                    fate
                })?
            }
        };
        Ok(format!("power cut: {cached} sectors were not flushed, {kept} of them are kept"))
    }
}

struct Session<'a> {
    client: UnixStream,
    drive: &'a mut Drive,
}

impl Session<'_> {
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

    /// Serves; whether the client took its leave.
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

    /// Takes one option; whether requests follow.
    fn negotiate(&mut self) -> io::Result<bool> {
        let (magic, option, len) = (self.take_u64()?, self.take_u32()?, self.take_u32()?);
        if magic != OPTION_MAGIC || len > 64 << 10 {
            return Err(io::Error::other("no option of NBD"));
        }
        let mut data = vec![0; len as usize];
        self.client.read_exact(&mut data)?;
        let bytes = self.drive.bytes;
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
            // NBD_REP_ERR_UNSUP: the client goes on without.
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

    /// Does one request; whether there may be another.
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
        let has = self.drive.has(offset, len.into());
        let mut error = 0;
        match kind {
            0 if has => self.drive.read(offset, &mut data)?,
            1 if has => {
                self.drive.write(offset, &data, flags & 1 == 1)?;
                data.clear();
            }
            // NBD_CMD_DISC
            2 => return Ok(false),
            3 => self.drive.flush()?,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(lies: bool) -> Drive {
        let path = std::env::temp_dir().join(format!("drive-{}-{lies}", std::process::id()));
        let open = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let image = open.unwrap();
        std::fs::remove_file(path).unwrap();
        image.set_len(1 << 20).unwrap();
        Drive {
            image,
            bytes: 1 << 20,
            cache: BTreeMap::new(),
            lies,
            writes: 0,
            forced: 0,
            flushes: 0,
        }
    }

    fn has(drive: &Drive, offset: u64) -> u8 {
        let mut bytes = [0; 512];
        drive.read(offset, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }

    #[test]
    fn a_cut_takes_what_was_not_flushed_and_nothing_else() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let mut drive = drive(false);
            drive.write(0, &[1; 512], false).unwrap();
            drive.flush().unwrap();
            drive.write(512, &[2; 512], false).unwrap();
            drive.write(512, &[3; 512], true).unwrap();
            drive.write(0, &[4; 1024], false).unwrap();
            assert_eq!((has(&drive, 0), has(&drive, 512)), (4, 4));
            drive.cut(fastrand::Rng::with_seed(seed)).unwrap();
            seen.insert((has(&drive, 0), has(&drive, 512)));
        }
        assert_eq!(Vec::from_iter(seen), [(1, 3), (1, 4), (4, 3), (4, 4)]);
    }

    #[test]
    fn a_drive_that_lies_loses_what_was_flushed() {
        let mut drive = drive(true);
        drive.write(0, &[1; 512], true).unwrap();
        drive.flush().unwrap();
        assert_eq!(has(&drive, 0), 1);
        assert_eq!(drive.keep(|_| false).unwrap(), 0);
        assert_eq!(has(&drive, 0), 0);
    }
}
