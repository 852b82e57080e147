//! The results of a run.

use std::ops::Deref;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use qpair_block::DeviceInfo;

use crate::job::{Direction, Job};

/// A histogram of latencies in nanoseconds, with three significant digits. It allocates memory when
/// the first latency is recorded: a job uses a few of the dozen in its report, and there may be
/// hundreds of jobs.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Option<Box<Histogram<u64>>>);

static NONE: LazyLock<Histogram<u64>> = LazyLock::new(empty);

fn empty() -> Histogram<u64> {
    Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are a precision that exists"))
}

impl Latencies {
    #[inline]
    pub fn record(&mut self, ns: u64) {
        // The histogram grows as needed, so this cannot fail.
        let _ = self.0.get_or_insert_with(|| Box::new(empty())).record(ns.max(1));
    }

    /// Whether the histogram has allocated memory.
    #[cfg(test)]
    pub(crate) fn is_used(&self) -> bool {
        self.0.is_some()
    }

    pub fn add(&mut self, others: &Self) {
        if let Some(others) = &others.0 {
            // The histogram grows as needed, so this cannot fail.
            let _ = self.0.get_or_insert_with(|| Box::new(empty())).add(&**others);
        }
    }
}

impl Deref for Latencies {
    type Target = Histogram<u64>;

    fn deref(&self) -> &Self::Target {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    pub count: u64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub deviation: f64,
}

impl Spread {
    /// Returns the mean and spread of `values`; all fields are 0 if there are none.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count();
        if count == 0 {
            return Self::default();
        }
        let mean = values.clone().sum::<f64>() / count as f64;
        let squares = values.clone().map(|value| (value - mean).powi(2)).sum::<f64>();
        Self {
            count: count as u64,
            min: values.clone().fold(f64::INFINITY, f64::min),
            max: values.fold(f64::NEG_INFINITY, f64::max),
            mean,
            deviation: (squares / count as f64).sqrt(),
        }
    }
}

/// Requests of one direction: their number, bytes and latencies.
#[derive(Clone, Debug, Default)]
pub struct DirectionReport {
    /// Requests completed without error.
    pub ios: u64,
    pub bytes: u64,
    /// From start to submission.
    pub slat: Latencies,
    /// From submission to completion.
    pub clat: Latencies,
    /// From start, or from the intended start if a rate was set, to completion.
    pub lat: Latencies,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuReport {
    /// Time of the job's own thread in user mode.
    pub user: Duration,
    /// Time of the job's own thread in the kernel.
    pub system: Duration,
    /// Time in user mode of other threads that worked for the job: those of the `posix` interface.
    pub helpers_user: Duration,
    /// Time in the kernel of other threads that worked for the job: those of the `posix` interface,
    /// io_uring's workers and its submission thread.
    pub helpers_system: Duration,
    /// Voluntary context switches of the job's thread and its helpers: a thread slept.
    pub switches_voluntary: u64,
    /// Involuntary context switches: another thread got the processor.
    pub switches_involuntary: u64,
    /// Page faults that needed the device.
    pub faults_major: u64,
    /// Page faults that did not.
    pub faults_minor: u64,
    /// The number of system calls of the job's channels.
    pub system_calls: u64,
    /// The number of instructions of the job's thread; `None` if the machine does not count them.
    pub instructions: Option<u64>,
    /// The number of cycles of the job's thread; `None` if the machine does not count them.
    pub cycles: Option<u64>,
    /// The number of references to the last cache of the job's thread, and of those that missed;
    /// `None` if the machine does not count them.
    pub cache: Option<(u64, u64)>,
}

impl CpuReport {
    #[must_use]
    pub fn own(&self) -> Duration {
        self.user + self.system
    }

    #[must_use]
    pub fn helpers(&self) -> Duration {
        self.helpers_user + self.helpers_system
    }

    #[must_use]
    pub fn all(&self) -> Duration {
        self.own() + self.helpers()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// The end of the sample, from the start of the measurement.
    pub end: Duration,
    pub len: Duration,
    /// Requests, by [`Direction`].
    pub ios: [u64; 3],
    /// Bytes, by [`Direction`].
    pub bytes: [u64; 3],
    /// Sum of the requests' `slat`, nanoseconds, by [`Direction`].
    pub slat_ns_sum: [u64; 3],
    /// Sum of the requests' `clat`, nanoseconds, by [`Direction`].
    pub clat_ns_sum: [u64; 3],
    /// Sum of the requests' `lat`, nanoseconds, by [`Direction`].
    pub lat_ns_sum: [u64; 3],
    /// The longest `lat`, nanoseconds, by [`Direction`].
    pub lat_ns_max: [u64; 3],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSample {
    /// The interval's end, from the start of the measurement.
    pub end: Duration,
    pub direction: Direction,
    /// Length of the last request, bytes.
    pub block_bytes: u32,
    /// Numbers of fio's buckets of `clat`, and the requests in each.
    pub buckets: Vec<(u16, u32)>,
}

/// A block with other content than was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    pub device: String,
    pub offset_bytes: u64,
    pub len_bytes: u32,
    pub what: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub blocks: u64,
    pub wrong: u64,
    /// The first wrong blocks.
    pub errors: Vec<VerifyError>,
}

/// The error that ended a job early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    /// The kernel's error number, or the nearest one.
    pub errno: i32,
    /// A message that says what failed, on what, and how to fix it if a fix is known.
    pub what: String,
}

/// Errors that did not end a job, because its [`Tolerance`](crate::Tolerance) lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    pub count: u64,
    pub first: Option<JobError>,
}

/// Incidents on a job's devices that do not show in its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incidents {
    /// Number of times that a channel's device was reset, or the connection to it rebuilt.
    pub resets: u64,
    /// The number of sleeps that timed out although completions had arrived, because their
    /// interrupt was missing.
    pub timeouts_polled: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SteadyReport {
    /// Whether the state was steady, which ended the job.
    pub attained: bool,
    /// The measure of the last window: percent of the mean, or requests or bytes per second.
    pub criterion: f64,
    /// The largest deviation from the mean; 0 if the slope is judged.
    pub max_deviation: f64,
    /// The slope from one value to the next; 0 if the deviation is judged.
    pub slope: f64,
    /// The requests per second of the last window, the oldest first.
    pub ios: Vec<u64>,
    /// The bytes per second of the last window, the oldest first.
    pub bytes: Vec<u64>,
}

#[derive(Clone, Debug)]
pub struct JobReport {
    pub job: Job,
    /// The job's devices as they were opened, with the interface and mode that were really used.
    pub devices: Vec<DeviceInfo>,
    pub error: Option<JobError>,
    /// The beginning of the measurement, from the beginning of the run.
    pub begin: Duration,
    /// The measured time, without the ramp.
    pub elapsed: Duration,
    /// Whether the job ended before its ramp was over, so that nothing was measured.
    pub in_ramp: bool,
    /// Results by [`Direction`].
    pub directions: [DirectionReport; 3],
    pub flushes: DirectionReport,
    pub cpu: CpuReport,
    /// Requests in flight after each submission, in classes: 1, 2, 4, 8, 16, 32, 64 and more.
    pub depth_classes: [u64; 7],
    /// Requests per submission, in classes: 0, up to 4, 8, 16, 32, 64, more.
    pub submit_classes: [u64; 7],
    /// Completions taken at once, in the same classes.
    pub complete_classes: [u64; 7],
    pub verify: VerifyReport,
    pub passed: Passed,
    /// Incidents from the job's start to its end, including its ramp and its verification.
    pub incidents: Incidents,
    /// The depth found by the search for [`Job::latency_target`].
    pub depth_found: Option<u32>,
    pub steady: Option<SteadyReport>,
    /// The time series, in samples of [`Job::sample`].
    pub series: Vec<Sample>,
    pub histograms: Vec<HistogramSample>,
    /// The longest delay of a request against its planned start, where a rate was set.
    pub late_max: Duration,
}

impl JobReport {
    #[must_use]
    pub fn direction(&self, direction: Direction) -> &DirectionReport {
        &self.directions[direction as usize]
    }

    #[must_use]
    pub fn ios(&self) -> u64 {
        self.directions.iter().map(|direction| direction.ios).sum()
    }

    #[must_use]
    pub fn ios_per_s(&self) -> f64 {
        self.ios() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        let bytes: u64 = self.directions.iter().map(|direction| direction.bytes).sum();
        bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the processor time per request in microseconds: user and kernel, with helpers.
    #[must_use]
    pub fn cpu_us_per_io(&self) -> f64 {
        self.cpu.all().as_secs_f64() * 1e6 / self.ios().max(1) as f64
    }

    #[must_use]
    pub fn system_calls_per_io(&self) -> f64 {
        self.cpu.system_calls as f64 / self.ios().max(1) as f64
    }

    /// Returns mean and spread of the series' bandwidth in one direction, bytes per second.
    #[must_use]
    pub fn bandwidth(&self, direction: Direction) -> Spread {
        let at = direction as usize;
        Spread::of(self.series.iter().map(|s| s.bytes[at] as f64 / s.len.as_secs_f64().max(1e-9)))
    }

    /// Returns mean and spread of the series' requests per second in one direction.
    #[must_use]
    pub fn iops(&self, direction: Direction) -> Spread {
        let at = direction as usize;
        Spread::of(self.series.iter().map(|s| s.ios[at] as f64 / s.len.as_secs_f64().max(1e-9)))
    }
}

/// Activity of a disk during a run, by all processes of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskReport {
    /// The kernel's name of the disk.
    pub name: String,
    pub read_ios: u64,
    pub write_ios: u64,
    /// The number of reads that were merged with others.
    pub read_merges: u64,
    pub write_merges: u64,
    /// The sum of the durations of all reads, in milliseconds.
    pub read_ms: u64,
    /// The sum of the durations of all writes, in milliseconds.
    pub write_ms: u64,
    /// The sum of the durations of all requests in flight, in milliseconds.
    pub queue_ms: u64,
    /// The percentage of the time in which the disk had requests.
    pub busy_percent: f64,
}

#[derive(Clone, Debug)]
pub struct RunReport {
    pub begun: SystemTime,
    /// Time since the run began, in a report of a run that is not over; `None` when the run is
    /// over.
    pub so_far: Option<Duration>,
    /// One report for each job, in the order of the jobs.
    pub jobs: Vec<JobReport>,
    /// A hash of the jobs' configuration. Runs of the same jobs have the same hash.
    pub config_hash: String,
    pub machine: serde_json::Value,
    pub disks: Vec<DiskReport>,
    /// Notes for people: the mode that `auto` chose, files that were created.
    pub notes: Vec<String>,
    /// Whether the observer stopped the run.
    pub interrupted: bool,
}
