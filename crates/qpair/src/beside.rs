//! Opening a store for reading beside a process that has it open.

use std::time::Duration;

use qpair_engine::{Error, ErrorKind, Result, Store};

use crate::members::Members;
use crate::open::{self, may_be_beside};
use crate::options::Options;
use crate::outcome::OpenReport;

/// The number of times that the store is opened, if each time the writer changes what is being
/// read, and the first pause, which doubles.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(1);

/// Opens the store as these options say. A store that another process has open, and that is opened
/// for reading, is read beside that process.
pub(crate) fn open(options: &Options) -> Result<(Store, OpenReport)> {
    if options.store.beside_writer {
        return open_beside(options);
    }
    match open::open(options) {
        Err(error) if error.kind() == ErrorKind::Busy && may_be_beside(options) => {
            open_beside(options).map_err(|other| match other.kind() {
                // The devices cannot be opened twice, as behind a driver.
                ErrorKind::Busy | ErrorKind::Denied => error,
                _ => other,
            })
        }
        opened => opened,
    }
}

/// Opens the store as of its newest checkpoint.
///
/// The parts of the store are read one after the other while the writer changes them: superblocks,
/// records, the size of a file. Parts that do not fit together are read again.
fn open_beside(options: &Options) -> Result<(Store, OpenReport)> {
    let options = options.clone().create(false).beside_writer(true);
    refuse_remote_cache(&options)?;
    let mut tries = 1;
    loop {
        match open::open(&options) {
            Err(error) if tries < TRIES && may_be_torn(error.kind()) => {
                std::thread::sleep(PAUSE * (1 << tries));
                tries += 1;
            }
            opened => return opened,
        }
    }
}

/// The types of file systems whose files another machine may write: NFS, SMB (two), 9P and Ceph.
const REMOTE: [u32; 5] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400];

/// Refuses a page cache that a writer on another machine does not reach: in it, a record stays what
/// it was when it was read.
fn refuse_remote_cache(options: &Options) -> Result<()> {
    if !options.buffered {
        return Ok(());
    }
    for path in Members::of(options)?.paths() {
        if rustix::fs::statfs(path).is_ok_and(|about| REMOTE.contains(&(about.f_type as u32))) {
            return Err(Error::with_hint(
                ErrorKind::Unsupported,
                format!(
                    "{} is on a network file system, and the page cache does not show what another machine writes there",
                    path.display()
                ),
                "read it without the page cache (buffered), or where it is written",
            ));
        }
    }
    Ok(())
}

fn may_be_torn(kind: ErrorKind) -> bool {
    use ErrorKind::{Corrupt, Io, Member, NotAStore, SnapshotLost};
    matches!(kind, Member | Corrupt | SnapshotLost | NotAStore | Io)
}
