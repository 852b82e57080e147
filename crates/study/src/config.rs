//! Points of an experiment. A point is one configuration that can be run.
//!
//! Experiments share points: Figure 3 shows the system calls of the points that Figure 2 measures
//! at a depth of 16. Equal configurations are run once.

use std::fmt;

use qpair_block::{DeviceSpec, SharedWay};
use serde::{Deserialize, Serialize};

use crate::store::{StoreUse, StoreWork};

/// The assignment of several devices to threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assignment {
    /// Each thread uses one device; the devices are assigned in turn.
    #[default]
    Own,
    /// Each thread uses all devices.
    All,
}

/// The ownership of the channels that threads submit to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channels {
    /// Each thread has its own channels.
    #[default]
    Own,
    /// All threads send their requests to one I/O thread, which owns the channels: `iothread:`.
    OneThread,
    /// All threads share channels under one lock: `onelock:`.
    OneLock,
}

impl Channels {
    /// Wraps a device so that threads use its channels in this way.
    #[must_use]
    pub fn over(self, inner: DeviceSpec) -> DeviceSpec {
        let way = match self {
            Self::Own => return inner,
            Self::OneThread => SharedWay::IoThread,
            Self::OneLock => SharedWay::OneLock,
        };
        DeviceSpec::Shared { way, inner: Box::new(inner) }
    }
}

/// The direction and size of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// The percentage of reads; the rest are writes.
    pub read_percent: u8,
    /// The size of a request in bytes.
    pub block_bytes: u32,
}

impl Default for Mix {
    /// Returns the requests that the papers measure: reads of 4 KiB.
    fn default() -> Self {
        Self { read_percent: 100, block_bytes: 4096 }
    }
}

impl Mix {
    /// Returns `config` with these requests.
    pub(crate) fn of(self, config: Config) -> Config {
        config.read_percent(self.read_percent).block_bytes(self.block_bytes)
    }
}

/// The rate at which requests are issued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// Requests are issued as fast as the queue takes them.
    #[default]
    Full,
    /// Another thread issues the requests at a minimum interval: S4's *msg*.
    Interval {
        /// The shortest time between two requests, in microseconds.
        us: u32,
    },
    /// Requests are issued as fast as the queue takes them for the given time, and throughput is
    /// recorded every second: S4's *stress*.
    Prolonged {
        /// The duration in seconds.
        seconds: u32,
    },
}

/// One point of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// The interface, by its name in [`crate::INTERFACES`].
    pub interface: String,
    /// The number of cores that all threads together may use.
    pub cores: u32,
    /// The number of threads that submit.
    pub threads: u32,
    /// The number of requests that each thread keeps in flight.
    pub depth: u32,
    /// The size of a request in bytes.
    pub block_bytes: u32,
    /// The percentage of reads; the rest are writes.
    pub read_percent: u8,
    /// The number of devices; the first ones of those given are used.
    pub drives: u32,
    /// The index of the first device that is used.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first: u32,
    /// The devices that each thread uses.
    pub assignment: Assignment,
    /// The rate at which requests are issued.
    pub pace: Pace,
    /// The number of threads that issue requests for each submitting thread, with
    /// [`Pace::Interval`].
    #[serde(default = "one_producer", skip_serializing_if = "is_one")]
    pub producers: u32,
    /// The maximum number of requests that are submitted to the kernel in one call. The papers'
    /// tools submit one.
    #[serde(default = "batch_of_version_1")]
    pub batch: u32,
    /// Whether requests go through the page cache, which is empty at the start.
    #[serde(default)]
    pub cached: bool,
    /// Whether addresses are sequential and not random.
    #[serde(default)]
    pub sequential: bool,
    /// The number of equal pieces of a vectored request; 0: requests are not vectored.
    #[serde(default)]
    pub pieces: u16,
    /// The channels that threads submit to.
    #[serde(default)]
    pub channels: Channels,
    /// The store that the point measures, in place of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreUse>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(first: &u32) -> bool {
    *first == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_one(producers: &u32) -> bool {
    *producers == 1
}

fn one_producer() -> u32 {
    1
}

/// Returns the batch size of studies of version 1, whose reports do not state it.
fn batch_of_version_1() -> u32 {
    32
}

impl Config {
    /// Returns 4 KiB random reads of one device by one thread, one request at a time.
    #[must_use]
    pub fn new(interface: impl Into<String>, cores: u32) -> Self {
        Self {
            interface: interface.into(),
            cores,
            threads: 1,
            depth: 1,
            block_bytes: 4096,
            read_percent: 100,
            drives: 1,
            first: 0,
            assignment: Assignment::Own,
            pace: Pace::Full,
            producers: 1,
            batch: 1,
            cached: false,
            sequential: false,
            pieces: 0,
            channels: Channels::Own,
            store: None,
        }
    }

    /// Sets the queue depth.
    #[must_use]
    pub fn depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the size of a request in bytes.
    #[must_use]
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Sets the percentage of reads.
    #[must_use]
    pub fn read_percent(mut self, percent: u8) -> Self {
        self.read_percent = percent;
        self
    }

    /// Sets the number of devices and their assignment to threads.
    #[must_use]
    pub fn drives(mut self, drives: u32, assignment: Assignment) -> Self {
        self.drives = drives;
        self.assignment = assignment;
        self
    }

    /// Uses the devices from this index on.
    #[must_use]
    pub fn first(mut self, index: u32) -> Self {
        self.first = index;
        self
    }

    /// Sets the number of threads that issue requests for each submitting thread.
    #[must_use]
    pub fn producers(mut self, producers: u32) -> Self {
        self.producers = producers;
        self
    }

    /// Sets the rate at which requests are issued.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Sets the maximum number of requests that are submitted to the kernel in one call.
    #[must_use]
    pub fn batch(mut self, requests: u32) -> Self {
        self.batch = requests;
        self
    }

    /// Sends requests through the page cache.
    #[must_use]
    pub fn cached(mut self) -> Self {
        self.cached = true;
        self
    }

    /// Uses sequential addresses.
    #[must_use]
    pub fn sequential(mut self) -> Self {
        self.sequential = true;
        self
    }

    /// Makes each request a vector of `pieces` pieces.
    #[must_use]
    pub fn pieces(mut self, pieces: u16) -> Self {
        self.pieces = pieces;
        self
    }

    /// Sets the channels that threads submit to.
    #[must_use]
    pub fn channels(mut self, channels: Channels) -> Self {
        self.channels = channels;
        self
    }

    /// Whether the point issues writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.read_percent < 100
    }
}

impl StoreUse {
    /// Returns a point of this store: an interface, and `workers` workers with a core each.
    #[must_use]
    pub fn on(self, interface: &str, workers: u32) -> Config {
        let tasks = match self.work {
            StoreWork::Lookup => 128,
            StoreWork::Tpcc => 32,
        };
        Config {
            store: Some(self),
            ..Config::new(interface, workers)
                .threads(workers)
                .depth(tasks)
                .block_bytes(self.page_bytes)
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        let channels = match self.channels {
            Channels::Own => "",
            Channels::OneThread => ", one thread for all I/O",
            Channels::OneLock => ", one lock for all I/O",
        };
        if let Some(store) = &self.store {
            let (workers, tasks) = (self.threads, self.depth);
            let plural = plural(workers);
            return write!(
                f,
                "{}: {store}, {workers} worker{plural} of {tasks} tasks{channels}",
                self.interface
            );
        }
        write!(
            f,
            "{}: {} thread{} on {} core{}, queue depth {}, ",
            self.interface,
            self.threads,
            plural(self.threads),
            self.cores,
            plural(self.cores),
            self.depth
        )?;
        match self.read_percent {
            100 => f.write_str("reads")?,
            0 => f.write_str("writes")?,
            percent => write!(f, "{percent} % reads")?,
        }
        write!(f, " of {}", qpair_block::format_bytes(self.block_bytes.into()))?;
        if self.sequential {
            f.write_str(", sequential")?;
        }
        if self.pieces > 0 {
            write!(f, ", in vectors of {}", self.pieces)?;
        }
        if self.drives != 1 {
            let which = match self.assignment {
                Assignment::Own => "each thread one of",
                Assignment::All => "each thread all of",
            };
            write!(f, ", {which} {} devices", self.drives)?;
        }
        if self.first > 0 {
            write!(f, ", device number {}", self.first + 1)?;
        }
        if self.batch > 1 {
            write!(f, ", up to {} at once", self.batch)?;
        }
        if self.cached {
            f.write_str(", through the page cache")?;
        }
        f.write_str(channels)?;
        match self.pace {
            Pace::Full => Ok(()),
            Pace::Interval { us } if self.producers > 1 => {
                write!(f, ", handed over by {} producers, each every {us} us", self.producers)
            }
            Pace::Interval { us } => write!(f, ", handed over every {us} us"),
            Pace::Prolonged { seconds } => write!(f, ", for {seconds} s"),
        }
    }
}
