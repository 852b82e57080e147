//! Threads over files.

use qpair_block::locks::Mutex;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, PoisonError};
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rand_distr::{Distribution, Gamma};

use super::profile::{FileOp, Profile};
use super::set::FileSet;
use crate::observer::Observer;
use crate::report::Latencies;

/// The number of bytes in which a whole file is read and written, as filebench's `iosize`.
const PART_BYTES: usize = 1 << 20;
/// The interval at which a waiting thread checks whether it should end.
const LOOK: Duration = Duration::from_millis(50);
/// The size of the log of `oltp`, in bytes.
const LOG_BYTES: u64 = 10 << 20;

#[derive(Clone, Debug)]
pub struct FilesOptions {
    pub profile: Profile,
    /// The folder in which the run creates its own folder, which it removes at the end.
    pub folder: PathBuf,
    /// The time after which the run ends.
    pub runtime: Duration,
    /// The number of passes through its flow after which each thread of the first role ends. The
    /// run ends with the last of them. `None`: only time ends the run.
    pub loops: Option<u64>,
    /// Whether to drop the kernel's caches after the files are created. Requires root.
    pub drop_caches: bool,
    pub seed: u64,
}

#[derive(Clone, Debug, Default)]
pub struct OpReport {
    pub count: u64,
    pub bytes: u64,
    pub latency: Latencies,
}

#[derive(Clone, Debug)]
pub struct FilesReport {
    pub files: u32,
    pub bytes: u64,
    pub threads: u32,
    pub elapsed: Duration,
    /// Counts and latencies, by [`FileOp::name`].
    pub operations: BTreeMap<&'static str, OpReport>,
}

#[derive(Default)]
struct Posts {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Posts {
    fn post(&self, needed: u64) {
        let mut count = self.count.lock();
        *count += 1;
        if *count >= needed {
            self.changed.notify_one();
        }
    }

    /// Waits for `needed` posts and takes them. Returns false if the run ended before.
    fn take(&self, needed: u64, is_over: impl Fn() -> bool) -> bool {
        let mut count = self.count.lock();
        while *count < needed {
            if is_over() {
                return false;
            }
            let waited = self.changed.wait_timeout(count, LOOK);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *count -= needed;
        true
    }
}

struct Shared<'a> {
    options: &'a FilesOptions,
    set: FileSet,
    /// The files of records, if the profile has them. Writes to them, and to the log, are durable
    /// when they complete.
    records: Vec<(PathBuf, File)>,
    log: (PathBuf, File),
    log_end: AtomicU64,
    for_records: (Posts, u64),
    for_log: (Posts, u64),
    /// The number of threads of the first role that still run.
    working: AtomicU32,
    stop: AtomicBool,
    until: Instant,
}

impl Shared<'_> {
    fn is_ended(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() >= self.until
    }

    /// Whether the run is over: its time has ended, or no thread of the first role runs any more.
    /// Posts that have already arrived are still taken.
    fn is_over(&self) -> bool {
        self.is_ended() || self.working.load(Ordering::Relaxed) == 0
    }
}

/// Creates the files of a profile, runs it, and removes them.
///
/// # Errors
/// Returns `Exists` if files of an earlier run are there, `Invalid` if there are more threads than
/// files, or the file system's error with the name of the file.
pub fn run_files(options: &FilesOptions, observer: &dyn Observer) -> Result<FilesReport> {
    let profile = &options.profile;
    let threads: u32 = profile.roles.iter().map(|role| role.threads).sum();
    let takes_files = profile.roles[0].flow.contains(&FileOp::Close);
    if profile.files == 0 || threads == 0 || (takes_files && threads > profile.files) {
        let context = format!("{threads} threads cannot run on {} files", profile.files);
        return Err(Error::new(ErrorKind::Invalid, context)
            .hint("each thread has a file of its own open: choose at least as many files"));
    }
    let root = options.folder.join(format!("qpair-{}", profile.name));
    std::fs::create_dir(&root).map_err(|cause| {
        Error::os(cause, format!("{}: creating the folder of the run", root.display()))
            .hint("the folder must be there and writable; what an earlier run has left is to be removed first")
    })?;
    let result = in_folder(options, &root, threads, observer);
    let removed = std::fs::remove_dir_all(&root)
        .map_err(|cause| Error::os(cause, format!("{}: removing it", root.display())));
    let report = result?;
    removed?;
    Ok(report)
}

fn in_folder(
    options: &FilesOptions,
    root: &Path,
    threads: u32,
    observer: &dyn Observer,
) -> Result<FilesReport> {
    let profile = &options.profile;
    let set = FileSet::new(root.join("files"), profile.files, profile.folder_entries);
    let bytes = make_files(options, &set, observer)?;
    let log_path = root.join("log");
    let has_records = profile.roles[0].flow.contains(&FileOp::ReadRecord);
    let open = |path: &Path| {
        let flags = if has_records { nix::libc::O_DSYNC } else { 0 };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path);
        Ok((path.to_owned(), file.map_err(failed("opening", path))?))
    };
    let log = open(&log_path)?;
    let paths = (0..profile.files).filter(|_| has_records).map(|number| set.path(number));
    let records = paths.map(|path| open(&path)).collect::<Result<Vec<_>>>()?;
    if options.drop_caches {
        rustix::fs::sync();
        let path = Path::new("/proc/sys/vm/drop_caches");
        std::fs::write(path, "3").map_err(|cause| {
            Error::os(cause, "dropping the kernel's cache of files").hint("run it as root")
        })?;
    }
    let first = |wanted: fn(&FileOp) -> Option<u32>| {
        let all = profile.roles.iter().flat_map(|role| &role.flow);
        (Posts::default(), all.filter_map(wanted).next().map_or(0, u64::from))
    };
    let begin = Instant::now();
    let shared = Shared {
        options,
        set,
        records,
        log,
        log_end: AtomicU64::new(0),
        for_records: first(|op| match op {
            FileOp::WriteRecords { after, .. } => Some(*after),
            _ => None,
        }),
        for_log: first(|op| match op {
            FileOp::WriteLog { after, .. } => Some(*after),
            _ => None,
        }),
        working: AtomicU32::new(profile.roles[0].threads),
        stop: AtomicBool::new(false),
        until: begin + options.runtime,
    };
    let outcomes: Vec<Result<BTreeMap<&'static str, OpReport>>> = std::thread::scope(|scope| {
        let mut handles = Vec::new();
        for (at, role) in profile.roles.iter().enumerate() {
            for number in 0..role.threads {
                let shared = &shared;
                handles.push(scope.spawn(move || {
                    let seed = options.seed ^ ((at as u64 + 1) << 32 | u64::from(number));
                    let mut thread = Thread::new(shared, seed);
                    let loops = options.loops.filter(|_| at == 0).unwrap_or(u64::MAX);
                    let outcome = thread.work(&role.flow, loops);
                    if at == 0 {
                        shared.working.fetch_sub(1, Ordering::Relaxed);
                    }
                    if outcome.is_err() {
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                    outcome.map(|()| thread.did)
                }));
            }
        }
        while !shared.is_over() {
            if observer.stop() {
                shared.stop.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(LOOK.min(options.runtime));
        }
        let panicked = || Err(Error::new(ErrorKind::Io, "a thread of the run has panicked"));
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(|_| panicked())).collect()
    });
    let elapsed = begin.elapsed();
    let mut operations: BTreeMap<&'static str, OpReport> = BTreeMap::new();
    for outcome in outcomes {
        for (name, did) in outcome? {
            let sum = operations.entry(name).or_default();
            sum.count += did.count;
            sum.bytes += did.bytes;
            sum.latency.add(&did.latency);
        }
    }
    Ok(FilesReport { files: profile.files, bytes, threads, elapsed, operations })
}

fn failed<'p>(doing: &'p str, path: &'p Path) -> impl Fn(std::io::Error) -> Error + 'p {
    move |cause| Error::os(cause, format!("{}: {doing}", path.display()))
}

/// Creates all folders, and the files that exist at the start. Returns the bytes of these files.
fn make_files(options: &FilesOptions, set: &FileSet, observer: &dyn Observer) -> Result<u64> {
    let profile = &options.profile;
    let mut random = SmallRng::seed_from_u64(options.seed);
    let mut data = vec![0; PART_BYTES];
    random.fill_bytes(&mut data);
    let mut sum = 0;
    for number in 0..profile.files * 2 {
        let path = set.path(number);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed("creating", folder))?;
        }
        if number >= profile.files {
            continue;
        }
        let bytes = size(profile, &mut random);
        let mut file = File::create(&path).map_err(failed("creating", &path))?;
        write(&mut file, bytes, &data).map_err(failed("writing", &path))?;
        sum += bytes;
        if observer.stop() {
            return Err(Error::new(ErrorKind::Interrupted, "the files were not all made"));
        }
    }
    Ok(sum)
}

fn size(profile: &Profile, random: &mut SmallRng) -> u64 {
    let mean = profile.file_bytes as f64;
    let gamma = profile.gamma.and_then(|shape| Gamma::new(shape, mean / shape).ok());
    gamma.map_or(profile.file_bytes, |gamma| gamma.sample(random) as u64).max(1)
}

fn write(file: &mut File, bytes: u64, data: &[u8]) -> std::io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let part = left.min(data.len() as u64) as usize;
        file.write_all(&data[..part])?;
        left -= part as u64;
    }
    Ok(())
}

struct Thread<'a> {
    shared: &'a Shared<'a>,
    random: SmallRng,
    data: Vec<u8>,
    open: Option<(u32, PathBuf, File)>,
    did: BTreeMap<&'static str, OpReport>,
}

impl<'a> Thread<'a> {
    fn new(shared: &'a Shared<'a>, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut data = vec![0; PART_BYTES];
        random.fill_bytes(&mut data);
        Self { shared, random, data, open: None, did: BTreeMap::new() }
    }

    fn work(&mut self, flow: &[FileOp], loops: u64) -> Result<()> {
        for _ in 0..loops {
            for op in flow {
                if self.shared.is_ended() || !self.step(*op)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Waits for a file that no thread uses; `None` if the run is over before.
    fn take(&mut self, is_there: bool) -> Option<u32> {
        loop {
            let taken = self.shared.set.take(is_there, &mut self.random);
            if taken.is_some() || self.shared.is_over() {
                return taken;
            }
            std::thread::yield_now();
        }
    }

    /// Executes one step. Returns `false` if the run ended before.
    fn step(&mut self, op: FileOp) -> Result<bool> {
        let profile = &self.shared.options.profile;
        // The time spent waiting for other threads is not the file system's.
        let ready = match op {
            FileOp::WriteRecords { after, .. } => {
                self.shared.for_records.0.take(after.into(), || self.shared.is_over())
            }
            FileOp::WriteLog { after, .. } => {
                self.shared.for_log.0.take(after.into(), || self.shared.is_over())
            }
            _ => true,
        };
        let file = match op {
            FileOp::Open | FileOp::Delete | FileOp::Stat => self.take(true),
            FileOp::Create => self.take(false),
            _ => Some(0),
        };
        let (true, Some(file)) = (ready, file) else { return Ok(false) };
        let path = self.shared.set.path(file);
        let start = Instant::now();
        let (mut count, mut bytes) = (1, 0);
        match op {
            FileOp::Open => {
                let opened = OpenOptions::new().read(true).write(true).open(&path);
                self.open = Some((file, path.clone(), opened.map_err(failed("opening", &path))?));
            }
            FileOp::Create => {
                let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
                self.open = Some((file, path.clone(), made.map_err(failed("creating", &path))?));
            }
            FileOp::ReadWhole => {
                if let Some((_, path, opened)) = &mut self.open {
                    loop {
                        let part = opened.read(&mut self.data).map_err(failed("reading", path))?;
                        if part == 0 {
                            break;
                        }
                        bytes += part as u64;
                    }
                }
            }
            FileOp::WriteWhole => {
                bytes = size(profile, &mut self.random);
                if let Some((_, path, opened)) = &mut self.open {
                    write(opened, bytes, &self.data).map_err(failed("writing", path))?;
                }
            }
            FileOp::Append => {
                bytes = self.random.random_range(1..=u64::from(profile.append_bytes.max(1)));
                if let Some((_, path, opened)) = &mut self.open {
                    let end = opened.metadata().map_err(failed("reading the state", path))?.len();
                    let data = &self.data[..bytes as usize];
                    opened.write_all_at(data, end).map_err(failed("appending", path))?;
                }
            }
            FileOp::Sync => {
                if let Some((_, path, opened)) = &self.open {
                    opened.sync_all().map_err(failed("syncing", path))?;
                }
            }
            FileOp::Close => {
                if let Some((file, _, opened)) = self.open.take() {
                    drop(opened);
                    self.shared.set.give_back(file, true);
                }
            }
            FileOp::Delete => {
                std::fs::remove_file(&path).map_err(failed("removing", &path))?;
                self.shared.set.give_back(file, false);
            }
            FileOp::Stat => {
                std::fs::metadata(&path).map_err(failed("reading the state", &path))?;
                self.shared.set.give_back(file, true);
            }
            FileOp::AppendLog => {
                bytes = self.random.random_range(1..=u64::from(profile.append_bytes.max(1)));
                let at = self.shared.log_end.fetch_add(bytes, Ordering::Relaxed);
                let (path, log) = &self.shared.log;
                let written = log.write_all_at(&self.data[..bytes as usize], at);
                written.map_err(failed("appending", path))?;
            }
            FileOp::ReadRecord => {
                bytes = u64::from(profile.record_bytes);
                let at = self.record_at(bytes);
                let (path, file) = self.of_records();
                let data = &mut self.data[..bytes as usize];
                file.read_exact_at(data, at).map_err(failed("reading", path))?;
                self.shared.for_records.0.post(self.shared.for_records.1);
                self.shared.for_log.0.post(self.shared.for_log.1);
            }
            FileOp::WriteRecords { count: records, .. } => {
                count = records.into();
                bytes = count * u64::from(profile.record_bytes);
                for _ in 0..records {
                    let at = self.record_at(profile.record_bytes.into());
                    let (path, file) = self.of_records();
                    let data = &self.data[..profile.record_bytes as usize];
                    file.write_all_at(data, at).map_err(failed("writing", path))?;
                }
            }
            FileOp::WriteLog { bytes: len, .. } => {
                bytes = len.into();
                let at = self.random.random_range(0..LOG_BYTES / bytes) * bytes;
                let (path, log) = &self.shared.log;
                let written = log.write_all_at(&self.data[..len as usize], at);
                written.map_err(failed("writing", path))?;
            }
        }
        let took = start.elapsed();
        let did = self.did.entry(op.name()).or_default();
        did.count += count;
        did.bytes += bytes;
        did.latency.record(took.as_nanos() as u64);
        Ok(true)
    }

    fn of_records(&mut self) -> &'a (PathBuf, File) {
        let records = &self.shared.records;
        &records[self.random.random_range(0..records.len())]
    }

    fn record_at(&mut self, bytes: u64) -> u64 {
        let records = self.shared.options.profile.file_bytes / bytes;
        self.random.random_range(0..records.max(1)) * bytes
    }
}
