//! A progress bar on standard error, if that is a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::show::bar::{TEMPLATE, styled};
use crate::show::text::{counted, size};

/// The progress of a load. Cheap to clone; clones show the same bar.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    /// Creates a bar if the end is known, otherwise a spinner; nothing if `quiet`.
    pub(crate) fn new(size_bytes: Option<u64>, quiet: bool) -> Self {
        let target =
            if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let (bar, template) = match size_bytes {
            Some(bytes) => (ProgressBar::new(bytes), TEMPLATE),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
        };
        bar.set_draw_target(target);
        let bar = styled(bar, template);
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, start: Instant::now() }
    }

    pub(crate) fn update(&self, records: u64, bytes: u64, input_bytes: u64) {
        self.bar.set_position(input_bytes);
        if self.bar.is_hidden() {
            return;
        }
        let seconds = self.start.elapsed().as_secs_f64().max(1e-3);
        let per_s = |amount: u64| (amount as f64 / seconds) as u64;
        let (records_per_s, bytes_per_s) = (counted(per_s(records), "record"), size(per_s(bytes)));
        self.bar.set_message(format!(
            "{}, {records_per_s}/s, {bytes_per_s}/s",
            counted(records, "record")
        ));
    }

    pub(crate) fn say(&self, what: &'static str) {
        self.bar.set_message(what);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
