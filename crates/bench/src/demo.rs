//! The demo: a store ten times larger than its memory, over every interface of this machine.

use std::fs::File;
use std::path::{Path, PathBuf};

use qpair::{Error, ErrorKind, Interface, Result};
use qpair_drivers::Drivers;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::device::{Ceiling, CeilingOptions, ceiling};
use crate::progress::{Progress, interrupted};
use crate::records::STORE_BYTES_PER_RECORD;
use crate::report::kernel_release;
use crate::workload::{Report, RunOptions, Workload, open_filled, run};

#[derive(Clone, Debug, Serialize)]
pub struct DemoOptions {
    /// The folder in which the store is created and removed.
    pub dir: PathBuf,
    /// The size of the store in bytes.
    pub size_bytes: u64,
    /// Memory for pages in bytes.
    pub memory_bytes: u64,
    /// Seconds of lookups over each interface.
    pub seconds: f64,
    /// The number of workers; 0: one for each core.
    pub workers: usize,
    /// The number of tasks of each worker.
    pub tasks: usize,
}

impl Default for DemoOptions {
    fn default() -> Self {
        let size_bytes = 2 << 30;
        Self {
            dir: ".".into(),
            size_bytes,
            memory_bytes: size_bytes / 10,
            seconds: 15.0,
            workers: 0,
            tasks: 128,
        }
    }
}

/// The result of one interface, or the reason why the interface cannot be used here.
#[derive(Clone, Debug, Serialize)]
pub struct DemoRow {
    /// The requested interface.
    pub interface: String,
    /// The reason why the interface cannot be used here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The results of the lookups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// Random reads per second of the device alone: the mean of a measurement right before and one
    /// right after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_reads_per_s: Option<f64>,
}

impl DemoRow {
    fn of(interface: &str, outcome: std::result::Result<Report, String>) -> Self {
        let interface = interface.to_owned();
        let (report, unavailable) = match outcome {
            Ok(report) => (Some(report), None),
            Err(why) => (None, Some(why)),
        };
        Self { interface, unavailable, report, ceiling_reads_per_s: None }
    }

    /// Returns the store's reads per second as a share of those of the device alone.
    #[must_use]
    pub fn share_of_ceiling(&self) -> Option<f64> {
        Some(self.report.as_ref()?.device_reads_per_s / self.ceiling_reads_per_s?)
    }
}

/// The results of the demo.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    /// The release of the kernel.
    pub kernel: String,
    /// The number of records in the store.
    pub records: u64,
    /// The size of the store's pages in bytes.
    pub store_bytes: u64,
    /// Memory for pages in bytes.
    pub memory_bytes: u64,
    /// Records per second of the sorted load.
    pub fill_records_per_s: f64,
    /// The fastest configuration found to read the bare file, in words.
    pub ceiling: String,
    /// The results of all interfaces.
    pub rows: Vec<DemoRow>,
    /// The results of a smaller store over the user-space driver, on a soft drive in memory and not
    /// on this machine's drive.
    pub user_space: DemoRow,
    /// The recommended interface, with the reason, in a sentence.
    pub verdict: String,
}

/// The store's folder. It is removed when this is dropped, or, if the process is killed, when the
/// next one is created beside it.
struct Workplace {
    dir: PathBuf,
    /// The locked folder. The lock marks it as in use.
    _lock: File,
}

/// The prefix of the names of folders.
const FOLDER: &str = "qpair-demo-";

/// The name of the store's file.
const STORE: &str = "store.qpair";

/// Removes the folders of killed demos: those that no process has locked and that contain only a
/// store and its companion files.
fn remove_left(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| {
            name.strip_prefix(FOLDER).is_some_and(|pid| pid.parse::<u32>().is_ok())
        });
        let has_store_only = || {
            let mut files = std::fs::read_dir(entry.path()).into_iter().flatten().flatten();
            files.all(|file| file.file_name().to_string_lossy().starts_with(STORE))
        };
        // A folder that cannot be opened or removed is left in place: the demo does not need it
        // gone.
        if is_ours
            && has_store_only()
            && let Ok(dir) = File::open(entry.path())
            && flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Workplace {
    fn make(parent: &Path) -> Result<Self> {
        remove_left(parent);
        let dir = parent.join(format!("{FOLDER}{}", std::process::id()));
        let make = || -> std::io::Result<File> {
            std::fs::create_dir(&dir)?;
            let lock = File::open(&dir)?;
            flock(&lock, FlockOperation::LockExclusive)?;
            Ok(lock)
        };
        let lock = make().map_err(|error| {
            Error::with_hint(
                ErrorKind::Denied,
                format!("creating the folder {}: {error}", dir.display()),
                "name a folder that exists and can be written: --dir",
            )
        })?;
        Ok(Self { dir, _lock: lock })
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // Nothing else is in the folder. If it cannot be removed, there is no caller to report that
        // to.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Returns an error if the disk has too little space.
fn check_space(options: &DemoOptions) -> Result<()> {
    let space = rustix::fs::statvfs(&options.dir).map_err(|error| {
        let context = format!("reading the state of {}: {error}", options.dir.display());
        Error::with_hint(ErrorKind::NotFound, context, "name a folder that exists: --dir")
    })?;
    let free = space.f_bavail * space.f_frsize;
    let needed = options.size_bytes + options.size_bytes / 8 + (64 << 20);
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    if free >= needed {
        return Ok(());
    }
    let (dir, free, needed) = (options.dir.display(), gib(free), gib(needed));
    Err(Error::with_hint(
        ErrorKind::NoSpace,
        format!("{dir} has {free:.1} GiB free, the demo needs {needed:.1} GiB"),
        "choose another folder with --dir, or a smaller store with --size",
    ))
}

/// Runs the demo.
///
/// # Errors
/// `NoSpace` if the disk has too little space, `Invalid` for sizes that make no sense, and errors
/// of the store. The folder is always removed.
pub fn demo(options: &DemoOptions, progress: &dyn Progress) -> Result<DemoReport> {
    let records = options.size_bytes / STORE_BYTES_PER_RECORD;
    if records < 1000 || options.seconds <= 0.0 || options.tasks == 0 {
        return Err(Error::new(
            ErrorKind::Invalid,
            "the demo needs a store of at least 1 MiB, at least one task and a time of more than 0 seconds",
        ));
    }
    check_space(options)?;
    let place = Workplace::make(&options.dir)?;
    let path = place.dir.join(STORE);
    let available = qpair_kernel::probe();
    let first =
        available.iter().find(|(_, outcome)| outcome.is_ok()).map(|(interface, _)| *interface);
    let Some(first) = first else {
        return Err(Error::new(ErrorKind::Unsupported, "no interface to files works here"));
    };
    let run_options = RunOptions {
        store: path.clone(),
        records,
        memory_bytes: options.memory_bytes,
        io: first.into(),
        workers: options.workers,
        tasks: options.tasks,
        seconds: options.seconds,
        warm_up_seconds: options.seconds.min(3.0),
        ..RunOptions::default()
    };
    let (kv, filled) = open_filled(Workload::Lookup, &run_options, progress)?;
    progress.begin("closing", 1);
    kv.close()?;
    progress.end();
    let best = find_ceiling(&path, &available, options.seconds, progress)?;
    let mut rows = Vec::new();
    for (interface, outcome) in &available {
        let name = interface.to_string();
        rows.push(match outcome {
            Err(error) => DemoRow::of(&name, Err(error.to_string())),
            Ok(()) => {
                let options = RunOptions { io: (*interface).into(), ..run_options.clone() };
                let before = best.again(options.seconds, progress)?;
                let report = run(Workload::Lookup, &options, progress)?;
                let after = best.again(options.seconds, progress)?;
                let ceiling_reads_per_s = Some((before + after) / 2.0);
                DemoRow { ceiling_reads_per_s, ..DemoRow::of(&name, Ok(report)) }
            }
        });
    }
    let user_space = user_space(&run_options, progress)?;
    let store_bytes =
        rows.iter().find_map(|row| row.report.as_ref()).map_or(0, |report| report.store_bytes);
    Ok(DemoReport {
        kernel: kernel_release(),
        records,
        store_bytes,
        memory_bytes: options.memory_bytes,
        fill_records_per_s: filled.unwrap_or_default(),
        ceiling: best.describe(),
        verdict: verdict(&rows),
        rows,
        user_space,
    })
}

/// The most memory that the soft drive of the demo takes, in bytes.
const SOFT_DRIVE_BYTES_MAX: u64 = 512 << 20;

/// Runs the same lookups over the user-space driver, with a store of the same shape that fits on a
/// soft drive.
fn user_space(options: &RunOptions, progress: &dyn Progress) -> Result<DemoRow> {
    let store_bytes = options.records * STORE_BYTES_PER_RECORD;
    let share = (SOFT_DRIVE_BYTES_MAX as f64 / store_bytes as f64).min(1.0);
    // The drive has room for pages that are written twice.
    let drive_mib = ((store_bytes as f64 * share * 1.5) as u64 >> 20) + 64;
    let options = RunOptions {
        store: format!("softnvme:size={drive_mib}MiB").into(),
        records: (options.records as f64 * share) as u64,
        memory_bytes: (options.memory_bytes as f64 * share) as u64,
        ..options.clone()
    };
    match run(Workload::Lookup, &options, progress) {
        Ok(report) => Ok(DemoRow::of("nvme", Ok(report))),
        // A machine with little memory has no soft drive.
        Err(error) if error.kind() == ErrorKind::NoSpace => {
            Ok(DemoRow::of("nvme", Err(error.to_string())))
        }
        Err(error) => Err(error),
    }
}

/// The fastest configuration to read the bare file.
struct Best {
    options: CeilingOptions,
    ceiling: Ceiling,
}

impl Best {
    /// Measures the configuration again, so that every interface has its own pair of measurements.
    fn again(&self, seconds: f64, progress: &dyn Progress) -> Result<f64> {
        let options = CeilingOptions { seconds: (seconds / 6.0).min(2.0), ..self.options.clone() };
        Ok(ceiling(&options, progress)?.reads_per_s)
    }

    fn describe(&self) -> String {
        format!(
            "{} with {} thread{} and {} requests in flight each",
            self.options.io,
            self.ceiling.threads,
            if self.ceiling.threads == 1 { "" } else { "s" },
            self.ceiling.depth
        )
    }
}

fn find_ceiling(
    path: &Path,
    available: &[(Interface, qpair_block::Result<()>)],
    seconds: f64,
    progress: &dyn Progress,
) -> Result<Best> {
    let mut best: Option<Best> = None;
    // Synchronous calls are never the ceiling of a device, so they are tried only if there is no
    // other interface.
    let asynchronous = |interface: &Interface| *interface != Interface::Posix;
    let some =
        available.iter().any(|(interface, outcome)| outcome.is_ok() && asynchronous(interface));
    for (interface, outcome) in available {
        if outcome.is_err() || (some && !asynchronous(interface)) {
            continue;
        }
        let options = CeilingOptions {
            path: path.to_owned(),
            drivers: Drivers::new(),
            io: (*interface).into(),
            block_bytes: 4096,
            buffered: false,
            seconds: (seconds / 20.0).min(0.6),
            threads: vec![1, 2],
            depths: vec![32, 128, 256],
        };
        let found = ceiling(&options, progress)?;
        if best.as_ref().is_none_or(|best| best.ceiling.reads_per_s < found.reads_per_s) {
            let options = CeilingOptions {
                threads: vec![found.threads],
                depths: vec![found.depth],
                ..options
            };
            best = Some(Best { options, ceiling: found });
        }
    }
    best.ok_or_else(interrupted)
}

/// Recommends an interface, with the reason, in a sentence. Among the interfaces within 5 % of the
/// fastest it is the one that uses least processor time.
fn verdict(rows: &[DemoRow]) -> String {
    let ran: Vec<_> = rows.iter().filter_map(|row| Some((row, row.report.as_ref()?))).collect();
    let fastest = ran.iter().map(|(_, report)| report.ops_per_s).fold(0.0, f64::max);
    let near = ran.iter().filter(|(_, report)| report.ops_per_s >= 0.95 * fastest);
    let Some(&(choice, report)) =
        near.min_by(|(_, a), (_, b)| a.cpu_us_per_op.total_cmp(&b.cpu_us_per_op))
    else {
        return "No interface could be used here.".to_owned();
    };
    let others = ran.iter().filter(|(row, _)| row.interface != choice.interface);
    let others = others.map(|(row, other)| {
        let share = 100.0 * other.ops_per_s / report.ops_per_s;
        let (name, us) = (&row.interface, other.cpu_us_per_op);
        format!("{name} {share:.0} % of its lookups at {us:.1} us")
    });
    let others: Vec<String> = others.collect();
    let share = choice.share_of_ceiling().map_or(String::new(), |share| {
        format!(", {:.0} % of what the device alone gave", 100.0 * share)
    });
    let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    format!(
        "Use {} here: {:.1} K lookups/s{share}, at {:.1} us of processor time each{others}.",
        choice.interface,
        report.ops_per_s / 1000.0,
        report.cpu_us_per_op
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn a_small_demo_runs_and_leaves_nothing() {
        let dir = std::env::temp_dir().join(format!("qpair-demo-test-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        // Two killed demos left a store or an empty folder, another demo is running, and one folder
        // belongs to another program.
        let others = ["1", "2", "3", "4", "x"].map(|pid| dir.join(format!("qpair-demo-{pid}")));
        others.iter().for_each(|other| std::fs::create_dir(other).unwrap());
        for other in [0, 2, 4] {
            std::fs::write(others[other].join("store.qpair"), "x").unwrap();
        }
        std::fs::write(others[3].join("notes"), "x").unwrap();
        let running = File::open(&others[2]).unwrap();
        flock(&running, FlockOperation::LockExclusive).unwrap();
        let options = DemoOptions {
            dir: dir.clone(),
            size_bytes: 8 << 20,
            memory_bytes: 1 << 20,
            seconds: 0.2,
            workers: 2,
            tasks: 8,
        };
        let report = demo(&options, &Silent).unwrap();
        assert!(
            report.rows.iter().any(|row| row.report.as_ref().is_some_and(|report| report.ops > 0)),
            "{report:?}"
        );
        assert!(report.verdict.starts_with("Use "), "{}", report.verdict);
        assert_eq!(others.each_ref().map(|dir| dir.exists()), [false, false, true, true, true]);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 3);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_full_disk_is_refused_politely() {
        let options = DemoOptions {
            size_bytes: 1 << 60,
            dir: std::env::temp_dir(),
            ..DemoOptions::default()
        };
        let error = demo(&options, &Silent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.way_out().is_some());
    }
}
