//! The store and how to open it: arguments of every command.
//!
//! Long, because every way to open a store turns the same errors into the same advice.

use qpair_block::locks::Mutex;
use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use indicatif::ProgressBar;
use qpair::published::publish_path;
use qpair::report::{OpenReport, RecoveryProgress};
use qpair::{Durability, EncryptionKey, ErrorKind, Mode, Options, Store, Table};
use qpair_block::DeviceSpec;
use qpair_drivers::Drivers;
use qpair_kernel::Growth;
use qpair_machine::STORE_MEMORY_BYTES;

use super::number::{WORKERS_MAX, parse_count, parse_size};
use crate::failure::{Exit, Failure, Result};
use crate::show::bar::styled;
use crate::show::text::{count, counted};

#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// The store: a file, a block device, or a device specifier
    pub(crate) store: PathBuf,

    /// Further members of a striped store, in order
    #[arg(long = "member", value_name = "PATH", help_heading = "Store")]
    members: Vec<PathBuf>,

    /// Memory for pages [default: 256MiB, 16MiB for single records; less where limits of the
    /// process leave less]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Store")]
    memory: Option<u64>,

    /// Take the memory for pages from reserved huge pages, or fail [default: transparent huge
    /// pages]
    #[arg(long, help_heading = "Store")]
    huge_pages: bool,

    /// Interface to the kernel, such as io_uring+k or posix:threads=4; auto takes the first that
    /// works
    #[arg(
        long = "interface",
        alias = "io",
        value_name = "MODE",
        default_value = "auto",
        help_heading = "Store"
    )]
    io: Mode,

    /// Worker threads, one per core [default: as many as cores; 1 for single records]
    #[arg(long, value_name = "N", value_parser = parse_count::<usize, WORKERS_MAX>, help_heading = "Store")]
    workers: Option<usize>,

    /// Go through the page cache, for file systems without direct I/O
    #[arg(long, help_heading = "Store")]
    buffered: bool,

    #[command(flatten)]
    key: EncryptionArgs,

    #[command(flatten)]
    log: LogDeviceArgs,

    #[arg(skip = crate::interrupt::drivers())]
    drivers: Drivers,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LogDeviceArgs {
    /// Log device: a file (created if missing, up to 1 GiB), block device or specifier [default: in
    /// the store]. Every change must name it. A closed store takes a blank new one; `none` moves
    /// the log into the store
    #[arg(long = "log-device", value_name = "PATH", help_heading = "Store")]
    device: Option<PathBuf>,
}

impl LogDeviceArgs {
    pub(crate) fn tell(&self, options: Options) -> Options {
        match &self.device {
            None => options,
            Some(device) => options.log_device(device),
        }
    }

    pub(crate) fn device(&self) -> Option<&Path> {
        self.device.as_deref()
    }
}

#[derive(Args, Clone, Debug)]
pub(crate) struct EncryptionArgs {
    /// File with the key of an encrypted store: 32 bytes, or 64 hexadecimal digits. With it a new
    /// store is encrypted
    #[arg(long, value_name = "PATH", value_parser = parse_key, help_heading = "Store")]
    key_file: Option<EncryptionKey>,
}

impl EncryptionArgs {
    pub(crate) fn key(&self) -> Option<&EncryptionKey> {
        self.key_file.as_ref()
    }
}

#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// Page size of a new store: 4KiB for records read one by one, 16KiB for long scans [default:
    /// 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "New store")]
    page_size: Option<u64>,

    /// Stripe unit of a new store with several members
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = parse_size, help_heading = "New store")]
    stripe_unit: u64,

    /// Create a new store on a block device or an existing file, if its first and last MiB are
    /// blank
    #[arg(long, help_heading = "New store")]
    init: bool,

    /// Create a new store on a block device or an existing file; its content is lost
    #[arg(long, help_heading = "New store")]
    init_force: bool,
}

impl CreateArgs {
    /// Sets the page size, if none was given.
    pub(crate) fn or_page_size(mut self, bytes: Option<u64>) -> Self {
        self.page_size = self.page_size.or(bytes);
        self
    }
}

#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// Write no log: a crash loses all changes after the last checkpoint
    #[arg(long, help_heading = "Store")]
    no_log: bool,

    /// Durability of each change [default: sync; async for loads]: sync survives power loss; group
    /// too, together with other changes; async does not wait. At the end, all changes survive
    #[arg(long, value_name = "WHEN", value_parser = parse_durability, help_heading = "Store")]
    durability: Option<Durability>,
}

/// Whether a store is named by the socket at which it is published.
pub(crate) fn is_socket(store: &Path) -> bool {
    std::fs::metadata(store).is_ok_and(|there| there.file_type().is_socket())
}

/// Returns the socket at which a store is published: the path itself if it is a socket, otherwise a
/// path beside the first member.
pub(crate) fn published_at(store: &Path) -> PathBuf {
    if is_socket(store) {
        return store.to_owned();
    }
    let spec = store.to_str().and_then(|name| name.parse::<DeviceSpec>().ok());
    let first = spec.as_ref().and_then(|spec| spec.paths().first().map(|path| path.to_path_buf()));
    publish_path(first.as_deref().unwrap_or(store))
}

/// Returns the existing files and block devices that a specifier names.
fn files_of(spec: &Path) -> Vec<PathBuf> {
    let spec = spec.to_str().and_then(|name| name.parse::<DeviceSpec>().ok());
    let paths = spec.iter().flat_map(DeviceSpec::paths);
    paths.filter_map(|path| path.canonicalize().ok()).collect()
}

#[derive(Args, Debug)]
pub(crate) struct TableArgs {
    /// Table
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) table: String,
}

/// The time between two messages about the progress of recovery, where no bar can be shown.
const RECOVERY_TOLD_EVERY: Duration = Duration::from_secs(5);

/// The page size of a new store, in bytes.
const PAGE_SIZE: u64 = 4 << 10;

/// The memory for pages of a command that handles single records, in bytes.
const SMALL_MEMORY_BYTES: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    Small,
    Large,
}

/// The state in which a store is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    Closed,
    /// As of its last checkpoint, because it was not closed.
    AtCheckpoint,
    /// As of a checkpoint, because another process has it open.
    BesideWriter,
}

impl StoreArgs {
    /// Returns the size of the store's members in bytes. Returns `None` if one of them is not a
    /// file.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        let bytes = |path: &PathBuf| {
            std::fs::metadata(path).ok().filter(|there| there.is_file()).map(|there| there.len())
        };
        [&self.store].into_iter().chain(&self.members).map(bytes).sum()
    }

    /// Returns how the files of the store and its log device grow: `Zeroed` if one of them grows
    /// that way; `None` if no file is known.
    pub(crate) fn growth(&self) -> Option<Growth> {
        let places = [self.store.as_path()].into_iter();
        let places =
            places.chain(self.members.iter().map(PathBuf::as_path)).chain(self.log.device());
        let files = places.flat_map(files_of).filter(|path| path.is_file());
        let all: Vec<Growth> = files.filter_map(|path| Growth::of(&path).ok()).collect();
        all.iter().find(|growth| **growth == Growth::Zeroed).or(all.first()).copied()
    }

    fn options(&self, effort: Effort) -> Options {
        let options = Options::striped(std::iter::once(&self.store).chain(&self.members));
        self.log.tell(self.served(options, effort))
    }

    /// How a store is served, wherever it is.
    fn served(&self, options: Options, effort: Effort) -> Options {
        let options = self.served_without_key(options, effort);
        match self.key() {
            Some(key) => options.encryption_key(key),
            None => options,
        }
    }

    fn served_without_key(&self, options: Options, effort: Effort) -> Options {
        let (usual_bytes, workers) = match effort {
            Effort::Small => (SMALL_MEMORY_BYTES, 1),
            Effort::Large => (STORE_MEMORY_BYTES, 0),
        };
        let options = match self.memory {
            Some(bytes) => options.memory_bytes(bytes),
            None => options.memory_bytes_up_to(usual_bytes),
        };
        options
            .huge_pages(self.huge_pages)
            .workers(self.workers.unwrap_or(workers))
            .io(self.io)
            .drivers(&self.drivers)
            .buffered(self.buffered)
    }

    /// Opens the store for reading. A store that was not closed is recovered first, if it can be
    /// written.
    pub(crate) fn open_to_read(&self, effort: Effort) -> Result<(Store, OpenReport)> {
        let options = self.options(effort).create(false);
        match options.clone().read_only(true).open_with_report() {
            Err(error) if error.kind() == ErrorKind::Unclean => {
                match open_showing(options.clone()) {
                    // Another process recovers it.
                    Err(failure) if failure.kind() == Some(ErrorKind::Busy) => {}
                    opened => {
                        let (store, report) = opened?;
                        if let Some(why) = report.not_writable {
                            // The reason names the file.
                            return Err(Failure::from(why).context("the store was not closed, and"));
                        }
                        store.close()?;
                    }
                }
                self.told_of_writer(options.read_only(true).open_with_report()?)
            }
            opened => self.told_of_writer(opened.map_err(|error| self.or_look(error))?),
        }
    }

    /// Prints notes about how a store was opened for reading.
    fn told_of_writer(&self, opened: (Store, OpenReport)) -> Result<(Store, OpenReport)> {
        let (store, report) = told(opened)?;
        if report.beside_writer
            && let Some((timestamp, _)) = store.seen()?
        {
            let name = self.store.display();
            let published = UnixStream::connect(published_at(&self.store)).is_ok();
            let look = match published {
                true => format!("; what it counts: qpair top {name} --prometheus"),
                false => String::new(),
            };
            eprintln!(
                "qpair: note: another process has the store open; this is its checkpoint of commit {timestamp}{look}"
            );
        }
        Ok((store, report))
    }

    /// Adds a hint to the error if the store is open in another process and published there.
    fn or_look(&self, error: qpair::Error) -> Failure {
        let failure = Failure::from(error);
        let published = || UnixStream::connect(published_at(&self.store)).is_ok();
        if failure.kind() != Some(ErrorKind::Busy) || !published() {
            return failure;
        }
        let name = self.store.display();
        failure.or_hint(format!(
            "what it does meanwhile: qpair top {name}, what it counts: qpair top {name} --prometheus"
        ))
    }

    /// Opens the store to check it.
    pub(crate) fn open_to_check(&self) -> Result<(Store, Checked)> {
        let options = self.options(Effort::Large).create(false).read_only(true);
        match options.clone().open_with_report() {
            Err(error) if error.kind() == ErrorKind::Unclean => {
                match tell(options.clone().at_checkpoint(true)) {
                    // Another process recovers it.
                    Err(failure) if failure.kind() == Some(ErrorKind::Busy) => {
                        self.opened_to_check(options.open_with_report())
                    }
                    opened => Ok((opened?.0, Checked::AtCheckpoint)),
                }
            }
            opened => self.opened_to_check(opened),
        }
    }

    fn opened_to_check(
        &self,
        opened: std::result::Result<(Store, OpenReport), qpair::Error>,
    ) -> Result<(Store, Checked)> {
        let opened = opened.map_err(|error| self.or_look(error))?;
        let (store, report) = self.told_of_writer(opened)?;
        let beside = report.beside_writer;
        Ok((store, if beside { Checked::BesideWriter } else { Checked::Closed }))
    }

    /// Returns options to inspect the store without opening it.
    pub(crate) fn closed(&self) -> Options {
        self.options(Effort::Large)
    }

    /// Returns options to create another store with the same settings. The target may have several
    /// members: `stripe:unit=64KiB:A+B`.
    pub(crate) fn target(&self, target: &Path, force: bool) -> Result<Options> {
        self.refuse_own(target)?;
        Ok(self.served(Options::new(target), Effort::Large).force(force))
    }

    /// Returns options to create a store that is not encrypted like this one: with another key, or
    /// in clear.
    pub(crate) fn target_with_key(
        &self,
        target: &Path,
        key: Option<&EncryptionKey>,
    ) -> Result<Options> {
        self.refuse_own(target)?;
        let options = match key {
            Some(key) => Options::new(target).encryption_key(key),
            None => Options::new(target),
        };
        Ok(self.served_without_key(options, Effort::Large))
    }

    /// Returns the key that was given.
    pub(crate) fn key(&self) -> Option<&EncryptionKey> {
        self.key.key()
    }

    /// Refuses a target that is a file of this store.
    pub(crate) fn refuse_own(&self, target: &Path) -> Result<()> {
        let members = std::iter::once(&self.store).chain(&self.members);
        let own: Vec<PathBuf> = members.flat_map(|member| files_of(member)).collect();
        match files_of(target).iter().find(|file| own.contains(file)) {
            None => Ok(()),
            Some(file) => {
                let what = format!("{} belongs to the store itself", file.display());
                Err(Failure::usage(what).hint("name another place for the new one"))
            }
        }
    }

    /// Opens the store for changes. Creates it if `create` is given.
    pub(crate) fn open_to_write(
        &self,
        effort: Effort,
        create: Option<&CreateArgs>,
        log: Option<&LogArgs>,
    ) -> Result<(Store, OpenReport)> {
        let mut options =
            self.options(effort).create(create.is_some()).publish_beside(effort == Effort::Large);
        if let Some(log) = log {
            // A large load waits for durability at its end.
            let usual = match effort {
                Effort::Small => Durability::Sync,
                Effort::Large => Durability::Async,
            };
            options = options.log(!log.no_log).durability(log.durability.unwrap_or(usual));
        }
        if let Some(create) = create {
            let page_size = create.page_size.unwrap_or(PAGE_SIZE);
            let page_size = usize::try_from(page_size).unwrap_or(usize::MAX);
            options = options
                .page_size(page_size)
                .stripe_unit_bytes(create.stripe_unit)
                .format(create.init || create.init_force)
                .force(create.init_force);
        }
        let opened = open_showing(options).map_err(|failure| match create {
            Some(_) if failure.is_of_blank() => {
                failure.or_hint("give --init to make a new one there")
            }
            _ => failure,
        });
        let (store, report) = opened?;
        match report.not_writable {
            None => Ok((store, report)),
            Some(error) => {
                Err(Failure::from(error).context("the store can be read but not changed"))
            }
        }
    }
}

impl TableArgs {
    /// Returns the table, which must exist.
    pub(crate) fn existing(&self, store: &Store) -> Result<Table> {
        match store.existing_table(&self.table)? {
            Some(table) => Ok(table),
            None => {
                let names = store.table_names()?;
                let hint = match &names[..] {
                    [] => "it has no tables".to_owned(),
                    names => format!("it has the tables {}", names.join(", ")),
                };
                let message = format!("the store has no table \"{}\"", self.table);
                Err(Failure::new(Exit::Negative, message).hint(hint))
            }
        }
    }
}

/// Opens the store for changes. Shows the progress of recovery on a terminal, and its result.
fn open_showing(options: Options) -> Result<(Store, OpenReport)> {
    let template = "recovering {wide_bar} {percent:>3} %, {eta} left";
    let bar = styled(ProgressBar::new(0), template);
    let shown = bar.clone();
    let is_terminal = std::io::stderr().is_terminal();
    let (began, told) = (Instant::now(), Mutex::new(Instant::now()));
    let progress = RecoveryProgress::new(move |done, total| {
        shown.set_length(total);
        shown.set_position(done);
        let mut told = told.lock();
        if !is_terminal && told.elapsed() >= RECOVERY_TOLD_EVERY {
            *told = Instant::now();
            eprintln!("qpair: note: {}", recovering(done, total, began.elapsed()));
        }
    });
    let opened = tell(options.progress(progress));
    bar.finish_and_clear();
    if let Ok((store, _)) = &opened
        && let Some(recovered) = store.report().recovered
    {
        let commits = counted(recovered.commits, "commit");
        let left_out = match recovered.dropped {
            0 => String::new(),
            dropped => format!(", discarded {} unacknowledged commits", count(dropped)),
        };
        eprintln!("qpair: note: the store was not closed; recovered {commits}{left_out}");
        if recovered.more_memory_bytes > 0 {
            let taken = qpair_block::format_bytes(store.report().memory_bytes);
            eprintln!(
                "qpair: note: it has {taken} of memory until it is closed, more than it was given: its log had changes of very many tables"
            );
        }
    }
    opened
}

/// Formats the progress of recovery, where no bar is shown.
fn recovering(done: u64, total: u64, elapsed: Duration) -> String {
    let share = done as f64 / total.max(1) as f64;
    let left = match done {
        0 => String::new(),
        _ => format!(", {:.0} s left", elapsed.as_secs_f64() * (1.0 - share) / share),
    };
    let percent = 100.0 * share;
    format!("recovering: {percent:.0} % of {}{left}", qpair_block::format_bytes(total))
}

/// Opens the store, and prints notes about how it was opened.
fn tell(options: Options) -> Result<(Store, OpenReport)> {
    told(options.open_with_report()?)
}

fn told((store, report): (Store, OpenReport)) -> Result<(Store, OpenReport)> {
    for passed_over in &report.passed_over {
        eprintln!("qpair: note: using {}, {passed_over}", report.interface);
    }
    if let Some(warning) = &report.memory_warning {
        eprintln!("qpair: warning: {warning}");
    }
    if let Some(why) = &report.not_published {
        eprintln!("qpair: note: `qpair top` does not find it: {why}");
    }
    Ok((store, report))
}

/// Reads a key file. Its name is an argument, and the key never is: other users see arguments.
pub(crate) fn parse_key(path: &str) -> std::result::Result<EncryptionKey, String> {
    EncryptionKey::from_file(path).map_err(|error| error.to_string())
}

pub(crate) fn parse_durability(text: &str) -> std::result::Result<Durability, String> {
    match text {
        "sync" => Ok(Durability::Sync),
        "group" => Ok(Durability::Group),
        "async" => Ok(Durability::Async),
        _ => Err("give sync, group or async".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_says_how_long_it_takes() {
        let after = Duration::from_secs(6);
        assert_eq!(recovering(0, 1 << 30, after), "recovering: 0 % of 1GiB");
        assert_eq!(recovering(1 << 28, 1 << 30, after), "recovering: 25 % of 1GiB, 18 s left");
        assert_eq!(recovering(1 << 30, 1 << 30, after), "recovering: 100 % of 1GiB, 0 s left");
    }
}
