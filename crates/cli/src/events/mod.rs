//! Events that the crates report by `tracing`, for people and programs. `qpair target` logs them as
//! lines on standard error, or as JSON objects on standard output. Other commands show only notes
//! about what makes a device slow.

mod flood;
mod json;
mod levels;
mod notes;

use qpair_block::locks::Mutex;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Instant;

use qpair_serve::{Level, Log};
use tracing::subscriber::set_global_default;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::{Registry, fmt, registry, reload};

use flood::Flood;
use json::JsonLines;
pub(crate) use levels::Levels;
use notes::Notes;

use crate::show::paint::is_unwanted;

pub(crate) struct Events {
    levels: Mutex<Levels>,
    filter: reload::Handle<Targets, Registry>,
    flood: Flood,
}

impl Events {
    /// Installs the log for the rest of the process's life.
    pub(crate) fn install(levels: Levels, json: bool) -> Arc<Self> {
        let (filter, handle) = reload::Layer::new(levels.filter());
        let output = match json {
            true => JsonLines.boxed(),
            false => fmt::layer()
                .with_writer(io::stderr)
                .with_ansi(io::stderr().is_terminal() && !is_unwanted())
                .boxed(),
        };
        let flood = Flood::default();
        let output = output.with_filter(flood.clone());
        // A process has one log: a second caller logs to the first one.
        let _ = set_global_default(registry().with(filter).with(output));
        Arc::new(Self { levels: Mutex::new(levels), filter: handle, flood })
    }

    /// Logs how many events were left out; called now and then, and at the end with a time that is
    /// over for all of them.
    pub(crate) fn tell_of_left_out(&self, now: Instant) {
        self.flood.tell(now);
    }

    pub(crate) fn set(&self, levels: Levels) {
        let mut held = self.levels.lock();
        *held = levels;
        // This fails only if the log is gone, and the log lives as long as the process.
        let _ = self.filter.reload(held.filter());
    }
}

impl Log for Events {
    fn level(&self) -> Level {
        self.levels.lock().all
    }

    fn set_level(&self, level: Level) {
        let mut levels = self.levels.lock().clone();
        levels.all = level;
        self.set(levels);
    }
}

/// Shows notes about what makes a device slower than necessary.
pub(crate) fn notes() {
    let filter = Targets::new().with_target("qpair_drivers", tracing::Level::WARN);
    // As in `install`: a second caller uses the first log.
    let _ = set_global_default(registry().with(filter).with(Notes));
}
