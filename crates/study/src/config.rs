//! What a point of an experiment is: a configuration that can be run, and is the same wherever it comes up.
//!
//! Experiments share points: what Figure 2 measures at a depth of 16, Figure 3 shows the system calls of. Equal
//! configurations are run once.

use std::fmt;

use qpair_block::{DeviceSpec, SharedWay};
use serde::{Deserialize, Serialize};

use crate::store::StoreUse;

/// Which of several devices a thread uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assignment {
    /// Each thread one of its own, in turns.
    #[default]
    Own,
    /// Each thread all of them.
    All,
}

/// Whose channels the threads submit to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channels {
    /// Each thread its own.
    #[default]
    Own,
    /// All hand their requests to one thread, which has the channels: `iothread:`.
    OneThread,
    /// Their own, under one lock: `onelock:`.
    OneLock,
}

impl Channels {
    /// The device that threads use so.
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

/// What requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Reads of 100; the rest are writes.
    pub read_percent: u8,
    /// Bytes of each.
    pub block_bytes: u32,
}

impl Default for Mix {
    /// What the papers ask: reads of 4 KiB.
    fn default() -> Self {
        Self { read_percent: 100, block_bytes: 4096 }
    }
}

impl Mix {
    /// A point with these requests.
    pub(crate) fn of(self, config: Config) -> Config {
        config.read_percent(self.read_percent).block_bytes(self.block_bytes)
    }
}

/// How requests are handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As fast as the queue takes them.
    #[default]
    Full,
    /// By another thread, with at least so many microseconds between two: S4's *msg*.
    Interval {
        /// Shortest time between two requests, microseconds.
        us: u32,
    },
    /// As fast as the queue takes them, for as many seconds, watched second by second: S4's *stress*.
    Prolonged {
        /// Seconds.
        seconds: u32,
    },
}

/// One point.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// The interface, by the name it has in [`crate::INTERFACES`].
    pub interface: String,
    /// Cores that all threads together may use.
    pub cores: u32,
    /// Threads that submit.
    pub threads: u32,
    /// Requests that each of them keeps in flight.
    pub depth: u32,
    /// Bytes of a request.
    pub block_bytes: u32,
    /// Reads of 100 requests; the rest are writes.
    pub read_percent: u8,
    /// Devices, the first so many of those given.
    pub drives: u32,
    /// Which of them a thread uses.
    pub assignment: Assignment,
    /// How requests are handed out.
    pub pace: Pace,
    /// Requests handed to the kernel at once, at most. The papers' tools hand over one.
    #[serde(default = "batch_of_version_1")]
    pub batch: u32,
    /// Through the page cache, which is empty at the start.
    #[serde(default)]
    pub cached: bool,
    /// One address after the other.
    #[serde(default)]
    pub sequential: bool,
    /// Equal pieces of a request, handed to the kernel as a vector; 0: plain.
    #[serde(default)]
    pub pieces: u16,
    /// Whose channels are submitted to.
    #[serde(default)]
    pub channels: Channels,
    /// A store is asked, not the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreUse>,
}

/// What studies did before they said so.
fn batch_of_version_1() -> u32 {
    32
}

impl Config {
    /// 4 KiB random reads of one device by one thread, one at a time.
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
            assignment: Assignment::Own,
            pace: Pace::Full,
            batch: 1,
            cached: false,
            sequential: false,
            pieces: 0,
            channels: Channels::Own,
            store: None,
        }
    }

    /// With this depth.
    #[must_use]
    pub fn depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// With so many threads.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// With requests of so many bytes.
    #[must_use]
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// With so many of 100 requests reads.
    #[must_use]
    pub fn read_percent(mut self, percent: u8) -> Self {
        self.read_percent = percent;
        self
    }

    /// On so many devices.
    #[must_use]
    pub fn drives(mut self, drives: u32, assignment: Assignment) -> Self {
        self.drives = drives;
        self.assignment = assignment;
        self
    }

    /// At this pace.
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// With so many requests handed to the kernel at once.
    #[must_use]
    pub fn batch(mut self, requests: u32) -> Self {
        self.batch = requests;
        self
    }

    /// Through the page cache.
    #[must_use]
    pub fn cached(mut self) -> Self {
        self.cached = true;
        self
    }

    /// One address after the other.
    #[must_use]
    pub fn sequential(mut self) -> Self {
        self.sequential = true;
        self
    }

    /// As vectors of so many pieces.
    #[must_use]
    pub fn pieces(mut self, pieces: u16) -> Self {
        self.pieces = pieces;
        self
    }

    /// Over these channels.
    #[must_use]
    pub fn channels(mut self, channels: Channels) -> Self {
        self.channels = channels;
        self
    }

    /// Whether it writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.read_percent < 100
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
        if self.batch > 1 {
            write!(f, ", up to {} at once", self.batch)?;
        }
        if self.cached {
            f.write_str(", through the page cache")?;
        }
        f.write_str(channels)?;
        match self.pace {
            Pace::Full => Ok(()),
            Pace::Interval { us } => write!(f, ", handed over every {us} us"),
            Pace::Prolonged { seconds } => write!(f, ", for {seconds} s"),
        }
    }
}
