//! Reports during a run: `--status-interval`.

use qpair_block::locks::Mutex;
use std::time::Duration;

use qpair_workload::{Live, Observer, RunReport};

use crate::failure::{Failure, Result};
use crate::show::live::LiveLine;

/// Watches a run: shows the live line, and writes the state at each interval.
pub(super) struct States<'a, F> {
    line: &'a LiveLine,
    every: Option<Duration>,
    /// Writes a report. Receives the number of earlier reports.
    write: F,
    written: Mutex<(u32, Option<Failure>)>,
}

impl<'a, F: Fn(&RunReport, u32) -> Result<()> + Sync> States<'a, F> {
    pub(super) fn new(line: &'a LiveLine, every: Option<Duration>, write: F) -> Self {
        Self { line, every, write, written: Mutex::default() }
    }

    /// Returns the number of reports that were written, and the error that ended them.
    pub(super) fn end(self) -> (u32, Result<()>) {
        let (count, failure) = self.written.into_inner();
        (count, failure.map_or(Ok(()), Err))
    }
}

impl<F: Fn(&RunReport, u32) -> Result<()> + Sync> Observer for States<'_, F> {
    fn tick(&self, live: &Live) {
        self.line.tick(live);
    }

    fn note(&self, text: &str) {
        self.line.note(text);
    }

    fn status_every(&self) -> Option<Duration> {
        self.every
    }

    fn status(&self, report: &RunReport) {
        let mut written = self.written.lock();
        if written.1.is_none() {
            match self.line.aside(|| (self.write)(report, written.0)) {
                Ok(()) => written.0 += 1,
                Err(failure) => written.1 = Some(failure),
            }
        }
    }

    /// A report that cannot be written ends the run, because nobody would see the results.
    fn stop(&self) -> bool {
        self.line.stop() || self.written.lock().1.is_some()
    }
}
