//! Opens devices by name, and checks everything that can be checked before the first request.
//!
//! Invariants:
//! - a device that is written is locked once for the whole run; block devices that are mounted or
//!   held are rejected unless forced;
//! - a file is created only if the job asks for it, and removed if it could not be filled.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qpair_block::{BlockDevice, DeviceInfo, DeviceSpec, Error, ErrorKind, Result, format_bytes};
use qpair_drivers::Drivers;
use qpair_kernel::{Adaptation, FileOptions, Interface, Mode};

use crate::iolog::{Action, Entry};
use crate::job::{BlockSizes, Direction, Extent, Form, Job, Target, Verbs};
use crate::observer::Observer;

use super::lay_out::make;
use super::offsets::{Region, used_directions, used_sizes};

#[derive(Clone)]
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) region: Region,
    /// Whether another job of the stage also writes to the target.
    pub(super) is_shared: bool,
}

/// The key by which jobs share an open device: the device, and how it is opened.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    spec: String,
    mode: Mode,
    direct: bool,
    writable: bool,
}

pub(super) struct Devices<'a> {
    drivers: &'a Drivers,
    open: HashMap<Key, Arc<dyn BlockDevice>>,
    /// Locks held from the first to the last request, so that no other process uses a device that
    /// is written.
    locks: HashMap<String, Arc<dyn BlockDevice>>,
    pub(super) notes: Vec<String>,
    /// The devices whose interface may change while jobs run, by name.
    adaptations: Vec<(String, Arc<Adaptation>)>,
    made: Vec<PathBuf>,
}

impl<'a> Devices<'a> {
    pub(super) fn new(drivers: &'a Drivers) -> Self {
        Self {
            drivers,
            open: HashMap::new(),
            locks: HashMap::new(),
            notes: Vec::new(),
            adaptations: Vec::new(),
            made: Vec::new(),
        }
    }

    pub(super) fn of(&mut self, job: &Job, observer: &dyn Observer) -> Result<Vec<Opened>> {
        check_job(job)?;
        job.targets
            .iter()
            .map(|target| {
                let name = target.spec.to_string();
                let spec = self.find_lent(&target.spec, job)?;
                if let (DeviceSpec::File(path), Some(bytes)) = (&spec, target.create_bytes)
                    && make(path, bytes, target.sparse, job, observer)?
                {
                    self.made.push(path.clone());
                } else if let DeviceSpec::File(path) = &spec
                    && !matches!(job.verbs, Verbs::Write | Verbs::TrimWrite)
                    && let Some(note) = qpair_machine::unwritten_note(path)
                {
                    self.note(format!("{note}; write all of it first: --rw=write --size=100%"));
                }
                if job.invalidate && !job.direct {
                    spec.paths().into_iter().for_each(drop_cache);
                }
                let device = self.open(&spec, job)?;
                let region = region(job, &name, device.as_ref())?;
                check_device(job, &name, device.as_ref())?;
                check_atomic(job, target, &name, device.info(), region)?;
                check_replay(job, target, &name, region)?;
                Ok(Opened { name, device, region, is_shared: false })
            })
            .collect()
    }

    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Returns the device to open for a target: under this program's driver, if `auto` was asked
    /// for and the kernel has lent the drive.
    fn find_lent(&mut self, spec: &DeviceSpec, job: &Job) -> Result<DeviceSpec> {
        if job.mode.interface != Interface::Auto {
            return Ok(spec.clone());
        }
        let (spec, reasons) = self.drivers.find_lent(spec)?;
        reasons.into_iter().for_each(|reason| self.note(reason));
        Ok(spec)
    }

    /// Returns the interfaces that `auto` has changed to, with its reasons.
    pub(super) fn adapted(&self) -> Vec<String> {
        // Devices of a driver tell theirs by name.
        let driven: HashSet<_> = self.locks.values().map(|one| one.info().name.clone()).collect();
        let all = qpair_kernel::adaptations().into_iter();
        let driven = all.filter(|(name, _)| driven.contains(name));
        let kernels = self.adaptations.iter().map(|(name, one)| (name.clone(), one.state()));
        let states = kernels.chain(driven);
        let changed = states.filter(|(_, state)| state.changes > 0);
        changed.map(|(name, state)| format!("{name}: auto is on {state}")).collect()
    }

    /// Removes the files that were created for a run that then failed to start.
    pub(super) fn remove_made(&mut self) {
        for path in self.made.drain(..) {
            // Report the earlier error, not this one.
            let _ = std::fs::remove_file(path);
        }
    }

    fn open(&mut self, spec: &DeviceSpec, job: &Job) -> Result<Arc<dyn BlockDevice>> {
        let writable = job.writes();
        let name = spec.to_string();
        let key = Key { spec: name.clone(), mode: job.mode, direct: job.direct, writable };
        if let Some(device) = self.open.get(&key) {
            return Ok(device.clone());
        }
        // Memory exists only once: all jobs share it.
        let kernel = !spec.paths().is_empty();
        if !kernel && let Some(device) = self.locks.get(&name) {
            return Ok(device.clone());
        }
        if kernel && writable && !job.force && !self.locks.contains_key(&name) {
            let lock = |path: &Path| {
                let options = FileOptions { direct: job.direct, ..FileOptions::new(path) };
                let device = qpair_kernel::open(&options, Interface::Auto)?;
                Ok(Arc::new(device) as Arc<dyn BlockDevice>)
            };
            let device =
                spec.open(&self.drivers.opening(lock)).map_err(|error| match error.kind() {
                    // The cause names the device.
                    ErrorKind::Busy => Error::new(
                        ErrorKind::Busy,
                        format!("checking that job {} may write", job.name),
                    )
                    .caused_by(error)
                    .hint("--force writes to it all the same, and destroys what it holds"),
                    _ => error,
                })?;
            self.locks.insert(name.clone(), device);
        }
        let notes = std::cell::RefCell::new(Vec::new());
        let adaptations = std::cell::RefCell::new(Vec::new());
        let opener = |path: &Path| {
            let options = FileOptions {
                read_only: !writable,
                exclusive_lock: false,
                direct: job.direct,
                byte_blocks: true,
                ..FileOptions::new(path)
            };
            let device = qpair_kernel::open(&options, job.mode)?;
            if job.mode.interface == Interface::Auto {
                notes.borrow_mut().push(format!(
                    "{}: auto chose {}",
                    path.display(),
                    device.choice()
                ));
                let name = path.display().to_string();
                adaptations.borrow_mut().extend(device.adaptation().map(|one| (name, one)));
            }
            Ok(Arc::new(device) as Arc<dyn BlockDevice>)
        };
        let device = spec.open(&self.drivers.opening(opener))?;
        self.notes.extend(notes.into_inner());
        self.adaptations.extend(adaptations.into_inner());
        if !kernel {
            self.locks.insert(name, device.clone());
        }
        self.open.insert(key, device.clone());
        Ok(device)
    }
}

fn invalid(job: &Job, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("job {}: {what}", job.name))
}

/// The shortest chunk that can be verified, which must have room for its header.
const VERIFY_BYTES_MIN: u32 = 512;

/// Checks the parts of a job that do not depend on a device.
fn check_job(job: &Job) -> Result<()> {
    job.mode.check()?;
    if job.read_only && job.writes() {
        return Err(invalid(job, "the job writes, but only reading is allowed")
            .hint("leave --readonly out, or choose rw=read or rw=randread"));
    }
    if job.targets.is_empty() {
        return Err(invalid(job, "the job has no device").hint("give --filename=DEVICE"));
    }
    let (min, max) = used_sizes(job);
    if min == 0 || max == 0 {
        return Err(invalid(job, "the block size must be more than 0"));
    }
    let usable = rustix::thread::sched_getaffinity(None);
    if let (Ok(usable), Some(cpu)) = (&usable, job.cpus.iter().max())
        && let Some(cpu) = (*cpu >= rustix::thread::CpuSet::MAX_CPU)
            .then_some(cpu)
            .or_else(|| job.cpus.iter().find(|cpu| !usable.is_set(**cpu)))
    {
        return Err(invalid(job, format!("there is no processor {cpu} that this process may use"))
            .hint("name only processors that are there: nproc counts them"));
    }
    if job.depth == 0 {
        return Err(invalid(job, "the depth must be at least 1").hint("give iodepth=1 or more"));
    }
    if job.time_based && job.runtime.is_none() {
        return Err(invalid(job, "time_based needs a runtime").hint("give --runtime=SECONDS"));
    }
    if matches!(job.form, Form::Messages { .. }) {
        if job.targets.len() > 1 {
            return Err(invalid(job, "mode=msg works on one device"));
        }
        if job.runtime.is_none() {
            return Err(invalid(job, "mode=msg needs a runtime").hint("give --runtime=SECONDS"));
        }
    }
    if let Some(verify) = &job.verify {
        let chunk = if verify.interval_bytes == 0 { min } else { verify.interval_bytes };
        if chunk < VERIFY_BYTES_MIN || min % chunk != 0 {
            return Err(invalid(job, format!("blocks of {chunk} bytes cannot be verified"))
                .hint(format!("verify_interval divides bs and is at least {VERIFY_BYTES_MIN}")));
        }
        let sizes = used_directions(job).map(|direction| &job.block_sizes[direction as usize]);
        for sizes in sizes {
            let parts = lengths(sizes);
            if parts.iter().any(|bytes| bytes % chunk != 0) {
                return Err(invalid(job, format!("blocks of {chunk} bytes cannot be verified"))
                    .hint("every size of bssplit and bsrange must be a multiple of it"));
            }
        }
        let steps = [
            ("the step of rw", job.steps.skip_bytes.unsigned_abs()),
            ("blockalign", job.align_bytes.into()),
            ("zonesize or zonerange", job.stride.map_or(0, |stride| stride.part_bytes)),
            ("zoneskip", job.stride.map_or(0, |stride| stride.skip_bytes)),
        ];
        if let Some((name, bytes)) = steps.iter().find(|(_, bytes)| bytes % u64::from(chunk) != 0) {
            let what =
                format!("blocks of {chunk} bytes cannot be verified with {bytes} for {name}");
            return Err(invalid(job, what).hint("choose a multiple"));
        }
        if job.verbs == Verbs::Trim {
            return Err(invalid(job, "trimmed blocks hold nothing to verify"));
        }
    }
    Ok(())
}

/// Checks that the requests of a log fit into the device.
fn check_replay(job: &Job, target: &Target, name: &str, region: Region) -> Result<()> {
    let Some(replay) = &job.replay else { return Ok(()) };
    let of_target = |entry: &&Entry| job.targets.get(entry.file as usize) == Some(target);
    let end = |entry: &Entry| entry.offset_bytes.saturating_add(entry.len_bytes.into());
    let last = replay.entries.iter().filter(of_target).map(end).max().unwrap_or(0);
    if last <= region.len_bytes {
        return Ok(());
    }
    let what = format!(
        "{} has a request that ends at byte {last} of {name}, which has {}",
        replay.log.display(),
        format_bytes(region.len_bytes)
    );
    Err(invalid(job, what)
        .hint("replay_scale=N divides offsets; replay_redirect names another target"))
}

/// Checks that the device supports atomic writes of the lengths that the job writes.
fn check_atomic(
    job: &Job,
    target: &Target,
    name: &str,
    info: &DeviceInfo,
    region: Region,
) -> Result<()> {
    if !job.atomic || !job.writes() {
        return Ok(());
    }
    let of_target = |entry: &&Entry| job.targets.get(entry.file as usize) == Some(target);
    let writes: Vec<(u64, u32)> = match &job.replay {
        None => {
            let sizes = lengths(&job.block_sizes[Direction::Write as usize]);
            sizes.into_iter().map(|bytes| (region.begin_bytes, bytes)).collect()
        }
        Some(replay) => {
            let entries = replay.entries.iter().filter(of_target);
            let writes = entries.filter(|entry| entry.action == Action::Write);
            writes.map(|entry| (region.begin_bytes + entry.offset_bytes, entry.len_bytes)).collect()
        }
    };
    if info.atomic_write_bytes == 0 && !writes.is_empty() {
        let what =
            format!("job {}: {name} has no atomic writes, which atomic=1 asks for", job.name);
        return Err(Error::new(ErrorKind::Unsupported, what).hint(
            "use a drive with atomic writes (/sys/block/NAME/queue/atomic_write_unit_max_bytes is not 0) or a file of XFS or ext4 on one, or leave atomic out",
        ));
    }
    let (min, max) = (info.atomic_write_bytes_min.into(), info.atomic_write_bytes.into());
    for (offset_bytes, bytes) in writes {
        if !info.takes_atomic(bytes) {
            let what = format!(
                "job {}: {name} has no atomic writes of {}",
                job.name,
                format_bytes(bytes.into())
            );
            return Err(Error::new(ErrorKind::Unsupported, what).hint(format!(
                "choose a power of two from {} to {}",
                format_bytes(min),
                format_bytes(max)
            )));
        }
        if !offset_bytes.is_multiple_of(bytes.into()) {
            let what = format!(
                "an atomic write of {} of {name} cannot begin at {offset_bytes}, which is not a multiple of its length",
                format_bytes(bytes.into())
            );
            return Err(invalid(job, what).hint("choose such an offset"));
        }
    }
    Ok(())
}

/// Returns every size that a request can have, except those between the ends of a range.
fn lengths(sizes: &BlockSizes) -> Vec<u32> {
    match sizes {
        BlockSizes::Split(parts) => parts.iter().map(|part| part.0).collect(),
        other => vec![other.min(), other.max()],
    }
}

fn check_device(job: &Job, name: &str, device: &dyn BlockDevice) -> Result<()> {
    let info = device.info();
    let block = info.logical_block_bytes;
    for direction in used_directions(job) {
        let sizes = &job.block_sizes[direction as usize];
        let parts = lengths(sizes);
        for bytes in parts {
            if bytes % block != 0 {
                return Err(invalid(
                    job,
                    format!(
                        "bs of {} is not a multiple of {name}'s logical block of {}",
                        format_bytes(bytes.into()),
                        format_bytes(block.into())
                    ),
                )
                .hint("choose a multiple, or a buffered file (direct=0)"));
            }
        }
        let is_write = direction != Direction::Read && job.writes();
        if is_write && info.read_only {
            let what = format!("job {}: {name} cannot be written: it is read-only", job.name);
            return Err(Error::new(ErrorKind::ReadOnly, what)
                .hint("a block device is made writable by `blockdev --setrw`"));
        }
    }
    // Written data is read back in parts of this length.
    if let Some(verify) = &job.verify
        && verify.interval_bytes % block != 0
    {
        let what = format!(
            "blocks of {} bytes cannot be verified: they are not multiples of {name}'s logical block of {block}",
            verify.interval_bytes
        );
        return Err(invalid(job, what).hint("choose a multiple for verify_interval"));
    }
    let max = used_sizes(job).1;
    if job.verbs != Verbs::Trim && max > info.transfer_bytes_max {
        return Err(invalid(
            job,
            format!(
                "requests of {} are over {name}'s limit of {}",
                format_bytes(max.into()),
                format_bytes(info.transfer_bytes_max.into())
            ),
        ));
    }
    if job.depth > info.depth_max {
        return Err(invalid(
            job,
            format!("iodepth {} is over {name}'s limit of {}", job.depth, info.depth_max),
        ));
    }
    Ok(())
}

fn region(job: &Job, name: &str, device: &dyn BlockDevice) -> Result<Region> {
    let device_bytes = device.size_bytes();
    let (unit, max) = used_sizes(job);
    let unit = u64::from(unit);
    let bytes = |extent: Extent| match extent {
        Extent::Bytes(bytes) => bytes,
        Extent::Percent(percent) => {
            (u128::from(device_bytes) * u128::from(percent) / 100) as u64 / unit * unit
        }
    };
    let begin_bytes = bytes(job.offset);
    let len_bytes = match job.size {
        Some(extent) => bytes(extent),
        None => device_bytes.saturating_sub(begin_bytes),
    };
    let end = begin_bytes.checked_add(len_bytes);
    if end.is_none_or(|end| end > device_bytes) {
        // Only files of a file system can be created.
        let is_made = |target: &Target| {
            matches!(&target.spec, DeviceSpec::File(path) if path.is_file())
                && target.spec.to_string() == name
        };
        let hint = match job.targets.iter().any(is_made) {
            true => "ask for less (size=), or remove the file to have it made anew",
            false => "ask for less (size=, offset=)",
        };
        return Err(invalid(
            job,
            format!(
                "{name} has {}, less than the {} asked for",
                format_bytes(device_bytes),
                end.map_or_else(|| "endless".to_owned(), format_bytes)
            ),
        )
        .hint(hint));
    }
    let block = u64::from(device.info().logical_block_bytes);
    if begin_bytes % block != 0 {
        return Err(invalid(
            job,
            format!("offset {begin_bytes} is not a multiple of {name}'s logical block of {block}"),
        ));
    }
    let len_bytes = len_bytes / unit * unit;
    if len_bytes < u64::from(max) {
        return Err(invalid(
            job,
            format!(
                "requests of {} do not fit into the {} of {name} that are used",
                format_bytes(max.into()),
                format_bytes(len_bytes)
            ),
        ));
    }
    Ok(Region { begin_bytes, len_bytes })
}

/// Asks the kernel to drop its cache of a file. Errors of opening are ignored here: the caller
/// opens the device next, and reports them.
fn drop_cache(path: &Path) {
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.sync_all();
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}
