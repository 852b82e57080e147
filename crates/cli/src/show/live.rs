//! The progress line of a measured run, and the request to stop the run.
//!
//! On a terminal each tick redraws the line, and the end clears it. Elsewhere progress is printed
//! only on request, as a new line every few seconds. Progress goes to standard error; the report
//! goes to standard output.

use qpair_block::locks::Mutex;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget};
use qpair_workload::{Direction, Live, Observer};

use super::bar::styled;
use super::text::{count, counted, size};
use crate::interrupt::Interrupt;

/// When to show the live line: fio's `--eta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Eta {
    // Where standard error is a terminal. A doc comment would be help.
    Auto,
    // There, and as lines of their own elsewhere.
    Always,
    Never,
}

/// The interval between lines where the previous line cannot be overwritten.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct LiveLine {
    interrupt: Interrupt,
    eta: Eta,
    /// Whether to print notes at once, because the report on standard output does not contain them.
    pub(crate) notes: bool,
    /// The interval at which to print throughput: S4's *stress*.
    pub(crate) samples: Option<Duration>,
    /// The bar, which is hidden if standard error is not a terminal.
    bar: ProgressBar,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    line_at: Option<Instant>,
    window: Window,
}

impl LiveLine {
    pub(crate) fn new(interrupt: Interrupt, eta: Eta) -> Self {
        let target = match eta {
            Eta::Never => ProgressDrawTarget::hidden(),
            Eta::Auto | Eta::Always => ProgressDrawTarget::stderr(),
        };
        // The line is cut off at the terminal's width.
        let bar = styled(ProgressBar::with_draw_target(None, target), "{wide_msg}");
        Self {
            interrupt,
            eta,
            notes: false,
            samples: None,
            bar,
            state: Mutex::new(State::default()),
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Does something that writes to the terminal while the line is away.
    pub(crate) fn aside<T>(&self, act: impl FnOnce() -> T) -> T {
        self.bar.suspend(act)
    }

    fn print(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}

impl Observer for LiveLine {
    fn tick(&self, live: &Live) {
        if self.eta == Eta::Never {
            return;
        }
        let mut state = self.state.lock();
        if let Some(sample) = self.samples.and_then(|every| state.window.add(live, every)) {
            self.print(&sample);
        }
        if !self.bar.is_hidden() {
            self.bar.set_message(line(live, self.stop()));
        } else if self.eta == Eta::Always
            && state.line_at.is_none_or(|at| at.elapsed() >= LINE_EVERY)
        {
            state.line_at = Some(Instant::now());
            eprintln!("{}", line(live, self.stop()));
        }
    }

    fn note(&self, text: &str) {
        if self.notes {
            self.print(&format!("qpair: {text}"));
        }
    }

    fn stop(&self) -> bool {
        self.interrupt.is_requested()
    }
}

fn line(live: &Live, stopping: bool) -> String {
    let mut words = vec![if stopping { "stopping".to_owned() } else { live.phase.clone() }];
    let (stage, stages) = live.stage;
    if stages > 1 {
        words.push(format!("stage {} of {stages}", stage + 1));
    }
    words.push(counted(live.jobs.into(), "job"));
    if let Some(fraction) = fraction(live) {
        let left = live.elapsed.as_secs_f64() * (1.0 / fraction.max(1e-3) - 1.0);
        let left =
            live.total.map_or(left, |total| total.saturating_sub(live.elapsed).as_secs_f64());
        words.push(format!("{} {:.0} %, {} left", gauge(fraction), 100.0 * fraction, clock(left)));
    } else {
        words.push(clock(live.elapsed.as_secs_f64()));
    }
    words.extend(speeds(&live.ios_per_s, &live.bytes_per_s));
    words.join("  ")
}

fn fraction(live: &Live) -> Option<f64> {
    let by_time = |total: Duration| live.elapsed.as_secs_f64() / total.as_secs_f64().max(1e-9);
    live.fraction.or_else(|| live.total.map(by_time)).map(|fraction| fraction.clamp(0.0, 1.0))
}

fn gauge(fraction: f64) -> String {
    const WIDTH: usize = 16;
    let full = ((fraction * WIDTH as f64) as usize).min(WIDTH);
    format!("[{}{}]", "#".repeat(full), "-".repeat(WIDTH - full))
}

/// Formats seconds as a clock shows them: "9 s", "1:05", "2:00:00".
fn clock(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

fn speeds(ios_per_s: &[f64; 3], bytes_per_s: &[f64; 3]) -> Vec<String> {
    Direction::ALL
        .into_iter()
        .filter(|direction| ios_per_s[*direction as usize] > 0.0)
        .map(|direction| {
            let (ios, bytes) = (ios_per_s[direction as usize], bytes_per_s[direction as usize]);
            let (ios, bytes) = (count(ios.round() as u64), size(bytes as u64));
            format!("{} {ios} IOPS {bytes}/s", direction.name())
        })
        .collect()
}

/// Accumulates ticks into samples. Ticks are more frequent than samples, and not aligned with them:
/// a sample ends with the first tick at or after its end, and is averaged over its actual duration.
#[derive(Default)]
struct Window {
    of: (String, u32),
    seen: Duration,
    begin: Duration,
    ios: [f64; 3],
    bytes: [f64; 3],
}

impl Window {
    /// Adds a tick. Returns the line of the sample that the tick completes, if any.
    fn add(&mut self, live: &Live, every: Duration) -> Option<String> {
        let of = (live.phase.clone(), live.stage.0);
        if self.of != of || live.elapsed < self.seen {
            *self = Self { of, ..Self::default() };
        }
        let seconds = live.elapsed.saturating_sub(self.seen).as_secs_f64();
        self.seen = live.elapsed;
        for at in 0..3 {
            self.ios[at] += live.ios_per_s[at] * seconds;
            self.bytes[at] += live.bytes_per_s[at] * seconds;
        }
        let len = self.seen.saturating_sub(self.begin);
        if len < every {
            return None;
        }
        let per_s = |sums: [f64; 3]| sums.map(|sum| sum / len.as_secs_f64());
        let speeds = speeds(&per_s(self.ios), &per_s(self.bytes));
        let at = format!("{:7.1} s", self.seen.as_secs_f64());
        (self.begin, self.ios, self.bytes) = (self.seen, [0.0; 3], [0.0; 3]);
        let speeds = if speeds.is_empty() { vec!["nothing moved".to_owned()] } else { speeds };
        Some(format!("{at}  {}", speeds.join("  ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Live {
        Live {
            phase: "running".into(),
            stage: (0, 1),
            jobs: 4,
            elapsed: Duration::from_millis(2500),
            total: Some(Duration::from_secs(10)),
            fraction: None,
            ios_per_s: [66_012.4, 0.0, 0.0],
            bytes_per_s: [66_012.4 * 4096.0, 0.0, 0.0],
        }
    }

    #[test]
    fn the_line_says_how_far_and_how_fast() {
        assert_eq!(
            line(&live(), false),
            "running  4 jobs  [####------------] 25 %, 8 s left  read 66,012 IOPS 258 MiB/s"
        );
        let mut later = live();
        (later.stage, later.jobs, later.total) = ((1, 3), 1, None);
        later.ios_per_s[1] = 10.0;
        later.elapsed = Duration::from_secs(65);
        assert_eq!(
            line(&later, true),
            "stopping  stage 2 of 3  1 job  1:05  read 66,012 IOPS 258 MiB/s  write 10 IOPS 0 B/s"
        );
        later.fraction = Some(0.5);
        assert!(line(&later, false).contains("50 %, 1:05 left"));
    }

    #[test]
    fn samples_are_counted_over_their_own_time() {
        let mut window = Window::default();
        let every = Duration::from_secs(1);
        let mut at = |ms: u64, ios: f64, phase: &str| {
            let mut live = live();
            live.phase = phase.to_owned();
            live.elapsed = Duration::from_millis(ms);
            live.ios_per_s = [ios, 0.0, 0.0];
            live.bytes_per_s = [ios * 4096.0, 0.0, 0.0];
            window.add(&live, every)
        };
        assert_eq!(at(500, 100.0, "ramp"), None);
        assert_eq!(at(400, 100.0, "running"), None);
        assert_eq!(at(800, 300.0, "running"), None);
        // 40 + 120 + 80 requests in 1.2 s.
        let line = at(1200, 200.0, "running").unwrap();
        assert_eq!(line, "    1.2 s  read 200 IOPS 800 KiB/s");
        assert_eq!(at(2300, 0.0, "running").unwrap(), "    2.3 s  nothing moved");
    }
}
