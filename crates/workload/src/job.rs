//! A job: one thread's work on its devices, every option settled.
//!
//! The command line and job files are parsed into [`Job`]s. Nothing in this module knows the option
//! names that people used, except [`Job::options`], which repeats them for reports.
//!
//! Long, because a job has one field for each option.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::DeviceSpec;
use qpair_kernel::Mode;

use crate::iolog::Entry;

/// The direction of a request, and the index into arrays that have separate entries for reads,
/// writes and trims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    Read,
    Write,
    /// No data is transferred: the device learns that a range is no longer needed.
    Trim,
}

impl Direction {
    /// All directions, in the order of their indices.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Trim];

    /// Returns the name that fio's reports use: `read`, `write` or `trim`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    Read,
    Write,
    Trim,
    /// Each block is trimmed, and written once its trim has completed.
    TrimWrite,
    Mixed {
        read_percent: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Offsets follow each other, and begin again at the end of the region.
    Sequential,
    /// Offsets are drawn from a [`Distribution`].
    Random,
}

/// The distribution of random requests over the blocks of a region.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    Uniform,
    /// Zipf's distribution, with an exponent other than 1.
    Zipf {
        theta: f64,
    },
    Pareto {
        /// The power, above 0 and below 1.
        h: f64,
    },
    Normal {
        deviation_percent: f64,
    },
    /// Zones that follow each other; within a zone all blocks are equally likely.
    Zoned(Vec<Zone>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    pub access_percent: u8,
    /// Length of the zone, in bytes or in percent of the region.
    pub size: Extent,
}

/// Deviations from plain sequential or random order: gaps, and runs of requests between random
/// places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Bytes to skip after each sequential request. A negative number goes backwards, counted from
    /// the end of the request.
    pub skip_bytes: i64,
    /// In random order, only the first of this many requests goes to a random place. 0 means 1.
    pub random_every: u32,
    /// The requests between two random places repeat the range of the previous request instead of
    /// following it.
    pub repeat: bool,
}

/// Parts of a region that a job uses one after the other, moving a number of bytes in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// Bytes to move in a part before the job continues with the next one.
    pub move_bytes: u64,
    pub part_bytes: u64,
    pub skip_bytes: u64,
}

/// A job's share in a flow: a set of jobs whose numbers of requests are in proportion to their
/// weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowShare {
    pub weight: u32,
    pub flow: u32,
    /// Pause before the job checks again whether it may submit a request.
    pub pause: Duration,
}

/// A latency for which a job searches the largest depth that keeps it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyGoal {
    pub latency: Duration,
    pub window: Duration,
    /// Percentage of the requests that must have at most this latency.
    pub percent: f64,
    /// Whether the search continues until the job's time is over, even after a depth is found.
    pub goes_on: bool,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Replay {
    pub log: PathBuf,
    /// The log's requests. Each refers to its file by an index into [`Job::targets`].
    pub entries: Arc<[Entry]>,
    /// Whether requests are submitted at the log's times. Otherwise each is submitted as soon as
    /// there is room.
    pub is_paced: bool,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The entries are omitted, because a log may have millions of requests.
        f.debug_struct("Replay")
            .field("log", &self.log)
            .field("entries", &self.entries.len())
            .field("is_paced", &self.is_paced)
            .finish()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramLog {
    pub prefix: PathBuf,
    pub every: Duration,
    /// Log2 of the number of neighbouring buckets that are joined into one.
    pub coarseness: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteadyOf {
    Iops,
    /// Bytes per second.
    Bandwidth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steadiness {
    /// The largest deviation of a value from the mean.
    Deviation,
    /// The slope of the line that fits the values best, from one value to the next.
    Slope,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyGoal {
    pub of: SteadyOf,
    pub by: Steadiness,
    /// The measure must be below this limit: percent of the mean, or requests or bytes per second.
    pub limit: f64,
    /// Whether the limit is in percent of the mean.
    pub percent: bool,
    pub window: Duration,
    /// The time before the first value is taken.
    pub ramp: Duration,
    pub interval: Duration,
}

impl SteadyGoal {
    /// Returns the criterion under fio's name, such as `iops_slope`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match (self.of, self.by) {
            (SteadyOf::Iops, Steadiness::Deviation) => "iops",
            (SteadyOf::Iops, Steadiness::Slope) => "iops_slope",
            (SteadyOf::Bandwidth, Steadiness::Deviation) => "bw",
            (SteadyOf::Bandwidth, Steadiness::Slope) => "bw_slope",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndsWith {
    Group,
    /// All jobs of the same stage; the next stage begins.
    Stage,
    /// All jobs, including those that have not begun.
    All,
}

/// Errors that do not end a job, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    pub read: Vec<i32>,
    /// Errors of writes, trims and flushes.
    pub write: Vec<i32>,
    /// Whether the job continues after a block fails verification, even with [`Verify::fatal`].
    pub wrong_blocks: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockSizes {
    /// All requests have this many bytes.
    Fixed(u32),
    /// Sizes are between the two numbers of bytes, in multiples of the first.
    Range(u32, u32),
    /// Sizes in bytes, each with the percentage of the requests that have it.
    Split(Vec<(u32, u8)>),
}

impl BlockSizes {
    /// Returns the smallest size in bytes. Offsets are multiples of it.
    #[must_use]
    pub fn min(&self) -> u32 {
        match self {
            Self::Fixed(bytes) | Self::Range(bytes, _) => *bytes,
            Self::Split(parts) => parts.iter().map(|part| part.0).min().unwrap_or(0),
        }
    }

    #[must_use]
    pub fn max(&self) -> u32 {
        match self {
            Self::Fixed(bytes) | Self::Range(_, bytes) => *bytes,
            Self::Split(parts) => parts.iter().map(|part| part.0).max().unwrap_or(0),
        }
    }
}

/// An amount of bytes, absolute or relative to a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Bytes(u64),
    /// Percent of the device's size.
    Percent(u8),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub spec: DeviceSpec,
    /// Size of the file to create if it does not exist, in bytes; it is filled where it will be
    /// read. `None`: the file must exist.
    pub create_bytes: Option<u64>,
    /// Whether the file is created sparse: it gets space and content only as it is written.
    pub sparse: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetOrder {
    RoundRobin,
    Random,
    /// Each target is used until it is finished, and then the next one.
    Sequential,
}

/// The start times of requests whose rate is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateProcess {
    Linear,
    /// Requests start like independent arrivals: intervals are exponentially distributed.
    Poisson,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second; 0: no limit.
    pub ios_per_s: u64,
    /// Bytes per second; 0: no limit.
    pub bytes_per_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The queue is kept full: each completed request is replaced, as in fio.
    Full,
    /// As many requests as the depth are submitted, and then all of them are awaited: S4's
    /// *normal*.
    Barrier,
    /// As [`Form::Barrier`], reported second by second: S4's *stress*.
    Stress,
    /// Separate threads pass requests to the job's thread, each with a minimum interval between
    /// two: S4's *msg*.
    Messages { interval: Duration, producers: u32 },
}

/// The content of written blocks, by which a read verifies them: a header with offset, seed and
/// sequence, and, where a checksum is named, the checksum of header and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyMethod {
    Crc32c,
    /// CRC-32 (ISO-HDLC).
    Crc32,
    /// CRC-64/NVME.
    Crc64,
    XxHash,
    Md5,
    Sha1,
    Sha256,
    Sha512,
    Sha3_224,
    Sha3_256,
    Sha3_384,
    Sha3_512,
    Meta,
    Pattern,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Verify {
    pub method: VerifyMethod,
    /// Bytes of [`VerifyMethod::Pattern`], repeated.
    pub pattern: Vec<u8>,
    /// Length of a chunk with its own header, in bytes; 0: the whole request is one chunk.
    pub interval_bytes: u32,
    /// Whether everything that was written is read and checked at the end of a job that writes.
    pub after: bool,
    /// Whether nothing is written, and the job only checks what an earlier run of it wrote.
    pub only: bool,
    pub fatal: bool,
    /// Number of written requests after which they are read and checked, while the job continues to
    /// write; 0: nothing is checked before the end.
    pub backlog: u32,
    /// Requests of the backlog that are read back at a time; 0: all.
    pub backlog_batch: u32,
    /// Whether the content of each wrong block and its expected content are written to files in the
    /// working directory.
    pub dump: bool,
}

/// The content of written buffers that are not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Random bytes, generated once, with a mark in each 512 of them that no other write has.
    Unique,
    /// Random bytes, generated once.
    Random,
    /// Random bytes, generated anew for every write.
    Refill,
    Zeroes,
    Pattern(Vec<u8>),
    Shaped(Shape),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Percentage of each chunk that is fixed. The fixed part follows random bytes.
    pub compress_percent: u8,
    /// The length of a chunk in bytes; 0: the whole request.
    pub chunk_bytes: u32,
    /// Bytes of the fixed part, repeated.
    pub fixed: Vec<u8>,
    /// Percentage of the writes that repeat the content of the previous write.
    pub dedupe_percent: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuPolicy {
    Shared,
    Split,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// From start to submission.
    pub slat: bool,
    /// From submission to completion.
    pub clat: bool,
    /// From start (or intended start) to completion.
    pub lat: bool,
}

/// One thread's work.
#[derive(Clone, Debug)]
pub struct Job {
    pub name: String,
    pub description: Option<String>,
    /// The options given to this job, under fio's names.
    pub options: Vec<(String, String)>,
    /// The options given to all jobs before this one, under fio's names.
    pub options_of_all: Vec<(String, String)>,
    /// The stage of the job. Jobs of a stage run together; a stage begins when the one before is
    /// over.
    pub stage: u32,
    /// The group of the job. Jobs of a group are reported together if [`Job::group_reporting`] says
    /// so.
    pub group: u32,
    pub group_reporting: bool,
    /// Number of this job among the clones of its section, from 0.
    pub clone: u32,

    pub targets: Vec<Target>,
    pub target_order: TargetOrder,
    pub mode: Mode,
    /// The interface as the user called it: `io_uring`, `psync`.
    pub engine: String,
    pub direct: bool,
    /// Whether to reject the job if its other settings make it write.
    pub read_only: bool,
    /// Whether to write even to a device that holds a file system or is in use by others.
    pub force: bool,
    /// Whether to drop the device's pages from the page cache before the run. Only used without
    /// [`Job::direct`].
    pub invalidate: bool,

    pub verbs: Verbs,
    pub order: Order,
    /// The sizes of requests, by [`Direction`].
    pub block_sizes: [BlockSizes; 3],
    /// Number of equal pieces of a request, submitted as one vector; 0: requests are not vectored.
    /// A request has this many times its block size.
    pub vector_len: u16,
    pub distribution: Distribution,
    /// Whether, in random order, every block is visited once before any block is visited again.
    pub random_map: bool,
    /// Alignment of random offsets in bytes; 0: the smallest block size.
    pub align_bytes: u32,
    pub steps: Steps,
    /// Parts of the region to use one after the other; `None`: the whole region at once.
    pub stride: Option<Stride>,
    pub seed: u64,
    /// First byte of each target that is used.
    pub offset: Extent,
    /// Bytes of each target that are used from there; `None`: all.
    pub size: Option<Extent>,
    /// Total bytes to move; `None`: [`Job::size`] of every target, once.
    pub io_size: Option<u64>,
    /// Total requests to make; `None`: no limit but the bytes.
    pub number_ios: Option<u64>,
    /// Whether running out of space ends the job without an error (fio's `fill_device`).
    pub until_full: bool,
    pub loops: u32,

    pub runtime: Option<Duration>,
    /// Whether the job is repeated until [`Job::runtime`] is over.
    pub time_based: bool,
    /// Time to run before the measurement begins.
    pub ramp: Duration,
    pub start_delay: Duration,
    /// Waits for all earlier jobs of this name before [`Job::start_delay`] begins.
    pub wait_for: Option<String>,
    /// Jobs that end when this job ends; `None`: no others.
    pub ends: Option<EndsWith>,
    /// Whether an error that ends this job ends all jobs.
    pub error_ends_all: bool,
    pub tolerance: Tolerance,
    /// Rate limits, by [`Direction`].
    pub rate: [Rate; 3],
    /// The lowest rates, by [`Direction`]: a job that does less for [`Job::rate_cycle`] fails.
    pub rate_min: [Rate; 3],
    /// Length of the intervals over which [`Job::rate_min`] is checked.
    pub rate_cycle: Duration,
    pub flow: Option<FlowShare>,
    /// The start times of requests whose rate is limited. Latency counts from the start time,
    /// however late a request is submitted.
    pub rate_process: RateProcess,
    /// Pause after [`Job::think_time_blocks`] requests.
    pub think_time: Duration,
    /// Number of requests between two pauses of [`Job::think_time`].
    pub think_time_blocks: u32,
    /// The part of the pause that is spent computing.
    pub think_time_spin: Duration,

    pub depth: u32,
    /// The maximum number of requests that are submitted in one call.
    pub batch_submit: u32,
    /// The minimum number of completions to wait for at once.
    pub batch_complete_min: u32,
    /// The maximum number of completions to take at once; 0: all that are available.
    pub batch_complete_max: u32,
    /// Whether buffers are in reserved huge pages (`vm.nr_hugepages`). If there are too few, the
    /// job does not begin.
    pub huge_pages: bool,
    /// Searches for the largest depth, up to [`Job::depth`], at which requests are fast enough.
    pub latency_target: Option<LatencyGoal>,
    pub steady: Option<SteadyGoal>,
    pub replay: Option<Replay>,
    pub write_iolog: Option<PathBuf>,
    pub form: Form,

    /// Number of writes after which the job flushes; 0: never.
    pub flush_blocks: u32,
    pub flush_at_end: bool,
    /// Whether every write is durable when it completes (FUA, O_DSYNC).
    pub force_unit_access: bool,
    /// Whether power loss leaves every write either old or new (`RWF_ATOMIC`).
    pub atomic: bool,
    pub verify: Option<Verify>,
    pub content: Content,

    /// Processors that the job may run on; empty: all.
    pub cpus: Vec<usize>,
    /// How clones share [`Job::cpus`].
    pub cpu_policy: CpuPolicy,
    pub measured: Measured,
    pub percentiles: Vec<f64>,
    /// Length of a sample of the time series; `None`: one second.
    pub sample: Option<Duration>,
    /// The files of the time series, by kind (`bw`, `iops`, `lat`): the prefixes of fio's
    /// `write_bw_log` and similar options.
    pub logs: Vec<(String, PathBuf)>,
    /// Whether the lines of [`Job::logs`] have a column for offsets, which is always 0.
    pub log_offset: bool,
    pub histogram_log: Option<HistogramLog>,
}

impl Job {
    /// Returns a job of 4 KiB random reads at depth 1 that reads all of one device once.
    #[must_use]
    pub fn new(name: impl Into<String>, spec: DeviceSpec, mode: Mode) -> Self {
        Self {
            name: name.into(),
            description: None,
            options: Vec::new(),
            options_of_all: Vec::new(),
            stage: 0,
            group: 0,
            group_reporting: false,
            clone: 0,
            targets: vec![Target { spec, create_bytes: None, sparse: false }],
            target_order: TargetOrder::RoundRobin,
            mode,
            engine: mode.short_name(),
            direct: true,
            read_only: false,
            force: false,
            invalidate: true,
            verbs: Verbs::Read,
            order: Order::Random,
            block_sizes: [const { BlockSizes::Fixed(4096) }; 3],
            vector_len: 0,
            distribution: Distribution::Uniform,
            random_map: true,
            align_bytes: 0,
            steps: Steps::default(),
            stride: None,
            seed: 0x5eed,
            offset: Extent::Bytes(0),
            size: None,
            io_size: None,
            number_ios: None,
            until_full: false,
            loops: 1,
            runtime: None,
            time_based: false,
            ramp: Duration::ZERO,
            start_delay: Duration::ZERO,
            wait_for: None,
            ends: None,
            error_ends_all: false,
            tolerance: Tolerance::default(),
            rate: [Rate::default(); 3],
            rate_min: [Rate::default(); 3],
            rate_cycle: Duration::from_secs(1),
            flow: None,
            rate_process: RateProcess::Linear,
            think_time: Duration::ZERO,
            think_time_blocks: 1,
            think_time_spin: Duration::ZERO,
            depth: 1,
            batch_submit: 1,
            batch_complete_min: 1,
            batch_complete_max: 0,
            huge_pages: false,
            latency_target: None,
            steady: None,
            replay: None,
            write_iolog: None,
            form: Form::Full,
            flush_blocks: 0,
            flush_at_end: false,
            force_unit_access: false,
            atomic: false,
            verify: None,
            content: Content::Random,
            cpus: Vec::new(),
            cpu_policy: CpuPolicy::Shared,
            measured: Measured { slat: true, clat: true, lat: true },
            percentiles: PERCENTILES.to_vec(),
            sample: None,
            logs: Vec::new(),
            histogram_log: None,
            log_offset: false,
        }
    }

    /// Returns the value of an option as it was given to this job, or else to all jobs before it.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut given = self.options.iter().rev().chain(self.options_of_all.iter().rev());
        given.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether the job writes or trims. A job that only verifies does not.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.verbs != Verbs::Read && !self.verify.as_ref().is_some_and(|verify| verify.only)
    }
}

/// The percentiles that are reported by default, as in fio.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
