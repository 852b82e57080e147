//! The options by which a store is opened or created, and devices are given to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use qpair_block::{DeviceSpec, format_bytes, parse_bytes};
use qpair_engine::{Durability, Error, RecoveryProgress, Result, Store, StoreOptions};
use qpair_kernel::Mode;
use qpair_machine::{Bounds, STORE_MEMORY_BYTES};

use crate::driven::Drivers;
use crate::outcome::OpenReport;

/// Memory for pages that a worker is worth where memory is little, bytes.
const WORKER_BYTES_MIN: u64 = 4 << 20;

/// Older values, and one transaction, have one part each of what the limits of the process leave,
/// if nobody says how much.
const BESIDE_PARTS: u64 = 8;

/// How to open a store, or make one.
///
/// A member is a path (a file or a block device), or a specifier, which begins with a kind of
/// device: `ram:size=64MiB`, `delay:read_us=100:PATH`, ... A single specifier
/// `stripe:unit=64KiB:A+B` stands for the members A and B.
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
    pub(crate) unsaid: Unsaid,
}

/// Sizes that the caller left open: they follow from the limits of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsaid {
    /// Memory for pages, and the most of it that is taken by default, bytes.
    pub(crate) memory_up_to: Option<u64>,
    /// Memory for older values.
    pub(crate) versions: bool,
    /// Memory of one transaction.
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
    /// The store on one file, block device or specifier.
    pub fn new(member: impl AsRef<Path>) -> Self {
        Self::striped([member])
    }

    /// The store striped over several; their order is part of the store.
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
            unsaid: Unsaid {
                memory_up_to: Some(STORE_MEMORY_BYTES),
                versions: true,
                transaction: true,
            },
        }
    }

    /// Memory for pages, bytes. If not said: 256 MiB, or less where the limits of the process leave
    /// less ([`Options::memory_bytes_up_to`]). A size above those limits is taken all the same, and
    /// [`OpenReport::memory_warning`] says so.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.store.memory_bytes = bytes;
        self.unsaid.memory_up_to = None;
        self
    }

    /// Memory for pages, bytes, or less where the limits of the process leave less: half of what
    /// the tightest of its control groups (version 1 and 2, with the groups above) and the machine
    /// have left, and what `ulimit -v` leaves beside stacks and libraries; never less than 4 MiB.
    /// There are then no more workers than one for each 4 MiB.
    pub fn memory_bytes_up_to(mut self, bytes: u64) -> Self {
        self.unsaid.memory_up_to = Some(bytes);
        self
    }

    /// Take the memory for pages from reserved huge pages (`vm.nr_hugepages`); opening fails where
    /// too few are free. By default a store leaves them to the programs that they were reserved
    /// for, and asks for transparent huge pages.
    pub fn huge_pages(mut self, huge_pages: bool) -> Self {
        self.store.huge_pages = huge_pages;
        self
    }

    /// Memory for pages, as people write it: "320MiB".
    ///
    /// # Errors
    /// `Invalid` if it is no size.
    pub fn memory(self, size: &str) -> Result<Self> {
        let bytes = parse_bytes(size).map_err(|error| Error::block(error, "memory"))?;
        Ok(self.memory_bytes(bytes))
    }

    /// Take all memory for pages when opening, so that nothing waits later for the kernel to clear
    /// it. By default memory is taken as it is used, and a store opens as quickly with much of it
    /// as with little.
    pub fn prefault(mut self, prefault: bool) -> Self {
        self.store.prefault = prefault;
        self
    }

    /// Workers: threads, one to a core. 0, the default: as many as there are cores that the process
    /// may use, by its affinity and the processor time of its control groups.
    pub fn workers(mut self, workers: usize) -> Self {
        self.store.workers = workers;
        self
    }

    /// Interface to the kernel, and its mode. [`Interface::Auto`](crate::Interface::Auto), the
    /// default, takes the first that works; a mode asked for by name is the one used, or opening
    /// fails and says why.
    pub fn io(mut self, mode: impl Into<Mode>) -> Self {
        self.io = mode.into();
        self
    }

    /// Opens devices without the kernel (`nvme:`, `scsi:`, ...) by these drivers. By default
    /// options have drivers of their own, which their clones share. A program whose stores are on
    /// one NVMe controller or SCSI host, or that opens devices itself, makes one [`Drivers`] and
    /// gives it to all: a controller that other drivers have open is `Busy`. Needs the feature
    /// `drivers`.
    #[cfg(feature = "drivers")]
    pub fn drivers(mut self, drivers: &Drivers) -> Self {
        self.drivers = drivers.clone();
        self
    }

    /// Whether to make the files and the store if they are missing; yes if not said.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Refuse changes, and share the files with other readers.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.store.read_only = read_only;
        self
    }

    /// Make a new store on block devices or files that exist. Refused where there is anything but
    /// zeroes in the superblock's place, unless [`Options::force`] is set too.
    pub fn format(mut self, format: bool) -> Self {
        self.store.format = format;
        self
    }

    /// With [`Options::format`]: whatever is there, it is lost.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Page size of a new store, bytes: a power of two from 512 to 65,536; 4096 if not said.
    ///
    /// The device is asked for whole pages, so records that are read one by one want small ones, of
    /// the device's blocks at least. Ranges of many records want larger ones, once updates have
    /// moved the pages about (docs/measure/transactions.md, *YCSB*).
    pub fn page_size(mut self, bytes: usize) -> Self {
        self.store.page_size = bytes;
        self
    }

    /// Stripe unit of a new store, bytes: a multiple of the page size; 64 KiB if not said.
    pub fn stripe_unit_bytes(mut self, bytes: u64) -> Self {
        self.store.stripe_unit_bytes = bytes;
        self
    }

    /// Requests a worker has in flight at most.
    pub fn depth(mut self, depth: u32) -> Self {
        self.store.depth = depth;
        self
    }

    /// Reads of pages among them at most; 0, as without this: as many as bring more throughput,
    /// found by comparing short stretches of time.
    pub fn reads(mut self, reads: u32) -> Self {
        self.store.reads = reads;
        self
    }

    /// Target completion batch size of a busy worker, and how long it waits for such a batch,
    /// microseconds.
    pub fn batch(mut self, completions: u32, linger_us: u32) -> Self {
        self.store.batch = completions;
        self.store.linger_us = linger_us;
        self
    }

    /// Keep the write-ahead log on a device of its own: a path or specifier, as of a member. It
    /// holds nothing else, and belongs to this store from then on, which is opened for writing with
    /// it or not at all. A file that is not there is made; a file grows up to four times
    /// [`Options::checkpoint_bytes`]. What is there has to be blank when a store begins to use it.
    ///
    /// `none`: in the store's own space, from now on. A store changes the place of its log only
    /// when it was closed.
    pub fn log_device(mut self, device: impl AsRef<Path>) -> Self {
        let device = device.as_ref();
        self.log = match device == Path::new("none") {
            true => LogSpec::Store,
            false => LogSpec::Device(parse(device)),
        };
        self
    }

    /// Keep a write-ahead log; yes if not said. Without one a crash leaves the store as its last
    /// checkpoint has it.
    pub fn log(mut self, log: bool) -> Self {
        self.store.log = log;
        self
    }

    /// When changes that are not part of a transaction return; when they survive power loss, if not
    /// said.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.store.durability = durability;
        self
    }

    /// Wait until each write of the log survives power loss; yes if not said. Without, commits
    /// survive the end of the process, and power loss may take the last of them.
    pub fn log_flushed(mut self, flushed: bool) -> Self {
        self.store.log_flushed = flushed;
        self
    }

    /// Bytes of log after which a checkpoint begins, which bounds the time that recovery takes; 256
    /// MiB if not said.
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.store.checkpoint_bytes = bytes;
        self
    }

    /// Memory for older values that snapshots and open transactions need, bytes, at most; if not
    /// said, 256 MiB, or an eighth of what the limits of the process leave. From half of it on they
    /// go to the device; while it takes them they may have an eighth more.
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

    /// Limits the writes that a transaction gathers before its commit, in bytes. The default is 64
    /// MiB, or an eighth of what the limits of the process leave if that is less.
    pub fn transaction_bytes_max(mut self, bytes: usize) -> Self {
        self.store.transaction_bytes_max = bytes;
        self.unsaid.transaction = false;
        self
    }

    /// How long a change waits for a row that a transaction has locked, before it ends with
    /// `TimedOut`; as long as it takes if not said.
    /// [`TransactionOptions::lock_timeout`](crate::TransactionOptions) says it for one transaction.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.store.lock_timeout = Some(timeout);
        self
    }

    /// Count where the workers' time goes: `StoreStatistics::cycles`. For measuring.
    #[doc(hidden)]
    pub fn cycles(mut self, cycles: bool) -> Self {
        self.store.cycles = cycles;
        self
    }

    /// Find the parents of pages that leave by what their frames say; yes if not said. For
    /// measuring what that saves.
    #[doc(hidden)]
    pub fn parent_hints(mut self, parent_hints: bool) -> Self {
        self.store.parent_hints = parent_hints;
        self
    }

    /// Told how far recovery is, if there is one.
    pub fn progress(mut self, progress: RecoveryProgress) -> Self {
        self.store.progress = progress;
        self
    }

    /// Open the store as its last checkpoint has it, for reading only: commits in the log behind it
    /// are left out. For looking at a store that cannot be recovered, or should not be.
    pub fn at_checkpoint(mut self, at_checkpoint: bool) -> Self {
        self.store.at_checkpoint = at_checkpoint;
        self.store.read_only |= at_checkpoint;
        self
    }

    /// Go through the page cache, for file systems without direct I/O (O_DIRECT). Pages are then in
    /// memory twice, and the memory given is no longer the memory used.
    pub fn buffered(mut self, buffered: bool) -> Self {
        self.buffered = buffered;
        self
    }

    /// Publish what the store counts, and its open transactions, at a Unix socket of this path, for
    /// `qpair top`, and make backups that are asked for at a second one, whose name has `.ask`
    /// behind, for `qpair backup`; no if not said. A thread of its own serves them. Only the owner
    /// of this process can connect, and root.
    pub fn publish(mut self, path: impl Into<PathBuf>) -> Self {
        self.publish = Some(path.into());
        self
    }

    /// The same beside the store, at [`publish_path`](crate::published::publish_path) of its first
    /// member, if that can be done. If not, the store is opened all the same.
    pub fn publish_beside(mut self, publish: bool) -> Self {
        self.publish_beside = publish;
        self
    }

    /// Opens the store, or makes it.
    ///
    /// A file that exists is never overwritten. One that may not be written is opened for reading
    /// only, which
    /// [`Store::is_read_only`] tells. Files made here are removed again if the store cannot be made on them.
    ///
    /// # Errors
    /// `NotFound` if it is missing and not to be made; `NotAStore`, `Version`, `Member`, `Unclean`,
    /// `Corrupt` for what is on the members; `NoMemory` if the memory is too small; `Invalid` for
    /// options out of range; `Exists` if it is to be made on what is not blank; `Busy` if it is
    /// open elsewhere; `Denied` without permission; `ReadOnly` if its log device cannot be written;
    /// `NoSpace` if the log device is too small, or recovery finds no room; `Unsupported` and
    /// `Limit` if the machine does not offer what was asked; `Io`. What shows the store to other
    /// processes ([`Options::publish_beside`]) may be refused too.
    pub fn open(self) -> Result<Store> {
        Ok(self.open_with_report()?.0)
    }

    /// As [`Options::open`], and says what the machine was found to be.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open_with_report(self) -> Result<(Store, OpenReport)> {
        let (settled, warning) = self.settled(&Bounds::read());
        let (store, report) = crate::open::open(&settled)?;
        Ok((store, OpenReport { memory_warning: warning, ..report }))
    }

    /// These options with the sizes that were left open, and what is to be said of those that were
    /// given.
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
        Some(text) => {
            DeviceSpec::parse(text).map_err(|error| Error::block(error, "naming a store's member"))
        }
        // No specifier has bytes outside of UTF-8.
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

    /// In a control group of 100 MiB a load took 256 MiB and was killed.
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
