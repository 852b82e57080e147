//! The terminal of a search: lines on standard output, progress on standard error, and an early
//! end.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// The time between two lines of progress in a log, and between two updates of the line on a
/// terminal.
const LOG_EVERY: Duration = Duration::from_secs(30);
const TERMINAL_EVERY: Duration = Duration::from_secs(1);

/// Reports results and progress. Ctrl-C, SIGTERM and a closed standard output end the search early.
pub(crate) struct Console {
    interrupted: Arc<AtomicBool>,
    is_output_closed: bool,
    last_progress: Instant,
    /// Whether the progress line on a terminal must be cleared before the next line is printed.
    is_line_open: bool,
}

impl Console {
    pub(crate) fn new() -> Self {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Without the handler, the signal ends the program without a summary.
            let _ = signal_hook::flag::register(signal, interrupted.clone());
        }
        Self {
            interrupted,
            is_output_closed: false,
            last_progress: Instant::now(),
            is_line_open: false,
        }
    }

    pub(crate) fn say(&mut self, line: fmt::Arguments<'_>) {
        if std::mem::take(&mut self.is_line_open) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        let mut out = io::stdout().lock();
        self.is_output_closed |= out.write_fmt(line).and_then(|()| out.write_all(b"\n")).is_err();
    }

    /// Shows progress on standard error, unless progress was shown a moment ago.
    pub(crate) fn progress(&mut self, progress: impl fmt::Display) {
        let mut err = io::stderr().lock();
        let is_terminal = err.is_terminal();
        let every = if is_terminal { TERMINAL_EVERY } else { LOG_EVERY };
        if self.last_progress.elapsed() < every {
            return;
        }
        self.last_progress = Instant::now();
        // A closed standard error is no reason to stop.
        let _ = match is_terminal {
            true => write!(err, "\r\x1b[K{progress}").and_then(|()| err.flush()),
            false => writeln!(err, "{progress}"),
        };
        self.is_line_open = is_terminal;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_output_closed || self.is_interrupted()
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns the flag that Ctrl-C sets, so that long computations can check it.
    pub(crate) fn interrupted(&self) -> Arc<AtomicBool> {
        self.interrupted.clone()
    }

    /// Returns the exit code of a search that found `bad` faults: 130 if the search was interrupted
    /// before it found one.
    pub(crate) fn exit_code(&self, bad: u64) -> ExitCode {
        match bad {
            0 if self.is_interrupted() => ExitCode::from(130),
            0 if !self.is_output_closed => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }

    /// Says whether a planted bug was caught, and returns the exit code.
    pub(crate) fn verdict_of_planted(
        &mut self,
        kind: &str,
        name: &str,
        is_caught: bool,
    ) -> ExitCode {
        let was = if is_caught { "was" } else { "was not" };
        self.say(format_args!("the {kind} {name} {was} caught"));
        match is_caught {
            true => ExitCode::SUCCESS,
            false if self.is_interrupted() => ExitCode::from(130),
            false => ExitCode::FAILURE,
        }
    }
}
