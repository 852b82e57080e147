//! A job: one thread's work on its devices, every option settled.
//!
//! The command line and job files are parsed into [`Job`]s. Nothing in this module knows the option
//! names that people used, except [`Job::options`], which repeats them for reports.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::DeviceSpec;
use qpair_kernel::Mode;

use crate::iolog::Entry;

/// The direction of a request, and the index into arrays that keep reads, writes and trims apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
    /// Nothing: the device is told that a range is no longer needed.
    Trim,
}

impl Direction {
    /// All of them, in the order of their indices.
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

/// The kinds of request that a job makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Trims only.
    Trim,
    /// Each block is trimmed, and written once its trim has completed.
    TrimWrite,
    /// Reads and writes, so many of 100 being reads.
    Mixed {
        /// Reads of 100.
        read_percent: u8,
    },
}

/// In which order offsets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other; from the start again at the end.
    Sequential,
    /// By [`Distribution`].
    Random,
}

/// How likely the blocks of a region are.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Zipf's, with exponent theta (not 1).
    Zipf {
        /// Exponent.
        theta: f64,
    },
    /// Pareto's, with power h, 0 < h < 1.
    Pareto {
        /// Power.
        h: f64,
    },
    /// Around the middle, with a deviation in percent of the region.
    Normal {
        /// Deviation, percent.
        deviation_percent: f64,
    },
    /// By zones, one behind the other; within a zone all blocks are alike.
    Zoned(Vec<Zone>),
}

/// A part of a region, and how many requests go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Requests of 100.
    pub access_percent: u8,
    /// Length of the zone, in bytes or in percent of the region.
    pub size: Extent,
}

/// Deviations from plain sequential or random order: gaps, and runs of requests between random
/// places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Bytes that are passed over after each sequential request; below zero: backwards, counted
    /// from its end.
    pub skip_bytes: i64,
    /// In random order, only the first of this many requests goes to a random place. 0 means 1.
    pub random_every: u32,
    /// The requests between two random places repeat the place of the one before instead of
    /// following it.
    pub repeat: bool,
}

/// A job stays in one part of a region until it has moved enough there, and goes on to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stride {
    /// Bytes that are moved before it goes on.
    pub move_bytes: u64,
    /// Length of a part.
    pub part_bytes: u64,
    /// Bytes that are passed over between two parts.
    pub skip_bytes: u64,
}

/// Jobs that share their requests out by weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowShare {
    /// Weight of the job among those of its flow.
    pub weight: u32,
    /// Number of the flow.
    pub flow: u32,
    /// Pause before the job checks again whether it may submit a request.
    pub pause: Duration,
}

/// A latency that a job searches the depth of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyGoal {
    /// The longest.
    pub latency: Duration,
    /// How long each depth is tried.
    pub window: Duration,
    /// Percent of the requests that must be as fast.
    pub percent: f64,
    /// The search goes on when a depth is found.
    pub goes_on: bool,
}

/// Requests that a job repeats from a log, in place of its own.
#[derive(Clone, PartialEq, Eq)]
pub struct Replay {
    /// The log's name.
    pub log: PathBuf,
    /// The log's requests. Each refers to its file by an index into [`Job::targets`].
    pub entries: Arc<[Entry]>,
    /// Requests keep the log's times; else each goes as soon as there is room.
    pub is_paced: bool,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A log may have millions of requests.
        f.debug_struct("Replay")
            .field("log", &self.log)
            .field("entries", &self.entries.len())
            .field("is_paced", &self.is_paced)
            .finish()
    }
}

/// A log of histograms over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramLog {
    /// The begin of the file's name.
    pub prefix: PathBuf,
    /// Length of an interval.
    pub every: Duration,
    /// Buckets are joined by 2 to this power.
    pub coarseness: u32,
}

/// The throughput that is to be steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteadyOf {
    /// Requests a second.
    Iops,
    /// Bytes a second.
    Bandwidth,
}

/// The measure of how steady values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steadiness {
    /// The largest distance of a value from the mean.
    Deviation,
    /// The slope of the line that fits the values best, from one value to the next.
    Slope,
}

/// A steady state that ends a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyGoal {
    /// The throughput that is judged.
    pub of: SteadyOf,
    /// How it is judged.
    pub by: Steadiness,
    /// The measure must be below this: percent of the mean, or requests or bytes a second.
    pub limit: f64,
    /// The limit is percent of the mean.
    pub percent: bool,
    /// Length of the window that is judged.
    pub window: Duration,
    /// Time before the first value is taken.
    pub ramp: Duration,
    /// Time between two values.
    pub interval: Duration,
}

impl SteadyGoal {
    /// The criterion by fio's name: `iops_slope`.
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

/// The jobs that end when one job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndsWith {
    /// Those of its group.
    Group,
    /// All of its stage; the next stage begins.
    Stage,
    /// All, also those that have not begun.
    All,
}

/// Errors that do not end a job, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// Errors of reads.
    pub read: Vec<i32>,
    /// Errors of writes, trims and flushes.
    pub write: Vec<i32>,
    /// A block that is wrong does not end the job, even where verification would.
    pub wrong_blocks: bool,
}

/// Sizes of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockSizes {
    /// All of this many bytes.
    Fixed(u32),
    /// From the first to the second, bytes, in multiples of the first.
    Range(u32, u32),
    /// Bytes, and how many of 100 have them.
    Split(Vec<(u32, u8)>),
}

impl BlockSizes {
    /// The smallest, bytes: what offsets are multiples of.
    #[must_use]
    pub fn min(&self) -> u32 {
        match self {
            Self::Fixed(bytes) | Self::Range(bytes, _) => *bytes,
            Self::Split(parts) => parts.iter().map(|part| part.0).min().unwrap_or(0),
        }
    }

    /// The largest, bytes.
    #[must_use]
    pub fn max(&self) -> u32 {
        match self {
            Self::Fixed(bytes) | Self::Range(_, bytes) => *bytes,
            Self::Split(parts) => parts.iter().map(|part| part.0).max().unwrap_or(0),
        }
    }
}

/// An amount that may be relative to what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Bytes.
    Bytes(u64),
    /// Percent of the device's size.
    Percent(u8),
}

/// A device that a job works on.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The device or file, as the user named it.
    pub spec: DeviceSpec,
    /// Size of the file to create if it does not exist, in bytes; it is filled where it will be
    /// read. `None`: the file must exist.
    pub create_bytes: Option<u64>,
    /// Creates the file sparse: it gets space and content only as it is written.
    pub sparse: bool,
}

/// The order in which a job's requests visit its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetOrder {
    /// In turns.
    RoundRobin,
    /// At random.
    Random,
    /// One after the other is finished.
    Sequential,
}

/// When requests of a limited rate start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateProcess {
    /// At equal distances.
    Linear,
    /// As independent arrivals come: distances are exponentially distributed.
    Poisson,
}

/// A limit on what one direction does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second; 0: no limit.
    pub ios_per_s: u64,
    /// Bytes a second; 0: no limit.
    pub bytes_per_s: u64,
}

/// How requests are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The queue is kept full: what completes is replaced. fio's way.
    Full,
    /// All of the depth is submitted, all of it is waited for, and so on: S4's *normal*.
    Barrier,
    /// As [`Form::Barrier`], reported second by second: S4's *stress*.
    Stress,
    /// A thread of its own hands requests to this one, with at least this long between two: S4's
    /// *msg*.
    Messages {
        /// Shortest time between two requests.
        interval: Duration,
    },
}

/// The content of written blocks, by which a read verifies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyMethod {
    /// Header with offset, seed and sequence, and CRC-32C over header and data.
    Crc32c,
    /// The same with CRC-32 (ISO-HDLC).
    Crc32,
    /// The same with CRC-64/NVME.
    Crc64,
    /// The same with XXH64.
    XxHash,
    /// The same with MD5.
    Md5,
    /// The same with SHA-1.
    Sha1,
    /// The same with SHA-256.
    Sha256,
    /// The same with SHA-512.
    Sha512,
    /// The same with SHA3-224.
    Sha3_224,
    /// The same with SHA3-256.
    Sha3_256,
    /// The same with SHA3-384.
    Sha3_384,
    /// The same with SHA3-512.
    Sha3_512,
    /// Header only.
    Meta,
    /// A repeated pattern.
    Pattern,
}

/// Verification.
#[derive(Clone, Debug, PartialEq)]
pub struct Verify {
    /// The content of written blocks.
    pub method: VerifyMethod,
    /// Bytes of [`VerifyMethod::Pattern`], repeated.
    pub pattern: Vec<u8>,
    /// Bytes that each carry a header of their own; 0: the whole request.
    pub interval_bytes: u32,
    /// After a writing job: read all that was written and check it.
    pub after: bool,
    /// Do not write: only check what an earlier run of the same job wrote.
    pub only: bool,
    /// Stop at the first block that is wrong.
    pub fatal: bool,
    /// While writing: after so many written requests, read them and check them; 0: not before the
    /// end.
    pub backlog: u32,
    /// Requests of the backlog that are read back at a time; 0: all.
    pub backlog_batch: u32,
    /// Write what a wrong block held, and what it should hold, to files in the working directory.
    pub dump: bool,
}

/// The content of written buffers where nothing is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Random bytes, made once, with a mark in each 512 of them that no other write has.
    Unique,
    /// Random bytes, made once.
    Random,
    /// Random bytes, anew for every write.
    Refill,
    /// Zeroes.
    Zeroes,
    /// A repeated pattern.
    Pattern(Vec<u8>),
    /// As compressible, and as often repeated, as asked for.
    Shaped(Shape),
}

/// How compressible written blocks are, and how many of them repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The part of each chunk that is fixed, percent; it stands behind random bytes.
    pub compress_percent: u8,
    /// Length of a chunk; 0: all of the request.
    pub chunk_bytes: u32,
    /// Bytes of the fixed part, repeated.
    pub fixed: Vec<u8>,
    /// Writes of 100 that have the content of the write before.
    pub dedupe_percent: u8,
}

/// How processors are shared out among the clones of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuPolicy {
    /// Each may use all of them.
    Shared,
    /// Each has one of its own.
    Split,
}

/// The latencies that are measured and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Start to submission.
    pub slat: bool,
    /// Submission to completion.
    pub clat: bool,
    /// Start (or intended start) to completion.
    pub lat: bool,
}

/// One thread's work.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name.
    pub name: String,
    /// A description for people, given by the job's author.
    pub description: Option<String>,
    /// The options given to this job, under fio's names.
    pub options: Vec<(String, String)>,
    /// The options given to all jobs before this one, under fio's names.
    pub options_of_all: Vec<(String, String)>,
    /// Jobs of a stage run together; a stage begins when the one before is over.
    pub stage: u32,
    /// Jobs of a group are reported together where [`Job::group_reporting`] says so.
    pub group: u32,
    /// Report the group as one.
    pub group_reporting: bool,
    /// Number of this job among the clones of its section, from 0.
    pub clone: u32,

    /// Devices.
    pub targets: Vec<Target>,
    /// Their order.
    pub target_order: TargetOrder,
    /// Interface and switches.
    pub mode: Mode,
    /// The interface as the user called it: `io_uring`, `psync`.
    pub engine: String,
    /// Bypasses the page cache.
    pub direct: bool,
    /// Refuse to write, whatever the rest says.
    pub read_only: bool,
    /// Writes even to a device that holds a file system or is in use by others.
    pub force: bool,
    /// Drops the device's pages from the page cache before the run. Only used without
    /// [`Job::direct`].
    pub invalidate: bool,

    /// Reads, writes, trims.
    pub verbs: Verbs,
    /// Their order.
    pub order: Order,
    /// Sizes of requests, by [`Direction`].
    pub block_sizes: [BlockSizes; 3],
    /// Equal pieces of a request, handed to the kernel as a vector; 0: plain. A request is so many
    /// times its block size.
    pub vector_len: u16,
    /// How likely blocks are.
    pub distribution: Distribution,
    /// Random order visits every block once before any again.
    pub random_map: bool,
    /// Random offsets are multiples of so many bytes; 0: of the smallest block.
    pub align_bytes: u32,
    /// Gaps and runs in the order of requests.
    pub steps: Steps,
    /// Parts of the region, one after the other.
    pub stride: Option<Stride>,
    /// Seed of all that is random.
    pub seed: u64,
    /// First byte of each target that is used.
    pub offset: Extent,
    /// Bytes of each target that are used from there; `None`: all.
    pub size: Option<Extent>,
    /// Bytes to move in all; `None`: [`Job::size`] of every target, once.
    pub io_size: Option<u64>,
    /// Requests to make in all; `None`: as many as there are bytes for.
    pub number_ios: Option<u64>,
    /// Running out of space ends the job without an error (fio's `fill_device`).
    pub until_full: bool,
    /// Times to do all of it.
    pub loops: u32,

    /// Stop after this long.
    pub runtime: Option<Duration>,
    /// Begin again until [`Job::runtime`] is over.
    pub time_based: bool,
    /// Run so long before anything counts.
    pub ramp: Duration,
    /// Wait so long before beginning.
    pub start_delay: Duration,
    /// Wait for all jobs of this name before that.
    pub wait_for: Option<String>,
    /// Jobs that end when this job ends; `None`: no others.
    pub ends: Option<EndsWith>,
    /// An error that ends it ends all jobs.
    pub error_ends_all: bool,
    /// Errors that do not end it.
    pub tolerance: Tolerance,
    /// Limits, by [`Direction`].
    pub rate: [Rate; 3],
    /// The lowest rates, by [`Direction`]: a job that does less for [`Job::rate_cycle`] fails.
    pub rate_min: [Rate; 3],
    /// See [`Job::rate_min`].
    pub rate_cycle: Duration,
    /// Share of requests among the jobs of a flow.
    pub flow: Option<FlowShare>,
    /// When requests of a limited rate start. Latency counts from there, however late they are
    /// sent.
    pub rate_process: RateProcess,
    /// Pause after [`Job::think_time_blocks`] requests.
    pub think_time: Duration,
    /// See [`Job::think_time`].
    pub think_time_blocks: u32,
    /// The part of the pause that is spent computing.
    pub think_time_spin: Duration,

    /// Requests in flight.
    pub depth: u32,
    /// Requests handed to the kernel at once.
    pub batch_submit: u32,
    /// Completions waited for at once.
    pub batch_complete_min: u32,
    /// Completions taken at once; 0: all that are there.
    pub batch_complete_max: u32,
    /// Buffers are in huge pages that were reserved (`vm.nr_hugepages`), or the job does not begin.
    pub huge_pages: bool,
    /// The depth is searched, up to [`Job::depth`], at which requests are fast enough.
    pub latency_target: Option<LatencyGoal>,
    /// A steady throughput ends the job.
    pub steady: Option<SteadyGoal>,
    /// Requests of a log, in place of what the job's pattern says.
    pub replay: Option<Replay>,
    /// A log to write the requests to.
    pub write_iolog: Option<PathBuf>,
    /// How requests are handed out.
    pub form: Form,

    /// Flush after so many writes; 0: never.
    pub flush_blocks: u32,
    /// Flush at the end.
    pub flush_at_end: bool,
    /// Every write is durable when it completes (FUA, O_DSYNC).
    pub force_unit_access: bool,
    /// Power loss leaves every write either old or new (`RWF_ATOMIC`).
    pub atomic: bool,
    /// Verification.
    pub verify: Option<Verify>,
    /// Content of written buffers, where nothing is verified.
    pub content: Content,

    /// Processors it may run on; empty: all.
    pub cpus: Vec<usize>,
    /// How clones share [`Job::cpus`].
    pub cpu_policy: CpuPolicy,
    /// Latencies to keep.
    pub measured: Measured,
    /// Percentiles to report.
    pub percentiles: Vec<f64>,
    /// Length of a sample of the time series; `None`: one second.
    pub sample: Option<Duration>,
    /// Files to write the time series to, by kind (`bw`, `iops`, `lat`): fio's `write_bw_log` and
    /// its kin, the prefix.
    pub logs: Vec<(String, PathBuf)>,
    /// The lines of [`Job::logs`] have a column for offsets, which is always 0.
    pub log_offset: bool,
    /// Histograms of `clat` over time are written.
    pub histogram_log: Option<HistogramLog>,
}

impl Job {
    /// 4 KiB random reads, one at a time, of one device, until all of it was read once.
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

    /// The value of an option as it was given, to it or to all jobs before it.
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

/// Percentiles reported unless others are asked for: fio's.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
