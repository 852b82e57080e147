//! The options that open or create a store.
//!
//! Long, because each option has its documentation: what it does, its default and its limits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use qpair_block::{DeviceSpec, format_bytes, parse_bytes};
#[cfg(feature = "encryption")]
use qpair_crypt::EncryptionKey;
use qpair_engine::{Durability, Error, RecoveryProgress, Result, Store, StoreOptions};
use qpair_kernel::Mode;
use qpair_machine::{Bounds, STORE_MEMORY_BYTES};

use crate::driven::Drivers;
use crate::outcome::OpenReport;

/// The minimum memory for pages of each worker in bytes, if memory is scarce.
const WORKER_BYTES_MIN: u64 = 4 << 20;

/// The divisor of the unused memory: by default, older values may use one such part, and one
/// transaction another.
const BESIDE_PARTS: u64 = 8;

/// Options that open a store, or create one.
///
/// A member is a path (a file or a block device), or a specifier that begins with a kind of device:
/// `ram:size=64MiB`, `delay:read_us=100:PATH`, ... A single specifier `stripe:unit=64KiB:A+B`
/// stands for the members A and B.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are opened"]
pub struct Options {
    pub(crate) members: Vec<Result<DeviceSpec>>,
    pub(crate) log: LogSpec,
    pub(crate) drivers: Drivers,
    pub(crate) store: StoreOptions,
    pub(crate) io: Mode,
    pub(crate) create: bool,
    pub(crate) force: bool,
    pub(crate) buffered: bool,
    pub(crate) publish: Option<PathBuf>,
    pub(crate) publish_beside: bool,
    pub(crate) checkpoint_every: Option<Duration>,
    pub(crate) unsaid: Unsaid,
}

/// The sizes that the caller did not choose. They are derived from the limits of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsaid {
    /// The upper bound of the default memory for pages, in bytes; `None` if the caller chose a
    /// size.
    pub(crate) memory_up_to: Option<u64>,
    /// Whether the memory for older values was not chosen.
    pub(crate) versions: bool,
    /// Whether the memory of one transaction was not chosen.
    pub(crate) transaction: bool,
}

/// The place of the log, as the caller named it.
#[derive(Clone, Debug, Default)]
pub(crate) enum LogSpec {
    #[default]
    Unsaid,
    Store,
    Device(Result<DeviceSpec>),
}

impl Options {
    /// Returns the options for a store on one file, block device or specifier.
    pub fn new(member: impl AsRef<Path>) -> Self {
        Self::striped([member])
    }

    /// Returns the options for a store that is striped over several members. Their order is part of
    /// the store.
    pub fn striped<M: AsRef<Path>>(members: impl IntoIterator<Item = M>) -> Self {
        Self {
            members: members.into_iter().map(|member| parse(member.as_ref())).collect(),
            log: LogSpec::default(),
            drivers: Drivers::new(),
            store: StoreOptions::default(),
            io: Mode::default(),
            create: true,
            force: false,
            buffered: false,
            publish: None,
            publish_beside: false,
            checkpoint_every: None,
            unsaid: Unsaid {
                memory_up_to: Some(STORE_MEMORY_BYTES),
                versions: true,
                transaction: true,
            },
        }
    }

    /// Sets the memory for pages, in bytes. The default is 256 MiB, or less if the limits of the
    /// process leave less ([`Options::memory_bytes_up_to`]). A size above those limits is used as
    /// given, and [`OpenReport::memory_warning`] reports it.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.store.memory_bytes = bytes;
        self.unsaid.memory_up_to = None;
        self
    }

    /// Sets the memory for pages, in bytes, but uses less if the limits of the process leave less.
    /// These are: half of the memory that is left to the machine and to the tightest control group
    /// of the process (version 1 and 2, with the groups above), and the address space that `ulimit
    /// -v` leaves beside stacks and libraries. At least 4 MiB are used. If the memory is less than
    /// `bytes`, the default number of workers is at most one for each 4 MiB.
    pub fn memory_bytes_up_to(mut self, bytes: u64) -> Self {
        self.unsaid.memory_up_to = Some(bytes);
        self
    }

    /// Takes the memory for pages from reserved huge pages (`vm.nr_hugepages`). Opening fails if
    /// too few are free. By default, a store leaves them to the programs for which they were
    /// reserved, and asks for transparent huge pages.
    pub fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.store.huge_pages = huge_pages;
        self
    }

    /// Sets the memory for pages from text such as "320MiB".
    ///
    /// # Errors
    /// `Invalid` if the text is not a size.
    pub fn memory(self, size: &str) -> Result<Self> {
        let bytes = parse_bytes(size)
            .map_err(|error| Error::block(error, "reading the size of the memory"))?;
        Ok(self.memory_bytes(bytes))
    }

    /// Takes all memory for pages when the store is opened, so that nothing waits later for the
    /// kernel to clear it. By default, memory is taken as it is used, and a store with much memory
    /// opens as quickly as one with little.
    pub fn prefault(mut self, prefault: bool) -> Self {
        self.store.prefault = prefault;
        self
    }

    /// Sets the number of workers. Each is a thread with a core of its own. With 0, the default,
    /// there are as many as the cores that the process may use, by its affinity and the processor
    /// time of its control groups.
    pub fn workers(mut self, workers: usize) -> Self {
        self.store.workers = workers;
        self
    }

    /// Sets the interface to the kernel, and its mode. [`Interface::Auto`](crate::Interface::Auto),
    /// the default, takes the first interface that works. If a mode is asked for by name and does
    /// not work, opening fails and says why.
    pub fn io(mut self, mode: impl Into<Mode>) -> Self {
        self.io = mode.into();
        self
    }

    /// Sets the drivers that open devices without the kernel (`nvme:`, `scsi:`, ...). By default,
    /// options have drivers of their own, which their clones share. Create one [`Drivers`] and give
    /// it to all options if several stores are on one NVMe controller or SCSI host, or if the
    /// program opens devices itself: a controller that other drivers have open is `Busy`. Needs the
    /// feature `drivers`.
    #[cfg(feature = "drivers")]
    pub fn drivers(mut self, drivers: &Drivers) -> Self {
        self.drivers = drivers.clone();
        self
    }

    /// Sets whether missing files and a missing store are created. The default is `true`.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Opens the store for reading only, and shares the files with other readers. Changes are
    /// refused.
    ///
    /// If another process has the store open and may write it, the store is read beside that
    /// process: it shows the newest checkpoint, and no later change. Open it again to see a newer
    /// checkpoint, or use [`Options::follow`]. The writer keeps the pages of that checkpoint while
    /// it is read, up to [`Options::readers_bytes_max`]; beyond that, reads fail with
    /// `SnapshotLost`. [`OpenReport::beside_writer`] says whether the store was opened in this way.
    /// Otherwise no process can open the store for writing until this one has closed it.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.store.read_only = read_only;
        self
    }

    /// Creates a new store on existing block devices or files. Opening fails if a superblock's
    /// place has anything but zeroes, unless [`Options::force`] is set too.
    pub fn format(mut self, format: bool) -> Self {
        self.store.format = format;
        self
    }

    /// Lets [`Options::format`] overwrite devices that are not blank. Their content is lost.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Sets the page size of a new store, in bytes: a power of two from 512 to 65,536. The default
    /// is 4096.
    ///
    /// The store reads whole pages. Records that are read one by one are fastest with small pages,
    /// but not smaller than the device's blocks. Ranges of many records are faster with larger
    /// pages once updates have scattered the pages (docs/measure/transactions.md, *YCSB*).
    pub fn page_size(mut self, bytes: usize) -> Self {
        self.store.page_size = bytes;
        self
    }

    /// Sets the stripe unit of a new store, in bytes: a multiple of the page size. The default is
    /// 64 KiB.
    pub fn stripe_unit_bytes(mut self, bytes: u64) -> Self {
        self.store.stripe_unit_bytes = bytes;
        self
    }

    /// Sets the maximum number of requests that a worker has in flight.
    pub fn depth(mut self, depth: u32) -> Self {
        self.store.depth = depth;
        self
    }

    /// Sets the maximum number of page reads that a worker has in flight. With 0, the default, the
    /// worker finds the number beyond which throughput no longer rises, by comparing short periods.
    pub fn reads(mut self, reads: u32) -> Self {
        self.store.reads = reads;
        self
    }

    /// Sets the number of completions that a busy worker tries to take at once, and how long it
    /// waits for that many, in microseconds.
    pub fn batch(mut self, completions: u32, linger_us: u32) -> Self {
        self.store.batch = completions;
        self.store.linger_us = linger_us;
        self
    }

    /// Keeps the write-ahead log on a device of its own: a path or specifier, as for a member. The
    /// device holds nothing else, and belongs to this store from then on. The store is then opened
    /// for writing only together with this device. A missing file is created; a file grows up to
    /// four times [`Options::checkpoint_bytes`]. The device must be blank when a store begins to
    /// use it.
    ///
    /// With `none`, the log is in the store's own space from now on. A store changes the place of
    /// its log only if it was closed.
    pub fn log_device(mut self, device: impl AsRef<Path>) -> Self {
        let device = device.as_ref();
        self.log = match device == Path::new("none") {
            true => LogSpec::Store,
            false => LogSpec::Device(parse(device)),
        };
        self
    }

    /// Sets the key of an encrypted store. With it a new store is encrypted: its pages, its log and
    /// its backups. A store that is not encrypted is refused. The superblocks, which have sizes,
    /// times and the name of the log device, are not encrypted. Needs the feature `encryption`.
    #[cfg(feature = "encryption")]
    pub fn encryption_key(mut self, key: &EncryptionKey) -> Self {
        self.store.encryption = Some(std::sync::Arc::new(key.clone()));
        self
    }

    /// Sets whether the store keeps a write-ahead log. The default is `true`. Without a log, a
    /// crash takes the store back to its last checkpoint.
    pub fn log(mut self, log: bool) -> Self {
        self.store.log = log;
        self
    }

    /// Sets when changes outside transactions return. By default, they return when they survive
    /// power loss.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.store.durability = durability;
        self
    }

    /// Sets whether each write of the log is flushed, so that it survives power loss. The default
    /// is `true`. Without flushes, commits survive the end of the process, but a power loss may
    /// take the last of them.
    pub fn log_flushed(mut self, flushed: bool) -> Self {
        self.store.log_flushed = flushed;
        self
    }

    /// Sets the bytes of log after which a checkpoint begins. This bounds the time that recovery
    /// takes. The default is 256 MiB.
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.store.checkpoint_bytes = bytes;
        self
    }

    /// Limits the memory for older values that snapshots and open transactions need, in bytes. The
    /// default is 256 MiB, or an eighth of what the limits of the process leave if that is less.
    /// From half of the limit on, older values go to the device; while the device takes them,
    /// memory may exceed the limit by an eighth.
    pub fn versions_bytes_max(mut self, bytes: u64) -> Self {
        self.store.versions_bytes_max = bytes;
        self.unsaid.versions = false;
        self
    }

    /// Limits the device space for older values, in bytes. The default is 1 GiB; with 0, older
    /// values stay in memory. When they exceed this limit and `versions_bytes_max`, the store gives
    /// up the oldest snapshot: its reads fail with `SnapshotLost`.
    pub fn history_bytes_max(mut self, bytes: u64) -> Self {
        self.store.history_bytes_max = bytes;
        self
    }

    /// Limits the memory for the writes of a transaction, in bytes. Writes beyond it go to the
    /// device. The default is 64 MiB, or an eighth of what the limits of the process leave if that
    /// is less.
    pub fn transaction_bytes_max(mut self, bytes: usize) -> Self {
        self.store.transaction_bytes_max = bytes;
        self.unsaid.transaction = false;
        self
    }

    /// Limits the device space that older checkpoints may take because other processes read them,
    /// in bytes. The default is 1 GiB. Above the limit, and before a change would fail for want of
    /// space, the oldest such checkpoint is given up: its readers get `SnapshotLost`.
    pub fn readers_bytes_max(mut self, bytes: u64) -> Self {
        self.store.readers_bytes_max = bytes;
        self
    }

    /// Makes a checkpoint at least this often while there are changes, so that readers in other
    /// processes ([`Options::read_only`], [`Options::follow`]) are no further behind. By default,
    /// checkpoints follow from the size of the log ([`Options::checkpoint_bytes`]).
    pub fn checkpoint_every(mut self, interval: Duration) -> Self {
        self.checkpoint_every = Some(interval);
        self
    }

    /// Sets how long a change waits for a row that a transaction has locked, before it fails with
    /// `TimedOut`. By default, it waits without limit.
    /// [`TransactionOptions::lock_timeout`](crate::TransactionOptions) sets this for one
    /// transaction.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.store.lock_timeout = Some(timeout);
        self
    }

    /// Measures the workers' time, in `StoreStatistics::cycles`. For measuring.
    #[doc(hidden)]
    pub fn cycles(mut self, cycles: bool) -> Self {
        self.store.cycles = cycles;
        self
    }

    /// Sets whether eviction finds the parent of a page by a hint in its frame. The default is
    /// `true`. For measuring what the hints save.
    #[doc(hidden)]
    pub fn parent_hints(mut self, parent_hints: bool) -> Self {
        self.store.parent_hints = parent_hints;
        self
    }

    /// Sets the callback that receives the progress of a recovery.
    pub fn progress(mut self, progress: RecoveryProgress) -> Self {
        self.store.progress = progress;
        self
    }

    /// Opens the store for reading only, in the state of its last checkpoint: later commits in the
    /// log are left out. For looking at a store that cannot or should not be recovered.
    pub fn at_checkpoint(mut self, at_checkpoint: bool) -> Self {
        self.store.at_checkpoint = at_checkpoint;
        self.store.read_only |= at_checkpoint;
        self
    }

    /// Opens the store for reading only, as of its newest checkpoint, and never keeps a process
    /// from opening the store for writing, now or later. [`Options::follow`] does the same, and
    /// goes on to newer checkpoints.
    pub fn beside_writer(mut self, beside: bool) -> Self {
        self.store.beside_writer = beside;
        self.store.read_only |= beside;
        self
    }

    /// Uses the page cache, for file systems without direct I/O (O_DIRECT). Pages are then in
    /// memory twice, so the store uses more memory than it was given.
    pub fn buffered(mut self, buffered: bool) -> Self {
        self.buffered = buffered;
        self
    }

    /// Publishes the statistics and open transactions of the store at a Unix socket of this path,
    /// for `qpair top`. A second socket, with `.ask` appended to the path, takes requests for
    /// backups, for `qpair backup`. Both are served by a thread of their own. Only the owner of
    /// this process and root can connect. By default, a store is not published.
    pub fn publish(mut self, path: impl Into<PathBuf>) -> Self {
        self.publish = Some(path.into());
        self
    }

    /// Publishes the store like [`Options::publish`], at
    /// [`publish_path`](crate::published::publish_path) of its first member. If that fails, the
    /// store is opened all the same, and [`OpenReport::not_published`] says why.
    pub fn publish_beside(mut self, publish: bool) -> Self {
        self.publish_beside = publish;
        self
    }

    /// Opens the store, or creates it.
    ///
    /// An existing file is never overwritten, except as [`Options::format`] asks. If a file cannot
    /// be written, the store is opened for reading only, and [`Store::is_read_only`] returns
    /// `true`. Files that this call created are removed again if creating the store fails.
    ///
    /// # Errors
    /// - `NotFound` if the store is missing and is not to be created.
    /// - `NotAStore`, `Version`, `Member`, `Unclean` or `Corrupt` for the content of the members.
    /// - `NoMemory` if the memory is too small.
    /// - `Invalid` for options out of range.
    /// - `Exists` if a store is to be created on devices that are not blank.
    /// - `Busy` if the store is open elsewhere.
    /// - `Denied` without permission, or if the store is encrypted and its key is missing or wrong.
    /// - `ReadOnly` if the log device cannot be written.
    /// - `NoSpace` if the log device is too small, or recovery finds no room.
    /// - `Unsupported` and `Limit` if the machine does not offer a requested feature.
    /// - `Io` if a device fails.
    ///
    /// Publishing the store with [`Options::publish`] may fail too.
    pub fn open(self) -> Result<Store> {
        Ok(self.open_with_report()?.0)
    }

    /// Opens the store as [`Options::open`] does, and also returns a report on how it was opened.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_with_report(self) -> Result<(Store, OpenReport)> {
        let (settled, warning) = self.settled(&Bounds::read());
        let (store, report) = crate::beside::open(&settled)?;
        if let Some(interval) = settled.checkpoint_every
            && !store.is_read_only()
        {
            crate::regular::begin(&store, interval)?;
        }
        Ok((store, OpenReport { memory_warning: warning, ..report }))
    }

    /// Returns these options with all sizes filled in, and a warning if a given size exceeds the
    /// limits of the process.
    pub(crate) fn settled(mut self, bounds: &Bounds) -> (Self, Option<String>) {
        if let Some(up_to) = self.unsaid.memory_up_to {
            self.store.memory_bytes = bounds.pages_bytes(up_to);
            if self.store.workers == 0 && self.store.memory_bytes < up_to {
                let most = (self.store.memory_bytes / WORKER_BYTES_MIN).max(1) as usize;
                self.store.workers = bounds.processors.map_or(1, |count| count as usize).min(most);
            }
        }
        if self.unsaid.versions {
            self.store.versions_bytes_max =
                bounds.beside_bytes(self.store.versions_bytes_max, BESIDE_PARTS);
        }
        if self.unsaid.transaction {
            let usual = self.store.transaction_bytes_max as u64;
            self.store.transaction_bytes_max = bounds.beside_bytes(usual, BESIDE_PARTS) as usize;
        }
        let given = self.unsaid.memory_up_to.is_none().then_some(self.store.memory_bytes);
        let exceeded = given.and_then(|bytes| Some((bytes, bounds.exceeded_by(bytes)?)));
        let warning = exceeded.map(|(bytes, bound)| {
            let given = format_bytes(bytes);
            format!("the store was given {given} of memory for pages, but {bound}")
        });
        (self, warning)
    }
}

fn parse(member: &Path) -> Result<DeviceSpec> {
    match member.to_str() {
        Some(text) => DeviceSpec::parse(text)
            .map_err(|error| Error::block(error, "reading the name of a store's member")),
        // Specifiers are always UTF-8.
        None => Ok(DeviceSpec::File(member.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use qpair_machine::{BoundSource, MemoryBound};

    use super::*;

    fn bounds(left_bytes: u64) -> Bounds {
        let source = BoundSource::ControlGroup("/small".into());
        let memory = vec![MemoryBound { source, limit_bytes: 100 << 20, left_bytes }];
        Bounds { memory, processors: Some(64) }
    }

    /// A regression: in a control group of 100 MiB a load used 256 MiB and was killed.
    #[test]
    fn what_nobody_said_follows_from_the_limits() {
        let (settled, warning) = Options::new("s").settled(&bounds(96 << 20));
        assert_eq!(settled.store.memory_bytes, 48 << 20);
        assert_eq!(settled.store.workers, 12);
        assert_eq!(settled.store.versions_bytes_max, 12 << 20);
        assert_eq!(settled.store.transaction_bytes_max, 12 << 20);
        assert_eq!(warning, None);
        let (settled, _) = Options::new("s").settled(&bounds(8 << 30));
        assert_eq!((settled.store.memory_bytes, settled.store.workers), (256 << 20, 0));
        assert_eq!(settled.store.versions_bytes_max, 256 << 20);
        let (settled, _) =
            Options::new("s").memory_bytes_up_to(16 << 20).settled(&bounds(96 << 20));
        assert_eq!((settled.store.memory_bytes, settled.store.workers), (16 << 20, 0));
    }

    #[test]
    fn what_was_given_is_taken_with_a_warning() {
        let given = Options::new("s")
            .memory_bytes(128 << 20)
            .workers(3)
            .versions_bytes_max(1 << 30)
            .transaction_bytes_max(1 << 30);
        let (settled, warning) = given.clone().settled(&bounds(96 << 20));
        assert_eq!((settled.store.memory_bytes, settled.store.workers), (128 << 20, 3));
        assert_eq!(settled.store.versions_bytes_max, 1 << 30);
        assert_eq!(settled.store.transaction_bytes_max, 1 << 30);
        let warning = warning.unwrap();
        assert!(
            warning.contains("128MiB") && warning.contains("control group /small"),
            "{warning}"
        );
        assert_eq!(given.settled(&bounds(128 << 20)).1, None);
    }
}
