//! Opening: from names to devices, and from devices to a store.
//!
//! Invariants:
//! - a file is formatted only if it was created here, if an unfinished creation of a store has left
//!   it, or if formatting was requested;
//! - a file created here is removed again if the store cannot be created;
//! - an interface and mode that are requested by name are the ones in use.

use std::cell::{Cell, RefCell};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block as block;
use qpair_block::{BlockDevice, DeviceInfo, DeviceSpec, find_content_anywhere};
use qpair_engine::{
    Error, ErrorKind, LogPlace, Remedy, Result, Store, StoreOptions, find_content, find_foreign,
    is_being_made, new_member_bytes_min,
};
use qpair_kernel::{FileOptions, KernelDevice, LockHolder, Mode};

use crate::driven::Drivers;
use crate::interfaces::Interfaces;
use crate::members::{LogPlaceSpec, Members, NewFiles};
use crate::options::Options;
use crate::outcome::OpenReport;
use crate::publish::{publish, publish_path};

pub(crate) fn open(options: &Options) -> Result<(Store, OpenReport)> {
    let members = Members::of(options)?;
    let was_missing = !members.missing().is_empty();
    let made_meanwhile = |error: &Error| {
        // Another process has created the file meanwhile, or has not made it a store yet.
        let is_others = matches!(error.kind(), ErrorKind::Exists | ErrorKind::NotAStore);
        is_others && was_missing && !options.store.format
    };
    match open_members(options, &members) {
        Err(error) if made_meanwhile(&error) => {
            std::thread::sleep(MAKER_HEAD_START);
            open_members(options, &members)
        }
        outcome => outcome,
    }
}

fn open_members(options: &Options, members: &Members) -> Result<(Store, OpenReport)> {
    let missing = members.missing();
    let all_missing = members.is_new(&missing, &options.drivers);
    let part_missing = match missing.first().map(|path| check_missing(options, path, all_missing)) {
        Some(Err(error)) if !may_be_made_anew(options, members, &error) => return Err(error),
        checked => checked.transpose().err(),
    };
    check_missing_log(options, members)?;
    let mut store = options.store.clone();
    store.stripe_unit_bytes = members.unit_bytes.unwrap_or(store.stripe_unit_bytes);
    // Devices that exist only in memory have no content to lose.
    store.format |= all_missing;
    let attempt_is_beside = store.beside_writer;
    let attempt = Attempt::new(options, members, store);
    let mut new_files = NewFiles::default();
    let mut interfaces = Interfaces::new(options.io);
    let open = |store: StoreOptions| {
        move |devices: Devices| {
            let store = StoreOptions { log_place: devices.log_place, ..store.clone() };
            Store::open(devices.members, &store)
        }
    };
    let make = open(attempt.store.clone());
    let mut outcome = match part_missing {
        Some(error) => Err(error),
        None => attempt.run(&mut interfaces, &mut new_files, &make),
    };
    let mut made = attempt.store.format;
    if let Err(error) = &outcome
        && !attempt.store.format
        && may_be_made_anew(options, members, error)
    {
        let store = StoreOptions { format: true, ..attempt.store.clone() };
        let make = open(store.clone());
        let mut again = Interfaces::new(options.io);
        let anew = Attempt { remade: true, ..Attempt::new(options, members, store) };
        // If this fails too, report the first error.
        if let Ok(opened) = anew.run(&mut again, &mut new_files, &make) {
            (outcome, interfaces, made) = (Ok(opened), again, true);
        }
    }
    let (opened, not_writable) = match outcome {
        // Do not fall back if the store should be created, which is impossible read-only.
        Err(error) if missing.is_empty() && !attempt.store.format && is_not_writable(&error) => {
            let store = StoreOptions { read_only: true, ..attempt.store.clone() };
            let make = open(store.clone());
            let attempt = Attempt { store, ..attempt };
            // If this fails too, the first error says more.
            interfaces = Interfaces::new(options.io);
            let second = attempt.run(&mut interfaces, &mut new_files, &make);
            (
                second.map_err(|second| match second.kind() {
                    _ if is_not_writable(&second) => error.clone(),
                    // The store would be recovered if it could be written.
                    ErrorKind::Unclean if !options.store.read_only => Error::new(
                        error.kind(),
                        format!("the store was not closed, and has to be written to be recovered: {error}"),
                    ),
                    _ => second,
                })?,
                Some(error),
            )
        }
        outcome => (outcome?, None),
    };
    let (store, infos) = opened;
    let bounded = [options.store.transaction_bytes_max as u64, MEMORY_BESIDE_BYTES];
    check_memory_left(bounded.into_iter().sum())?;
    let mut report = OpenReport {
        interface: joined(infos.iter().map(|info| info.interface.as_str()), "+"),
        mode: joined(infos.iter().map(|info| info.mode.as_str()), "; "),
        why: interfaces.why().or_else(|| members.why_lent()),
        passed_over: interfaces.into_passed_over(),
        created: made,
        not_writable,
        memory_warning: None,
        not_published: None,
        beside_writer: attempt_is_beside,
    };
    if let Some(path) = &options.publish {
        publish(&store, path)?;
    }
    new_files.keep();
    if options.publish_beside
        && let Some(member) = members.paths().first()
    {
        report.not_published = publish(&store, &publish_path(member)).err();
    }
    Ok((store, report))
}

/// Whether a store that another process has open is opened for reading beside that process.
pub(crate) fn may_be_beside(options: &Options) -> bool {
    options.store.read_only && !options.store.at_checkpoint && !options.store.format
}

/// Whether a store may be created although files exist: the error suggests that an incomplete
/// creation left them, or did not get to create them. The attempt verifies this after it has locked
/// them.
fn may_be_made_anew(options: &Options, members: &Members, error: &Error) -> bool {
    let is_file = |path: &&Path| match path.metadata() {
        Ok(metadata) => metadata.is_file(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    let is_part_missing = || error.kind() == ErrorKind::Member && !members.missing().is_empty();
    (error.kind() == ErrorKind::NotAStore || is_part_missing())
        && options.create
        && !options.store.read_only
        && !members.paths().is_empty()
        && members.paths().iter().all(is_file)
}

/// The devices of a store.
pub(crate) struct Devices {
    pub(crate) members: Vec<Arc<dyn BlockDevice>>,
    /// The stripe unit of the specifier that named the members, in bytes.
    pub(crate) unit_bytes: Option<u64>,
    pub(crate) log_place: LogPlace,
}

/// Opens only the members of a store, on the first interface with which `make` works. The members
/// must exist, or are created (`options.store.format`). Files that were created here are removed
/// again if `make` fails.
pub(crate) fn with_devices<T>(options: &Options, make: &dyn Fn(Devices) -> Result<T>) -> Result<T> {
    let members = Members::of(options)?;
    let missing = members.missing();
    if let Some(path) = missing.first() {
        check_missing(options, path, members.is_new(&missing, &options.drivers))?;
    }
    check_missing_log(options, &members)?;
    let attempt = Attempt::new(options, &members, options.store.clone());
    let mut new_files = NewFiles::default();
    let (made, _) = attempt.run(&mut Interfaces::new(options.io), &mut new_files, make)?;
    new_files.keep();
    Ok(made)
}

fn check_missing(options: &Options, path: &Path, all_missing: bool) -> Result<()> {
    // Before a store is created, check the present content of the devices, unless `force` is set.
    if !all_missing && (!options.store.format || options.force) {
        return Err(Error::with_hint(
            ErrorKind::Member,
            format!("{} is missing, while other members of the store are there", path.display()),
            "give the members of one store, in the order in which it was made",
        ));
    }
    if options.store.read_only || !options.create {
        return Err(Error::with_hint(
            ErrorKind::NotFound,
            format!("there is no store {}", path.display()),
            "check the path",
        ));
    }
    Ok(())
}

/// Refuses a missing log device when the store is opened for reading, because then none is created.
fn check_missing_log(options: &Options, members: &Members) -> Result<()> {
    match members.missing_log() {
        Some(path) if options.store.read_only => Err(Error::with_hint(
            ErrorKind::NotFound,
            format!("the log device {} does not exist", path.display()),
            "check its path",
        )),
        _ => Ok(()),
    }
}

/// The memory in bytes that an open store needs in addition to its pages and the writes of its
/// transactions: stacks, older values, tasks.
const MEMORY_BESIDE_BYTES: u64 = 128 << 20;

/// Refuses to work if the process may map hardly more memory than it has: the first small
/// allocation that fails would end the process.
fn check_memory_left(needed_bytes: u64) -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    let pages = || -> Option<u64> {
        std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').next()?.parse().ok()
    };
    let (Some(limit), Some(pages)) = (limit, limit.and_then(|_| pages())) else { return Ok(()) };
    let left = limit.saturating_sub(pages * rustix::param::page_size() as u64);
    if left >= needed_bytes {
        return Ok(());
    }
    Err(Error::with_hint(
        ErrorKind::Limit,
        format!(
            "the process may map {} of memory; of that {} are left beside the store's pages, and transactions and older values may need {}",
            block::format_bytes(limit),
            block::format_bytes(left),
            block::format_bytes(needed_bytes)
        ),
        "raise the limit (`ulimit -v`), or give the store less memory",
    ))
}

/// Joins the distinct words, in order.
fn joined<'a>(words: impl Iterator<Item = &'a str>, between: &str) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for word in words {
        if !distinct.contains(&word) {
            distinct.push(word);
        }
    }
    distinct.join(between)
}

fn is_not_writable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Denied | ErrorKind::ReadOnly)
}

/// The time for which a locked file is retried.
///
/// The kernel releases a killed program's rings in the background. They keep its files open and
/// locked for a moment after the program's end.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// The same time if the program that has the lock has ended. On a busy machine the release can take
/// seconds.
const LOCK_TIMEOUT_AFTER_END: Duration = Duration::from_secs(10);

/// The time given to another process that has created the file of a new store, to lock it and make
/// it a store.
const MAKER_HEAD_START: Duration = Duration::from_millis(20);

/// Opens a file, and waits for a lock that is about to be released.
fn open_with_retry(
    options: &FileOptions,
    mode: Mode,
    is_patient: bool,
) -> block::Result<KernelDevice> {
    let start = Instant::now();
    loop {
        match qpair_kernel::open(options, mode) {
            Err(error)
                if error.kind() == block::ErrorKind::Busy
                    && start.elapsed() < lock_timeout(&options.path, is_patient) =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

fn lock_timeout(path: &Path, is_patient: bool) -> Duration {
    match LockHolder::of(path) {
        Some(LockHolder { name: None, .. }) => LOCK_TIMEOUT_AFTER_END,
        Some(_) if !is_patient => Duration::ZERO,
        _ => LOCK_TIMEOUT,
    }
}

/// Returns the error for a device with content where a store or its log should be created.
fn not_blank(name: &str, at_bytes: u64) -> Error {
    Error::with_remedy(
        ErrorKind::Exists,
        format!("{name} is not blank: there is something at byte {at_bytes}"),
        "if it may be lost, ask for a format by force",
        Remedy::Overwrite,
    )
}

/// Refuses a file that begins blank and has content after its last whole block: devices do not show
/// that content, and a file of a few bytes would look empty. If the file does not begin blank, the
/// code that reads it finds that out.
fn check_tail(path: &Path, size_bytes: u64) -> Result<()> {
    let tail = || -> std::io::Result<Vec<u8>> {
        let file = std::fs::File::open(path)?;
        let (metadata, mut tail, mut first) = (file.metadata()?, Vec::new(), [0]);
        if !metadata.is_file() || metadata.len() <= size_bytes {
            return Ok(tail);
        }
        if size_bytes > 0 {
            file.read_exact_at(&mut first, 0)?;
        }
        if first == [0] {
            tail.resize((metadata.len() - size_bytes) as usize, 0);
            file.read_exact_at(&mut tail, size_bytes)?;
        }
        Ok(tail)
    };
    let tail = tail().map_err(|error| {
        Error::new(ErrorKind::Io, format!("reading what is in {}: {error}", path.display()))
    })?;
    match tail.iter().position(|byte| *byte != 0) {
        Some(byte) => Err(not_blank(&path.display().to_string(), size_bytes + byte as u64)),
        None => Ok(()),
    }
}

/// The result of an attempt, and the descriptions of the members.
type Opened<T> = (T, Vec<DeviceInfo>);

/// The function that an attempt calls with the opened devices.
type Make<'a, T> = &'a dyn Fn(Devices) -> Result<T>;

/// One attempt to open the devices.
struct Attempt<'a> {
    members: &'a Members,
    drivers: &'a Drivers,
    store: StoreOptions,
    new_file_bytes: u64,
    /// The file of a log device that must be created.
    new_log: Option<PathBuf>,
    /// Whether the devices must still be checked for foreign content. The check clears this,
    /// because later attempts may find content that this process itself has written.
    must_be_blank: Cell<bool>,
    /// Whether the caller did not request a format: then only files left by an unfinished creation
    /// are accepted, and no other file, however blank.
    remade: bool,
    buffered: bool,
    /// Whether to wait for a lock that another living process has.
    is_patient: bool,
}

impl<'a> Attempt<'a> {
    fn new(options: &'a Options, members: &'a Members, store: StoreOptions) -> Self {
        Self {
            new_file_bytes: members.new_file_bytes(store.stripe_unit_bytes),
            must_be_blank: Cell::new(store.format && !options.force),
            new_log: members.missing_log(),
            members,
            drivers: &options.drivers,
            remade: false,
            buffered: options.buffered,
            is_patient: !may_be_beside(options),
            store,
        }
    }

    /// Refuses devices that have useful content.
    fn check_blank(
        &self,
        members: &[Arc<dyn BlockDevice>],
        log_device: Option<&Arc<dyn BlockDevice>>,
    ) -> Result<()> {
        if let Some((device, at_bytes)) = find_foreign(members, log_device)? {
            return Err(not_blank(&device.info().name, at_bytes));
        }
        if self.remade {
            let is_marked = is_being_made(members, log_device)?;
            members.iter().try_for_each(|member| self.check_left(member.as_ref(), is_marked))?;
        }
        Ok(())
    }

    /// Refuses a member that has no superblock and was not left by an unfinished creation of a
    /// store. Such a creation leaves zeroes. They have a size that files have during creation.
    /// Beside a device that says that a store is being created (`is_marked`), they have any size up
    /// to that of a new file.
    fn check_left(&self, member: &dyn BlockDevice, is_marked: bool) -> Result<()> {
        if find_content(member)?.is_some() {
            // The superblock says that an unfinished creation left it: nothing else counts as
            // blank.
            return Ok(());
        }
        let (name, size_bytes) = (&member.info().name, member.size_bytes());
        let grid = u64::from(member.info().logical_block_bytes);
        let room_bytes = new_member_bytes_min(self.store.stripe_unit_bytes);
        let is_made = [0, room_bytes, self.new_file_bytes]
            .iter()
            .any(|bytes| bytes.checked_next_multiple_of(grid) == Some(size_bytes));
        if !(is_made || is_marked && size_bytes <= self.new_file_bytes) {
            return Err(Error::new(
                ErrorKind::Exists,
                format!("{name} has {size_bytes} bytes, all zero: no new store was begun there"),
            ));
        }
        let at_bytes = find_content_anywhere(member)
            .map_err(|error| Error::block(error, format!("reading what is on {name}")))?;
        at_bytes.map_or(Ok(()), |at_bytes| Err(not_blank(name, at_bytes)))
    }

    /// Opens the devices on the first interface that works.
    fn run<T>(
        &self,
        interfaces: &mut Interfaces,
        new_files: &mut NewFiles,
        make: Make<'_, T>,
    ) -> Result<Opened<T>> {
        loop {
            match self.run_on(interfaces, new_files, make) {
                Err(error) if interfaces.next(&error) => {}
                outcome => return outcome,
            }
        }
    }

    fn run_on<T>(
        &self,
        interfaces: &Interfaces,
        new_files: &mut NewFiles,
        make: Make<'_, T>,
    ) -> Result<Opened<T>> {
        let new_files = RefCell::new(new_files);
        let tails = RefCell::new(Vec::new());
        let opener = |path: &Path| -> block::Result<Arc<dyn BlockDevice>> {
            let mut new_files = new_files.borrow_mut();
            let is_log = self.new_log.as_deref() == Some(path);
            let create = (self.store.format || is_log)
                && !new_files.contains(path)
                && matches!(path.try_exists(), Ok(false));
            let options = FileOptions {
                create: create.then_some(self.new_file_bytes),
                read_only: self.store.read_only,
                direct: !self.buffered,
                exclusive_lock: !self.store.beside_writer,
                ..FileOptions::new(path)
            };
            let device = open_with_retry(&options, interfaces.current, self.is_patient)?;
            if create {
                new_files.add(path);
            } else if self.must_be_blank.get() || self.members.log_paths().contains(&path) {
                tails.borrow_mut().push((path.to_owned(), device.size_bytes()));
            }
            interfaces.note(device.choice());
            Ok(Arc::new(device))
        };
        let open = |spec: &DeviceSpec| {
            // The new store may be the target of a backup or of a repair.
            let doing =
                if self.store.format { "creating the new store" } else { "opening the store" };
            spec.open(&self.drivers.opening(&opener)).map_err(|error| Error::block(error, doing))
        };
        let members = self.members.specs.iter().map(open).collect::<Result<Vec<_>>>()?;
        let log_place = match &self.members.log {
            LogPlaceSpec::Unsaid => LogPlace::Unsaid,
            LogPlaceSpec::Store => LogPlace::Store,
            LogPlaceSpec::Device(spec) => LogPlace::Device(open(spec)?),
        };
        let log_device = match &log_place {
            LogPlace::Device(device) => Some(device),
            _ => None,
        };
        for (path, size_bytes) in tails.take() {
            check_tail(&path, size_bytes)?;
        }
        if self.must_be_blank.get() {
            self.check_blank(&members, log_device)?;
            self.must_be_blank.set(false);
        }
        let infos = members.iter().chain(log_device).map(|device| device.info().clone()).collect();
        let unit_bytes = self.members.unit_bytes;
        Ok((make(Devices { members, unit_bytes, log_place })?, infos))
    }
}
