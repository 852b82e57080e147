//! The results of a floor measurement.

use qpair_block::{Error, ErrorKind, Result};
use qpair_plots::{Interval, median};
use qpair_workload::Latencies;
use serde::{Deserialize, Serialize};

use crate::load::Load;

/// The name and version of the format, which every file states.
const FORMAT: (&str, u32) = ("qpair-floor", 1);

/// A way to reach the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Prebuilt commands and nothing else, by this project's kernel module if there is one,
    /// otherwise by its driver. For a SCSI disk of its driver: commands that are posted to the
    /// low-level driver directly.
    Floor,
    /// Prebuilt commands by this project's driver, measured in addition to the module.
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
    /// The ways that need only this project's driver, the lowest first.
    pub const USER: [Self; 3] = [Self::Floor, Self::Driver, Self::Stack];

    /// Returns the name of the way.
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

    /// Returns a description of the way.
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

/// The results of one turn of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The number of counted I/Os.
    pub ios: u64,
    /// The time in which I/Os were counted, in seconds.
    pub seconds: f64,
    /// I/Os a second of all jobs.
    pub ios_per_s: f64,
    /// Bytes a second of all jobs.
    pub bytes_per_s: f64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// The 50th, 90th, 99th and 99.9th percentiles of latency in microseconds.
    pub percentiles_us: [f64; 4],
    /// Commands sent and submission doorbells rung in the whole turn, including ramp and end;
    /// `None` except for the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands_and_doorbells: Option<(u64, u64)>,
    /// The number of negative latencies, which result from different clocks of two processors and
    /// count as zero. Only the module's floor has them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub backwards: u64,
    /// System calls of the measured time; `None` if they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_calls: Option<u64>,
    /// I/Os whose data the driver copied; `None` if they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<u64>,
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

/// The difference between the latency of a way and of the floor, from pairs of turns of one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// The median of the way's mean latency minus the floor's, in microseconds.
    pub us: f64,
    /// The gap in percent of the floor's mean latency.
    pub percent_of_floor: f64,
    /// The 95 % interval of [`Gap::percent_of_floor`].
    pub percent_of_floor_bounds: Option<(f64, f64)>,
    /// The gap in percent of the way's own mean latency.
    pub percent_of_own: f64,
}

impl Gap {
    /// Computes the gap from pairs of the way's and the floor's mean latency.
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

/// The work that a way's I/Os cost, counted in a turn of its own without a ramp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    pub ios: u64,
    /// The interrupts of the drive's controller, of all its drives; `None` if the drive has no
    /// known PCI function.
    pub interrupts: Option<u64>,
    /// As [`Turn::commands_and_doorbells`].
    pub doorbells: Option<u64>,
    /// As [`Turn::system_calls`].
    pub system_calls: Option<u64>,
    /// As [`Turn::copied`].
    pub copied: Option<u64>,
    /// The processor time of this program in microseconds, in user mode and in the kernel; `None`
    /// if another program or the kernel itself ran the I/Os.
    pub processor_us: Option<f64>,
}

/// The turns of one way, by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turns {
    pub way: Way,
    /// The counted work; `None` if the run was ended before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// The turns, one for each round.
    pub turns: Vec<Turn>,
    /// The gap to the floor; `None` for the floor itself.
    pub gap: Option<Gap>,
}

impl Turns {
    /// Returns the interval of a figure over all turns.
    #[must_use]
    pub fn interval(&self, figure: impl Fn(&Turn) -> f64) -> Option<Interval> {
        Interval::of(&self.turns.iter().map(figure).collect::<Vec<f64>>())
    }
}

/// The breakdown of the time of an I/O over the kernel, from tracepoints in a separate turn. All
/// times are means in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// The number of I/Os that were seen at every tracepoint.
    pub ios: u64,
    /// The whole time, as the program measures it.
    pub mean_us: f64,
    /// The time before and after the block layer: system calls, wake-ups and the program itself.
    pub interface_us: f64,
    /// The time in the block layer, from the queue to the driver.
    pub block_us: f64,
    /// The time from the driver to the completion minus the floor: the driver and its interrupt.
    pub driver_us: f64,
    /// The floor's mean time: the device.
    pub device_us: f64,
}

/// The results of a load over all ways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    #[serde(flatten)]
    pub load: Load,
    /// The turns of each [`Way`].
    pub ways: Vec<Turns>,
    /// Whether the drive is busy: the floor's IOPS hardly grow with the depth, so gaps say nothing
    /// about software.
    pub drive_is_busy: bool,
    /// The breakdown of the time of [`Way::IoUring`], if it could be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts>,
}

impl Point {
    pub(crate) fn new(load: Load, ways: &[Way]) -> Self {
        let of = |way: &Way| Turns { way: *way, counts: None, turns: Vec::new(), gap: None };
        let ways = ways.iter().map(of).collect();
        Self { load, ways, drive_is_busy: false, parts: None }
    }

    pub(crate) fn floor(&self) -> Option<&Turns> {
        self.ways.iter().find(|turns| turns.way == Way::Floor)
    }

    /// Computes the gaps.
    fn compare(&mut self) {
        let Some(floor) = self.floor().map(|floor| floor.turns.clone()) else { return };
        for way in self.ways.iter_mut().filter(|way| way.way != Way::Floor) {
            let pairs =
                way.turns.iter().zip(&floor).map(|(own, floor)| (own.mean_us, floor.mean_us));
            way.gap = Gap::of(&pairs.collect::<Vec<_>>());
        }
    }
}

/// The results of all loads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The name of the format: `qpair-floor`.
    pub format: String,
    /// The version of the format.
    pub version: u32,
    /// The version of the program.
    pub program: String,
    /// The start of the run, in seconds since 1970.
    pub begun_s: u64,
    pub machine: qpair_machine::Machine,
    /// The name of the drive, as it was given.
    pub device: String,
    /// The driver and mode of the drive.
    pub mode: String,
    /// The length of a turn in seconds.
    pub seconds: f64,
    /// The requested number of rounds.
    pub repeat: u32,
    /// Notes for the reader, such as loads that were left out, and why.
    pub notes: Vec<String>,
    /// Whether the run was ended early, so that points have fewer rounds.
    pub interrupted: bool,
    /// The loads.
    pub points: Vec<Point>,
}

/// The smallest ratio of IOPS between two depths that counts as growth.
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

    /// Returns the ways that were measured.
    pub(crate) fn ways(&self) -> Vec<Way> {
        self.points
            .first()
            .map_or_else(Vec::new, |point| point.ways.iter().map(|turns| turns.way).collect())
    }

    /// Computes the gaps, and the depths at which the drive is busy.
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

    /// Serializes the report as JSON.
    ///
    /// # Errors
    /// `Invalid` if that fails, which would be a bug.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("storing a report: {error}")))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::load::Workload;

    /// Returns a report of synthetic turns: the floor takes 10 us at depth 1, and the drive is busy
    /// from depth 4 on.
    pub(crate) fn synthetic() -> Report {
        let mut report = Report::new("softnvme:size=1MiB".into(), "synthetic".into(), 0.5, 3);
        for depth in [1, 4, 16] {
            let workload = Workload::named("randread").unwrap();
            let mut point = Point::new(Load { workload, depth, jobs: 1 }, &Way::USER);
            for (ways, extra_us) in point.ways.iter_mut().zip([0.0, 1.0, 2.5]) {
                for round in 0..3 {
                    // The drive drifts from round to round, by the same factor for all ways.
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
        // The paper's own numbers: 13.76 us against 18.72 us are 36 % of the floor and 26.5 % of
        // fio's latency.
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
        // The text has all significant digits, but the last one may differ.
        assert!((gap.us - same.us).abs() < 1e-9 && again.points[2].drive_is_busy);
        assert_eq!((again.format.as_str(), again.version), FORMAT);
    }
}
