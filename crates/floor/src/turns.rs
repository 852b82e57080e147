//! Runs every load over every way, in turns.
//!
//! Invariants: the ways of a load run directly one after the other, and each round begins with
//! another way. A round of a load counts only if all its ways have run.

use std::path::PathBuf;
use std::time::Duration;

use qpair_block::{DeviceSpec, Error, ErrorKind, Result};
use qpair_drivers::Drivers;
pub use qpair_workload::Watcher;

use crate::lent;
use crate::load::Load;
use crate::own::Own;
use crate::paths::{Ask, Drive, Reach, ramp_of};
use crate::report::{Counts, Point, Report, Turn, Way};
use crate::turn::{Length, part};

/// Options of a floor measurement.
#[derive(Clone, Debug)]
pub struct Options {
    pub drive: Which,
    /// The drivers of this program.
    pub drivers: Drivers,
    pub loads: Vec<Load>,
    /// The length of a turn.
    pub time: Duration,
    /// The number of rounds.
    pub repeat: u32,
    /// The seed of the places.
    pub seed: u64,
    /// Whether loads may write, and so destroy the data on the drive.
    pub allow_writes: bool,
}

/// A drive, and the driver by which it is reached.
#[derive(Clone, Debug)]
pub enum Which {
    /// A drive of this program's own drivers: `nvme:`, `softnvme:` or `scsi:`.
    User(DeviceSpec),
    /// A drive of the kernel's driver. The kernel module, the kernel's driver and, if possible,
    /// this program's driver use it in turns.
    Kernel(KernelDrive),
}

impl Which {
    /// Returns the name of the drive for people.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::User(spec) => spec.to_string(),
            Self::Kernel(drive) => drive.name.clone(),
        }
    }
}

/// A drive that is bound to the kernel's driver.
#[derive(Clone, Debug)]
pub struct KernelDrive {
    /// The address of the drive, or its block device.
    pub name: String,
    /// Whether the kernel module is left out. The floor is then that of this program's driver.
    pub without_module: bool,
    /// The built module; `None`: it is built first.
    pub module: Option<PathBuf>,
    /// The kernel headers to build the module against; `None`: those of the running kernel.
    pub headers: Option<PathBuf>,
}

/// Runs the loads. An interrupted run is reported as far as it got.
///
/// # Errors
/// `Invalid` for a device of another driver, or for writes that are not allowed; `Unsupported` if
/// no load can be run here, or the module cannot be built; `Busy` if something on the drive is in
/// use; errors of the drive and the driver.
pub fn run(options: &Options, watcher: &dyn Watcher) -> Result<Report> {
    let name = options.drive.name();
    if let Some(load) = options.loads.iter().find(|load| load.workload.write)
        && !options.allow_writes
    {
        let context =
            format!("{} would write to {name}, which is not allowed", load.workload.words());
        return Err(Error::new(ErrorKind::Invalid, context)
            .hint("--allow-writes allows it, and destroys what is on the drive"));
    }
    match &options.drive {
        Which::User(spec) => run_user(options, spec, watcher),
        Which::Kernel(drive) => lent::run(options, drive, watcher),
    }
}

fn run_user(options: &Options, spec: &DeviceSpec, watcher: &dyn Watcher) -> Result<Report> {
    let own = Own::open(&options.drivers, spec)?;
    if let (Own::Nvme(device), DeviceSpec::Driven { driver: "softnvme", name }) = (&own, spec) {
        // The stack opens the drive by its name, and must get this one.
        options.drivers.lend_soft(name, device);
    }
    let mode = own.device().info().mode.clone();
    let (seconds, repeat) = (options.time.as_secs_f64(), options.repeat);
    let mut report = Report::new(spec.to_string(), mode, seconds, repeat);
    choose(&mut report, options, &own.limits(), Some(&own), &Way::USER, watcher)?;
    if own.is_in_this_thread(spec) {
        report.notes.push(
            "the drive is software in the thread that polls: its floor is the model's own time"
                .to_owned(),
        );
    }
    let mut drive = Drive { spec: spec.clone(), own, drivers: options.drivers.clone() };
    rounds(options, &mut drive, &mut report, watcher)?;
    report.compare();
    look_for_counts(options, &mut drive, &mut report, watcher)?;
    Ok(report)
}

/// The longest turn in which work is counted.
const COUNTED_MAX: Duration = Duration::from_millis(200);

/// Runs a turn of each load over each way in which the work is counted. All loads of a way run
/// together, so that a drive on loan changes its driver once for each way.
pub(crate) fn look_for_counts(
    options: &Options,
    drive: &mut dyn Reach,
    report: &mut Report,
    watcher: &dyn Watcher,
) -> Result<()> {
    let length = Length { ramp: Duration::ZERO, run: options.time.min(COUNTED_MAX) };
    for (at, way) in report.ways().into_iter().enumerate() {
        for point in &mut report.points {
            let load = point.load;
            let stop = || watcher.stop();
            let ask = Ask { load: &load, length, seed: options.seed, stop: &stop };
            let counts = counts_of(drive, way, ask)?;
            if watcher.stop() {
                report.interrupted = true;
                return Ok(());
            }
            if let Some(turns) = point.ways.get_mut(at) {
                turns.counts = Some(counts);
            }
        }
    }
    Ok(())
}

fn counts_of(drive: &mut dyn Reach, way: Way, ask: Ask<'_>) -> Result<Counts> {
    // After the first turn the drive is with the driver of the way.
    drive.turn(way, ask)?;
    let (root, function) = (qpair_machine::Root::system(), drive.function());
    let interrupts = || qpair_machine::function_interrupts(&root, function.as_deref()?);
    let (interrupts_before, before_ns) = (interrupts(), processor_ns());
    let turn = drive.turn(way, ask)?;
    let taken = interrupts_before.zip(interrupts()).map(|(before, now)| now.saturating_sub(before));
    // A program of its own, or the kernel's module, ran the I/Os of the others.
    let is_own = turn.system_calls.is_some();
    Ok(Counts {
        ios: turn.ios,
        interrupts: taken,
        doorbells: turn.commands_and_doorbells.map(|(_, rung)| rung),
        system_calls: turn.system_calls,
        copied: turn.copied,
        processor_us: is_own.then(|| (processor_ns() - before_ns) as f64 / 1e3),
    })
}

/// Returns the processor time of this program so far.
fn processor_ns() -> i128 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    i128::from(spent.tv_sec) * 1_000_000_000 + i128::from(spent.tv_nsec)
}

/// Runs all rounds. Points without a complete round are left out.
pub(crate) fn rounds(
    options: &Options,
    drive: &mut dyn Reach,
    report: &mut Report,
    watcher: &dyn Watcher,
) -> Result<()> {
    let length = Length { ramp: ramp_of(options.time), run: options.time };
    let ways = report.ways();
    let total = u64::from(options.repeat) * (report.points.len() * ways.len()) as u64;
    let mut done = 0;
    'all: for round in 0..options.repeat {
        for point in &mut report.points {
            let mut turns = vec![Turn::default(); ways.len()];
            for place in 0..ways.len() {
                let at = (place + round as usize) % ways.len();
                let (way, load) = (ways[at], point.load);
                let words = load.workload.words();
                watcher.at(done, total, &format!("{words}, depth {}: {}", load.depth, way.name()));
                let seed = options.seed.wrapping_add(u64::from(round) << 32);
                let turn =
                    drive.turn(way, Ask { load: &load, length, seed, stop: &|| watcher.stop() });
                if watcher.stop() {
                    report.interrupted = true;
                    break 'all;
                }
                turns[at] = turn.map_err(|cause| {
                    let context = format!("{}: {words}, {}", report.device, way.name());
                    Error::new(cause.kind(), context).caused_by(cause)
                })?;
                done += 1;
            }
            point.ways.iter_mut().zip(turns).for_each(|(way, turn)| way.turns.push(turn));
        }
    }
    report.points.retain(|point| point.ways.iter().all(|way| !way.turns.is_empty()));
    Ok(())
}

/// The limits of a drive and its drivers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) block_bytes: u32,
    pub(crate) command_bytes_max: u32,
    pub(crate) queues: u32,
    pub(crate) depth_max: u32,
    /// The maximum number of slots of all jobs together.
    pub(crate) slots_max: u32,
    pub(crate) size_bytes: u64,
}

impl Limits {
    /// Returns the limits that satisfy both drivers.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            block_bytes: self.block_bytes.max(other.block_bytes),
            command_bytes_max: self.command_bytes_max.min(other.command_bytes_max),
            queues: self.queues.min(other.queues),
            depth_max: self.depth_max.min(other.depth_max),
            slots_max: self.slots_max.min(other.slots_max),
            size_bytes: self.size_bytes.min(other.size_bytes),
        }
    }

    /// Returns the reason why a load cannot be run; `None` if it can be.
    fn unfit(&self, load: &Load) -> Option<String> {
        let bytes = load.workload.block_bytes;
        let Self { block_bytes, command_bytes_max, queues, depth_max, slots_max, size_bytes } =
            *self;
        if !bytes.is_multiple_of(block_bytes) {
            return Some(format!("the drive has blocks of {block_bytes} bytes"));
        }
        if bytes > command_bytes_max {
            return Some(format!(
                "one command moves at most {command_bytes_max} bytes (MDTS), so an I/O would be several"
            ));
        }
        if load.jobs > queues {
            return Some(format!("the controller grants {queues} I/O queue pairs"));
        }
        if load.depth > depth_max {
            return Some(format!("its queues take {depth_max} commands"));
        }
        if load.depth.saturating_mul(load.jobs) > slots_max {
            return Some(format!("the controller gives credit for {slots_max} commands"));
        }
        (part(load, 0, size_bytes).1 == 0).then(|| "the drive is too small".to_owned())
    }
}

/// Adds the loads that can be run to the report, and notes which are left out.
pub(crate) fn choose(
    report: &mut Report,
    options: &Options,
    limits: &Limits,
    own: Option<&Own>,
    ways: &[Way],
    watcher: &dyn Watcher,
) -> Result<()> {
    for load in &options.loads {
        match limits.unfit(load).or_else(|| own?.unfit(load)) {
            None => report.points.push(Point::new(*load, ways)),
            Some(why) => {
                let words = load.workload.words();
                let note =
                    format!("{words}, depth {}, {} jobs: left out: {why}", load.depth, load.jobs);
                watcher.note(&note);
                report.notes.push(note);
            }
        }
    }
    if report.points.is_empty() {
        let context =
            format!("{}: nothing can be measured: {}", report.device, report.notes.join("; "));
        return Err(Error::new(ErrorKind::Unsupported, context));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::load::Workload;

    /// A watcher that records the order of turns, and stops after a given number of questions.
    #[derive(Default)]
    struct Watch {
        seen: Mutex<Vec<String>>,
        notes: Mutex<Vec<String>>,
        asked: AtomicU64,
        stop_at: Option<usize>,
    }

    impl Watcher for Watch {
        fn at(&self, _: u64, _: u64, next: &str) {
            self.seen.lock().unwrap().push(next.to_owned());
        }

        fn note(&self, text: &str) {
            self.notes.lock().unwrap().push(text.to_owned());
        }

        fn stop(&self) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.stop_at.is_some_and(|at| self.seen.lock().unwrap().len() >= at)
        }
    }

    fn options(spec: &str, names: &[(&str, u32, u32)]) -> Options {
        let load = |&(name, depth, jobs): &(&str, u32, u32)| Load {
            workload: Workload::named(name).unwrap(),
            depth,
            jobs,
        };
        Options {
            drive: Which::User(DeviceSpec::parse(spec).unwrap()),
            drivers: Drivers::new(),
            loads: names.iter().map(load).collect(),
            time: Duration::from_millis(10),
            repeat: 2,
            seed: 1,
            allow_writes: false,
        }
    }

    #[test]
    fn ways_take_turns_and_doorbells_are_the_commands() {
        let mut options = options(
            "softnvme:size=16MiB",
            &[("randread", 1, 1), ("randwrite", 8, 2), ("read128k", 2, 2)],
        );
        options.allow_writes = true;
        let watch = Watch::default();
        let report = run(&options, &watch).unwrap();
        assert_eq!(report.points.len(), 3);
        for point in &report.points {
            for way in &point.ways {
                assert_eq!(way.turns.len(), 2, "{way:?}");
                assert!(way.turns.iter().all(|turn| turn.ios > 0 && turn.mean_us > 0.0));
                for turn in &way.turns {
                    let counts = turn.commands_and_doorbells;
                    assert_eq!(counts.is_some(), way.way == Way::Floor);
                    if let Some((commands, doorbells)) = counts {
                        assert_eq!(commands, doorbells, "one doorbell an I/O");
                        assert!(commands >= turn.ios, "the ramp counts here");
                    }
                }
                assert_eq!(way.gap.is_some(), way.way != Way::Floor);
            }
        }
        let seen = watch.seen.into_inner().unwrap();
        let firsts = |at: usize| seen[at..at + 3].iter().map(|one| one.rsplit(' ').next().unwrap());
        assert_eq!(firsts(0).collect::<Vec<_>>(), ["floor", "driver", "stack"]);
        assert_eq!(firsts(9).collect::<Vec<_>>(), ["driver", "stack", "floor"]);
    }

    #[test]
    fn a_scsi_disk_has_a_floor_and_counts() {
        let watch = Watch::default();
        let loads = [("randread", 1, 1), ("read128k", 2, 2), ("randread", 1, 30)];
        let spec = "scsi:soft:size=16MiB,queues=4,strict=on/0";
        let report = run(&options(spec, &loads), &watch).unwrap();
        assert_eq!(report.points.len(), 2, "{:?}", report.notes);
        let left_out = watch.notes.into_inner().unwrap().join("\n");
        assert!(left_out.contains("30 jobs: left out"), "{left_out}");
        for point in &report.points {
            assert_eq!(point.ways.iter().map(|way| way.way).collect::<Vec<_>>(), Way::USER);
            for way in &point.ways {
                assert!(way.turns.iter().all(|turn| turn.ios > 0), "{way:?}");
                let counts = way.counts.unwrap();
                assert!(counts.ios > 0 && counts.system_calls == Some(0), "{counts:?}");
                assert_eq!(counts.interrupts, None, "a host of this process has no PCI function");
                match way.way {
                    // Those in flight at the end are commands, and not counted I/Os.
                    Way::Floor => assert!(counts.doorbells.unwrap() >= counts.ios, "{counts:?}"),
                    Way::Driver => assert_eq!(counts.copied, Some(0)),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn nothing_is_written_without_a_word() {
        let options = options("softnvme:size=16MiB", &[("randread", 1, 1), ("randwrite", 1, 1)]);
        let error = run(&options, &Watch::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.way_out().unwrap().contains("--allow-writes"), "{error}");
        // Loads that only read do not change a drive.
        let file = tempfile();
        let spec = format!("softnvme:size=1MiB,medium=file:{}", file.display());
        let loads = [("randread", 4, 1), ("read128k", 1, 1)];
        run(&self::options(&spec, &loads), &Watch::default()).unwrap();
        assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 0));
        let mut writing = self::options(&spec, &[("randwrite", 4, 1)]);
        writing.allow_writes = true;
        run(&writing, &Watch::default()).unwrap();
        assert!(std::fs::read(&file).unwrap().iter().any(|byte| *byte != 0));
        std::fs::remove_file(file).unwrap();
    }

    fn tempfile() -> std::path::PathBuf {
        let name = format!("qpair-floor-{}-{}", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        std::fs::File::create_new(&path).unwrap().set_len(1 << 20).unwrap();
        path
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let watch = Watch::default();
        let options = options(
            "softnvme:size=16MiB,mdts=3,queues=2",
            &[("read128k", 1, 1), ("randread", 1, 3), ("randread", 1, 1), ("randread", 5000, 1)],
        );
        let report = run(&options, &watch).unwrap();
        assert_eq!(report.points.len(), 1);
        let notes = watch.notes.into_inner().unwrap().join("\n");
        for word in ["MDTS", "2 I/O queue pairs", "queues take"] {
            assert!(notes.contains(word), "{notes}");
        }
        let error = run(
            &self::options("softnvme:size=16MiB,mdts=3", &[("read128k", 1, 1)]),
            &Watch::default(),
        );
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
        for spec in ["ram:size=1MiB", "stripe:softnvme:size=1MiB+softnvme:size=1MiB"] {
            let error = run(&self::options(spec, &[("randread", 1, 1)]), &Watch::default());
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid, "{spec}");
        }
    }

    #[test]
    fn jobs_share_a_controller_s_credit() {
        let limits = Limits {
            block_bytes: 512,
            command_bytes_max: 1 << 20,
            queues: 8,
            depth_max: 100,
            slots_max: 100,
            size_bytes: 1 << 30,
        };
        let unfit = |depth, jobs| {
            limits.unfit(&Load { workload: Workload::named("randread").unwrap(), depth, jobs })
        };
        assert_eq!(unfit(50, 2), None);
        assert!(unfit(51, 2).unwrap().contains("credit for 100 commands"));
    }

    #[test]
    fn an_interrupted_run_keeps_whole_rounds() {
        let watch = Watch { stop_at: Some(5), ..Watch::default() };
        let report = run(&options("softnvme:size=16MiB", &[("randread", 1, 1)]), &watch).unwrap();
        assert!(report.interrupted);
        assert!(report.points[0].ways.iter().all(|way| way.turns.len() == 1));
    }

    #[test]
    fn a_drive_that_fails_is_told() {
        let options = options("softnvme:size=16MiB,read_error_rate=1", &[("randread", 1, 1)]);
        let error = run(&options, &Watch::default()).unwrap_err();
        assert!(error.to_string().contains("random read, floor"), "{error}");
    }
}
