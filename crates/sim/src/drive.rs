//! A drive with a volatile cache for a virtual machine: an NBD server over an image file. See
//! docs/design/guest-lab.md.
//!
//! - A write of the guest is visible at once. It is durable with the next flush, or at once if it
//!   has force unit access.
//! - A client that disconnects without a disconnect request counts as a loss of power. Each
//!   unflushed sector is then kept or lost, at random.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;

use qpair_softdev::medium::{Storage, VolatileCache};

use crate::nbd::{self, Medium, SECTOR_BYTES};

/// Options of `cargo xtask drive`.
#[derive(clap::Args)]
pub struct Options {
    /// The socket to listen on; one client is served
    #[arg(long)]
    socket: PathBuf,
    /// The image file, whose length is the size of the drive
    #[arg(long)]
    image: PathBuf,
    /// Seed of the random choices at a power cut
    #[arg(long)]
    seed: u64,
    /// Acknowledge flushes without writing the cache to the image: a drive on which stores must
    /// lose commits
    #[arg(long)]
    lies: bool,
}

/// Serves one client until it disconnects.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]
pub fn run(options: &Options) -> ExitCode {
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
    let mut drive = Drive::new(image, options.lies)?;
    // A killed client leaves a broken connection, so an error here is expected.
    let said_goodbye = nbd::serve(client, &mut drive).unwrap_or(false);
    let Drive { writes, forced, flushes, .. } = drive;
    let took = match said_goodbye {
        true => "nothing is lost".to_owned(),
        false => drive.cut(fastrand::Rng::with_seed(options.seed))?,
    };
    Ok(format!("{writes} writes, {forced} of them forced, {flushes} flushes; {took}"))
}

/// The image has what the guest sees; the cache knows what would survive a loss of power.
struct Drive {
    image: Image,
    bytes: u64,
    cache: VolatileCache,
    lies: bool,
    writes: u64,
    forced: u64,
    flushes: u64,
}

struct Image(File);

impl Storage for Image {
    fn read_bytes(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, at)
    }

    fn write_bytes(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.0.write_all_at(from, at)
    }
}

impl Medium for Drive {
    fn size_bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.image.read_bytes(offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8], forced: bool) -> io::Result<()> {
        self.writes += 1;
        self.forced += u64::from(forced);
        let len = bytes.len() as u64;
        match forced && !self.lies {
            true => self.cache.forget(offset, len),
            false => self.cache.keep(&self.image, offset, len)?,
        }
        self.image.write_bytes(offset, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushes += 1;
        if !self.lies {
            self.cache.forget_all();
        }
        Ok(())
    }
}

impl Drive {
    fn new(image: File, lies: bool) -> io::Result<Self> {
        let bytes = image.metadata()?.len();
        // No sector is evicted, so that a cut may lose every write since the last flush.
        let cache = VolatileCache::new(u64::MAX, SECTOR_BYTES.trailing_zeros());
        Ok(Self { image: Image(image), bytes, cache, lies, writes: 0, forced: 0, flushes: 0 })
    }

    fn cut(&mut self, mut rng: fastrand::Rng) -> io::Result<String> {
        let (cached, lost) = match rng.u8(0..3) {
            0 => self.cache.lose(&self.image, |_| true)?,
            1 => self.cache.lose(&self.image, |_| !rng.bool())?,
            // Decide page by page (4 KiB), and sometimes tear one page.
            _ => {
                let (mut page, mut fate) = (u64::MAX, false);
                self.cache.lose(&self.image, |sector| {
                    if sector / 8 != page || rng.u8(0..32) == 0 {
                        (page, fate) = (sector / 8, rng.bool());
                    }
                    !fate
                })?
            }
        };
        let kept = cached - lost;
        Ok(format!("power cut: {cached} sectors were not flushed, {kept} of them are kept"))
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
        Drive::new(image, lies).unwrap()
    }

    fn has(drive: &mut Drive, offset: u64) -> u8 {
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
            assert_eq!((has(&mut drive, 0), has(&mut drive, 512)), (4, 4));
            drive.cut(fastrand::Rng::with_seed(seed)).unwrap();
            seen.insert((has(&mut drive, 0), has(&mut drive, 512)));
        }
        assert_eq!(Vec::from_iter(seen), [(1, 3), (1, 4), (4, 3), (4, 4)]);
    }

    #[test]
    fn a_drive_that_lies_loses_what_was_flushed() {
        let mut drive = drive(true);
        drive.write(0, &[1; 512], true).unwrap();
        drive.flush().unwrap();
        assert_eq!(has(&mut drive, 0), 1);
        assert_eq!(drive.cache.lose(&drive.image, |_| true).unwrap(), (1, 1));
        assert_eq!(has(&mut drive, 0), 0);
    }
}
