//! Reading a store that another process writes, one checkpoint after the other.

use qpair_block::locks::Mutex;
use qpair_engine::{Result, Store};
use qpair_machine::Bounds;

use crate::options::Options;

/// A reader of a store that other processes may write meanwhile.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("qpair-follow-{}.qpair", std::process::id()));
/// # let _ = std::fs::remove_file(&path);
/// # let options = || qpair::Options::new(&path).memory_bytes(16 << 20).buffered(true);
/// let writer = options().open()?; // In another process.
/// writer.table("t")?.put(b"k", b"old")?;
/// writer.checkpoint()?;
///
/// let follower = options().follow()?;
/// let store = follower.store()?;
/// let table = store.existing_table("t")?.expect("a table");
/// assert_eq!(table.get(b"k")?.as_deref(), Some(&b"old"[..]));
///
/// writer.table("t")?.put(b"k", b"new")?;
/// writer.checkpoint()?;
/// // One store shows one checkpoint, until it is closed.
/// assert_eq!(table.get(b"k")?.as_deref(), Some(&b"old"[..]));
/// let newer = follower.store()?.existing_table("t")?.expect("a table");
/// assert_eq!(newer.get(b"k")?.as_deref(), Some(&b"new"[..]));
/// # drop((table, newer, store, follower));
/// # writer.close()?;
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), qpair::Error>(())
/// ```
#[derive(Debug)]
pub struct Follower {
    options: Options,
    newest: Mutex<Store>,
}

impl Options {
    /// Opens the store for reading only, and follows the process that writes it, now or later: no
    /// lock keeps another process from opening the store for writing. See [`Follower::store`].
    ///
    /// # Errors
    /// As [`Options::open`], for a store that must exist.
    pub fn follow(self) -> Result<Follower> {
        let (options, _) = self.beside_writer(true).settled(&Bounds::read());
        let newest = Mutex::new(open(&options)?);
        Ok(Follower { options, newest })
    }
}

impl Follower {
    /// Returns the newest checkpoint, as a store for reading. If there is no newer one than at the
    /// call before, that is the same store. Otherwise the new one begins with empty memory for
    /// pages; the one before stays open until its last handle is dropped, and has memory of its
    /// own.
    ///
    /// Whether there is a newer one costs a system call while a writer has the store open,
    /// otherwise two reads of the device. If a read of a store fails with `SnapshotLost`, because
    /// its checkpoint was given up for want of space, call this again.
    ///
    /// # Errors
    /// As [`Options::open`]. The store before is kept, and the next call tries again.
    pub fn store(&self) -> Result<Store> {
        let mut newest = self.newest.lock();
        if newest.seen()?.is_some_and(|(_, is_outdated)| is_outdated) {
            *newest = open(&self.options)?;
        }
        Ok(newest.clone())
    }
}

fn open(options: &Options) -> Result<Store> {
    Ok(crate::beside::open(options)?.0)
}
