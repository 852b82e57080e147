//! What was found.

use qpair_block::{Error, ErrorKind, Result};
use qpair_study::{Interval, median};
use qpair_workload::Latencies;
use serde::{Deserialize, Serialize};

use crate::load::Load;

/// The format's name and version, in every file.
const FORMAT: (&str, u32) = ("qpair-floor", 1);

/// How the drive is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Prebuilt commands, and nothing else: by this project's module of the kernel where there is one, else by its driver.
    Floor,
    /// The same by its driver, beside the module's.
    UserFloor,
    /// Requests through the driver's channel.
    Driver,
    /// The loop of `qpair bench io` over that channel.
    Stack,
    /// The loop of `qpair bench io` over the kernel's driver and `io_uring`.
    IoUring,
    /// fio with libaio over the kernel's driver.
    Fio,
}

impl Way {
    /// Those that need no driver but this project's, the lowest first.
    pub const USER: [Self; 3] = [Self::Floor, Self::Driver, Self::Stack];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::UserFloor => "user floor",
            Self::Driver => "driver",
            Self::Stack => "stack",
            Self::IoUring => "io_uring",
            Self::Fio => "fio",
        }
    }

    /// What it is.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Floor => "prebuilt commands, a doorbell for each I/O, nothing else",
            Self::UserFloor => "the same by the driver in this program",
            Self::Driver => "the same loop over the driver's channel",
            Self::Stack => "qpair bench io over that channel",
            Self::IoUring => "qpair bench io over the kernel's driver, by io_uring",
            Self::Fio => "fio over the kernel's driver, by libaio",
        }
    }
}

/// One turn of one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// I/Os counted.
    pub ios: u64,
    /// Time they were counted in, seconds.
    pub seconds: f64,
    /// I/Os a second, all jobs.
    pub ios_per_s: f64,
    /// Bytes a second, all jobs.
    pub bytes_per_s: f64,
    /// Mean latency, microseconds.
    pub mean_us: f64,
    /// Percentiles of it: 50, 90, 99, 99.9.
    pub percentiles_us: [f64; 4],
    /// Of the floor: commands sent and submission doorbells rung in the whole turn, ramp and end included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands_and_doorbells: Option<(u64, u64)>,
    /// Of the module's floor: latencies below zero, by the clocks of two processors that differ. They count as zero.
    #[serde(default, skip_serializing_if = "is_none")]
    pub backwards: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Turn {
    pub(crate) fn of(latencies: &Latencies, rates: (f64, f64), seconds: f64) -> Self {
        let us = |share| latencies.value_at_quantile(share) as f64 / 1e3;
        Self {
            ios: latencies.len(),
            seconds,
            ios_per_s: rates.0,
            bytes_per_s: rates.1,
            mean_us: latencies.mean() / 1e3,
            percentiles_us: [0.5, 0.9, 0.99, 0.999].map(us),
            ..Self::default()
        }
    }
}

/// How much longer a way takes than the floor. Of pairs of turns of one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// Mean latency less the floor's, median, microseconds.
    pub us: f64,
    /// Of the floor's mean latency, percent.
    pub percent_of_floor: f64,
    /// 95 % interval of that.
    pub percent_of_floor_bounds: Option<(f64, f64)>,
    /// Of the way's own mean latency, percent.
    pub percent_of_own: f64,
}

impl Gap {
    /// From pairs of the way's mean latency and the floor's.
    fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let ratio = Interval::of_ratios(pairs)?;
        let differences: Vec<f64> = pairs.iter().map(|(own, floor)| own - floor).collect();
        let over = |ratio: f64| 100.0 * (ratio - 1.0);
        Some(Self {
            us: median(&differences)?,
            percent_of_floor: over(ratio.mid),
            percent_of_floor_bounds: ratio.bounds.map(|(low, high)| (over(low), over(high))),
            percent_of_own: 100.0 * (1.0 - 1.0 / ratio.mid),
        })
    }
}

/// The turns of one way, by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turns {
    /// Which.
    pub way: Way,
    /// One for each round.
    pub turns: Vec<Turn>,
    /// What it takes longer than the floor; `None` of the floor itself.
    pub gap: Option<Gap>,
}

impl Turns {
    /// A figure of all turns.
    #[must_use]
    pub fn interval(&self, figure: impl Fn(&Turn) -> f64) -> Option<Interval> {
        Interval::of(&self.turns.iter().map(figure).collect::<Vec<f64>>())
    }
}

/// Where the time of an I/O over the kernel goes, by its tracepoints, in a turn of its own. Means, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// I/Os that were seen at every tracepoint.
    pub ios: u64,
    /// All of it, as the program sees it.
    pub mean_us: f64,
    /// Before the block layer has it and after the block layer is done: system calls, waking up, the program itself.
    pub interface_us: f64,
    /// In the block layer: from the queue to the driver.
    pub block_us: f64,
    /// From the driver to its completion, less the floor: the driver and its interrupt.
    pub driver_us: f64,
    /// The floor's mean: the device.
    pub device_us: f64,
}

/// A load over all ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The load.
    #[serde(flatten)]
    pub load: Load,
    /// By [`Way`].
    pub ways: Vec<Turns>,
    /// The floor's own IOPS hardly grow with the depth any more: the drive is busy, and gaps say nothing of software.
    pub drive_is_busy: bool,
    /// Where the time of [`Way::IoUring`] goes, if it could be looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
}

impl Point {
    pub(crate) fn new(load: Load, ways: &[Way]) -> Self {
        let of = |way: &Way| Turns { way: *way, turns: Vec::new(), gap: None };
        let ways = ways.iter().map(of).collect();
        Self { load, ways, drive_is_busy: false, parts: None }
    }

    pub(crate) fn floor(&self) -> Option<&Turns> {
        self.ways.iter().find(|turns| turns.way == Way::Floor)
    }

    /// Finds the gaps.
    fn compare(&mut self) {
        let Some(floor) = self.floor().map(|floor| floor.turns.clone()) else { return };
        for way in self.ways.iter_mut().filter(|way| way.way != Way::Floor) {
            let pairs =
                way.turns.iter().zip(&floor).map(|(own, floor)| (own.mean_us, floor.mean_us));
            way.gap = Gap::of(&pairs.collect::<Vec<_>>());
        }
    }
}

/// All that was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `qpair-floor`.
    pub format: String,
    /// Of the format.
    pub version: u32,
    /// Version of the program.
    pub program: String,
    /// When it began, seconds since 1970.
    pub begun_s: u64,
    /// The machine.
    pub machine: qpair_machine::Machine,
    /// The drive, as it was named.
    pub device: String,
    /// How it is driven.
    pub mode: String,
    /// Seconds of a turn.
    pub seconds: f64,
    /// Rounds that were wanted.
    pub repeat: u32,
    /// What people should know: loads that were left out, and why.
    pub notes: Vec<String>,
    /// It was ended early; points have fewer rounds.
    pub interrupted: bool,
    /// The loads.
    pub points: Vec<Point>,
}

/// Less growth than that, between two depths, is none.
const GROWTH_LEAST: f64 = 1.1;

impl Report {
    pub(crate) fn new(device: String, mode: String, seconds: f64, repeat: u32) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            format: FORMAT.0.to_owned(),
            version: FORMAT.1,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            begun_s: since.map_or(0, |since| since.as_secs()),
            machine: qpair_machine::Machine::read(),
            device,
            mode,
            seconds,
            repeat,
            notes: Vec::new(),
            interrupted: false,
            points: Vec::new(),
        }
    }

    /// The ways that were gone.
    pub(crate) fn ways(&self) -> Vec<Way> {
        self.points
            .first()
            .map_or_else(Vec::new, |point| point.ways.iter().map(|turns| turns.way).collect())
    }

    /// Finds gaps, and the depths at which the drive is busy.
    pub(crate) fn compare(&mut self) {
        self.points.iter_mut().for_each(Point::compare);
        let speed = |point: &Point| Some(point.floor()?.interval(|turn| turn.ios_per_s)?.mid);
        let found: Vec<(Load, Option<f64>)> =
            self.points.iter().map(|point| (point.load, speed(point))).collect();
        for (point, (load, own)) in self.points.iter_mut().zip(&found) {
            let shallower = found.iter().filter(|(other, _)| {
                other.workload == load.workload
                    && other.jobs == load.jobs
                    && other.depth < load.depth
            });
            let before =
                shallower.max_by_key(|(other, _)| other.depth).and_then(|(_, speed)| *speed);
            point.drive_is_busy =
                before.zip(*own).is_some_and(|(before, own)| own < GROWTH_LEAST * before);
        }
    }

    /// As it is stored.
    ///
    /// # Errors
    /// `Invalid` if it cannot be, which would be a bug.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("storing a report: {error}")))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::load::Workload;

    /// A report of synthetic turns: the floor takes 10 us at depth 1 and is busy from 4 on.
    pub(crate) fn synthetic() -> Report {
        let mut report = Report::new("softnvme:size=1MiB".into(), "synthetic".into(), 0.5, 3);
        for depth in [1, 4, 16] {
            let workload = Workload::named("randread").unwrap();
            let mut point = Point::new(Load { workload, depth, jobs: 1 }, &Way::USER);
            for (ways, extra_us) in point.ways.iter_mut().zip([0.0, 1.0, 2.5]) {
                for round in 0..3 {
                    // The drive drifts from round to round, for all ways alike.
                    let drift = 1.0 + f64::from(round);
                    let mean_us = (10.0 + extra_us) * f64::from(depth.max(4)) / 4.0 * drift;
                    let ios_per_s = f64::from(depth) * 1e6 / mean_us;
                    let bytes_per_s = ios_per_s * 4096.0;
                    let percentiles_us = [mean_us; 4];
                    let (ios, seconds) = (1000, 0.5);
                    ways.turns.push(Turn {
                        ios,
                        seconds,
                        ios_per_s,
                        bytes_per_s,
                        mean_us,
                        percentiles_us,
                        ..Turn::default()
                    });
                }
            }
            report.points.push(point);
        }
        report.compare();
        report
    }

    #[test]
    fn gaps_have_two_bases_and_no_drift() {
        let report = synthetic();
        let gap = report.points[0].ways[2].gap.unwrap();
        assert!((gap.percent_of_floor - 25.0).abs() < 1e-9, "{gap:?}");
        assert!((gap.percent_of_own - 20.0).abs() < 1e-9, "{gap:?}");
        assert!((gap.us - 5.0).abs() < 1e-9, "the median round drifts by 2: {gap:?}");
        let (low, high) = gap.percent_of_floor_bounds.unwrap();
        assert!(high - low < 1e-6, "the ratio is the same in each round");
        assert_eq!(report.points[0].ways[0].gap, None);
        // By hand, the paper's own: 13.76 us against 18.72 us are 36 % of the floor and 26.5 % of fio's.
        let gap = Gap::of(&[(18.72, 13.76)]).unwrap();
        assert!((gap.us - 4.96).abs() < 1e-9 && (gap.percent_of_floor - 36.05).abs() < 0.01);
        assert!((gap.percent_of_own - 26.50).abs() < 0.01);
    }

    #[test]
    fn a_busy_drive_is_marked() {
        let busy: Vec<bool> = synthetic().points.iter().map(|point| point.drive_is_busy).collect();
        assert_eq!(busy, [false, false, true]);
    }

    #[test]
    fn a_report_is_stored_and_read() {
        let report = synthetic();
        let json = report.to_json().unwrap();
        let again: Report = serde_json::from_str(&json).unwrap();
        let loads = |report: &Report| report.points.iter().map(|it| it.load).collect::<Vec<_>>();
        assert_eq!(loads(&again), loads(&report));
        let (gap, same) =
            (again.points[2].ways[2].gap.unwrap(), report.points[2].ways[2].gap.unwrap());
        // Text has all digits that count, and the last one may be another.
        assert!((gap.us - same.us).abs() < 1e-9 && again.points[2].drive_is_busy);
        assert_eq!((again.format.as_str(), again.version), FORMAT);
    }
}
