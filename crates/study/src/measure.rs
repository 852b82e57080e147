//! The results of one run of one configuration, and their names.

use qpair_workload::{Direction, Latencies, RunReport};
use serde::{Deserialize, Serialize};

use crate::store::StoreFigures;

/// The results of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// The round of the run, from 0. The runs of a round are close together in time.
    pub round: u32,
    /// The block of time of a comparison; `None`: the round is a block of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u32>,
    /// The start of the run, in seconds after the start of the study.
    #[serde(default)]
    pub at_s: f64,
    /// The measured time in seconds.
    pub seconds: f64,
    /// Requests a second of all threads.
    pub ios_per_s: f64,
    /// Bytes a second of all threads.
    pub bytes_per_s: f64,
    /// Median latency from submission to completion, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of that latency, in microseconds.
    pub p99_us: f64,
    /// Mean, least and greatest latency in microseconds; zero where they were not measured.
    #[serde(default)]
    pub mean_min_max_us: (f64, f64, f64),
    /// Processor time of a request in user space, kernel and helper threads, in microseconds.
    pub cpu_us_per_io: f64,
    /// The kernel's share of [`Measure::cpu_us_per_io`].
    #[serde(default)]
    pub kernel_share: f64,
    /// The number of cores that helpers kept busy: the kernel thread of `+k`, the threads of
    /// `posix`.
    #[serde(default)]
    pub helper_cores: f64,
    /// The share of a request's time that submission took; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit_share: Option<f64>,
    /// The number of system calls for each request.
    pub system_calls_per_io: f64,
    /// The number of context switches for each request, voluntary and involuntary, of the
    /// submitting threads.
    pub switches_per_io: f64,
    /// The number of interrupts of the devices' PCI functions for each request; `None` if the
    /// functions are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts_per_io: Option<f64>,
    /// The number of instructions for each byte, of the submitting threads; `None` if the machine
    /// does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_per_byte: Option<f64>,
    /// The share of cache references that missed, of the submitting threads; `None` if the machine
    /// does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_miss_share: Option<f64>,
    /// Bytes a second for each interval of [`Measure::sample_s`] seconds, in prolonged runs only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over_time: Vec<f64>,
    /// The length of an interval of [`Measure::over_time`] in seconds.
    #[serde(default)]
    pub sample_s: f64,
    /// The latencies below which [`QUANTILES`] of the requests lie, in microseconds. Empty for
    /// comparisons, which are not plotted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles_us: Vec<f64>,
    /// The figures of a store; `None` if the point is not of a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreFigures>,
}

impl Measure {
    /// Extracts the results of a run. `over_time`: keep the time series.
    #[must_use]
    pub fn of(report: &RunReport, round: u32, over_time: bool) -> Self {
        let mut latency = Latencies::default();
        let (mut ios, mut bytes, mut cpu_s, mut calls, mut switches) = (0_u64, 0_u64, 0.0, 0, 0);
        let (mut kernel_s, mut helpers_s, mut submitting_ns) = (0.0, 0.0, 0.0);
        let mut instructions = Some(0_u64);
        let mut cache = Some((0_u64, 0_u64));
        for job in &report.jobs {
            ios += job.ios();
            bytes += Direction::ALL.iter().map(|d| job.direction(*d).bytes).sum::<u64>();
            for direction in Direction::ALL {
                let figures = job.direction(direction);
                latency.add(&figures.clat);
                submitting_ns += figures.slat.mean() * figures.slat.len() as f64;
            }
            cpu_s += job.cpu.all().as_secs_f64();
            kernel_s += (job.cpu.system + job.cpu.helpers_system).as_secs_f64();
            helpers_s += (job.cpu.helpers_user + job.cpu.helpers_system).as_secs_f64();
            calls += job.cpu.system_calls;
            switches += job.cpu.switches_voluntary + job.cpu.switches_involuntary;
            instructions = instructions.zip(job.cpu.instructions).map(|(a, b)| a + b);
            cache = cache.zip(job.cpu.cache).map(|(a, b)| (a.0 + b.0, a.1 + b.1));
        }
        let seconds = report.jobs.iter().map(|job| job.elapsed.as_secs_f64()).fold(1e-9, f64::max);
        let per_io = |amount: f64| digits(amount / ios.max(1) as f64);
        let quantile_us = |quantile| digits(latency.value_at_quantile(quantile) as f64 / 1e3);
        Self {
            round,
            block: None,
            at_s: 0.0,
            seconds: digits(seconds),
            ios_per_s: digits(report.jobs.iter().map(qpair_workload::JobReport::ios_per_s).sum()),
            bytes_per_s: digits(
                report.jobs.iter().map(qpair_workload::JobReport::bytes_per_s).sum(),
            ),
            p50_us: quantile_us(0.5),
            p99_us: quantile_us(0.99),
            mean_min_max_us: (
                digits(latency.mean() / 1e3),
                digits(latency.min() as f64 / 1e3),
                digits(latency.max() as f64 / 1e3),
            ),
            cpu_us_per_io: per_io(cpu_s * 1e6),
            kernel_share: digits(kernel_s / f64::max(cpu_s, 1e-9)),
            helper_cores: digits(helpers_s / seconds),
            submit_share: (submitting_ns > 0.0).then(|| {
                let waiting_ns = latency.mean() * latency.len() as f64;
                digits(submitting_ns / (submitting_ns + waiting_ns))
            }),
            system_calls_per_io: per_io(calls as f64),
            switches_per_io: per_io(switches as f64),
            interrupts_per_io: None,
            instructions_per_byte: instructions
                .filter(|count| *count > 0)
                .map(|count| digits(count as f64 / bytes.max(1) as f64)),
            cache_miss_share: cache
                .filter(|(references, _)| *references > 0)
                .map(|(references, misses)| digits(misses as f64 / references as f64)),
            over_time: if over_time { series(report) } else { Vec::new() },
            sample_s: if over_time { SAMPLE_S } else { 0.0 },
            quantiles_us: QUANTILES.map(quantile_us).to_vec(),
            store: None,
        }
    }

    /// Returns the block of runs that this one is averaged with.
    #[must_use]
    pub fn block(&self) -> u32 {
        self.block.unwrap_or(self.round)
    }

    /// Returns one figure; `None` if the run does not have it.
    #[must_use]
    pub fn get(&self, metric: Metric) -> Option<f64> {
        Some(match metric {
            Metric::IosPerS => self.ios_per_s,
            Metric::BytesPerS => self.bytes_per_s,
            Metric::P50Us => self.p50_us,
            Metric::P99Us => self.p99_us,
            Metric::CpuUsPerIo => self.cpu_us_per_io,
            Metric::SystemCallsPerIo => self.system_calls_per_io,
            Metric::SwitchesPerIo => self.switches_per_io,
            Metric::InterruptsPerIo => return self.interrupts_per_io,
            Metric::IosPerCpuS => 1e6 / self.cpu_us_per_io.max(1e-9),
            Metric::KernelShare => self.kernel_share,
            Metric::HelperCores => self.helper_cores,
            Metric::SubmitShare => return self.submit_share,
            Metric::CpuShare => self.cpu_us_per_io / self.p50_us.max(1e-9),
            Metric::CpuNsPerByte => {
                let bytes_per_io = self.bytes_per_s / self.ios_per_s.max(1e-9);
                self.cpu_us_per_io * 1e3 / bytes_per_io.max(1e-9)
            }
            Metric::InstructionsPerByte => return self.instructions_per_byte,
            Metric::CacheMissShare => return self.cache_miss_share,
            Metric::DeviceBytesPerOp => return self.store.map(|of| of.device_bytes_per_op),
            Metric::ReadsPerOp => return self.store.map(|of| of.reads_per_op),
            Metric::WritesPerOp => return self.store.map(|of| of.writes_per_op),
            Metric::WriteShare => {
                let share = |of: StoreFigures| {
                    of.writes_per_op / (of.reads_per_op + of.writes_per_op).max(1e-9)
                };
                return self.store.map(share);
            }
            Metric::LatencyOverRead => {
                return self.store.map(|of| of.mean_us / of.device_read_us.max(1e-9));
            }
            Metric::EvictionShare => return self.store.map(|of| of.eviction_share),
            Metric::SubmissionShare => {
                return self.store.and_then(|of| of.submission_share);
            }
        })
    }
}

/// The quantiles at which latencies are stored.
pub const QUANTILES: [f64; 12] =
    [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999];

/// The length of an interval of a prolonged run in seconds.
pub(crate) const SAMPLE_S: f64 = 1.0;

/// Returns the bytes a second of all jobs together for each interval. An incomplete last interval
/// is left out.
fn series(report: &RunReport) -> Vec<f64> {
    let pieces = report.jobs.iter().map(|job| job.series.len()).max().unwrap_or(0);
    let mut sums = vec![0.0; pieces];
    for job in &report.jobs {
        for (sum, sample) in sums.iter_mut().zip(&job.series) {
            let seconds = sample.len.as_secs_f64();
            if seconds > SAMPLE_S / 2.0 {
                *sum += sample.bytes.iter().sum::<u64>() as f64 / seconds;
            }
        }
    }
    while sums.last() == Some(&0.0) {
        sums.pop();
    }
    sums.into_iter().map(digits).collect()
}

/// Rounds to five digits, which is more than the precision of a run.
pub(crate) fn digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    // Formatting as text gives the nearest number that prints this way.
    format!("{value:.4e}").parse().unwrap_or(value)
}

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Requests a second.
    IosPerS,
    /// Bytes a second.
    BytesPerS,
    /// Median latency.
    P50Us,
    /// 99th percentile of the latency.
    P99Us,
    /// Processor time of a request.
    CpuUsPerIo,
    /// Requests per second of processor time.
    IosPerCpuS,
    /// The kernel's share of the processor time.
    KernelShare,
    /// The number of cores that helpers kept busy.
    HelperCores,
    /// The share of a request's time that submission took.
    SubmitShare,
    /// The share of the median latency that is processor time.
    CpuShare,
    /// The number of system calls for each request.
    SystemCallsPerIo,
    /// The number of context switches for each request.
    SwitchesPerIo,
    /// The number of interrupts for each request.
    InterruptsPerIo,
    /// Processor time of a byte.
    CpuNsPerByte,
    /// The number of instructions for each byte.
    InstructionsPerByte,
    /// The share of cache references that missed.
    CacheMissShare,
    /// Bytes that the device moves for each operation of a store.
    DeviceBytesPerOp,
    /// Reads of the device for each operation of a store.
    ReadsPerOp,
    /// Writes of the device for each operation of a store.
    WritesPerOp,
    /// The share of writes among the requests to the device.
    WriteShare,
    /// The mean latency of an operation divided by the mean latency of a device read.
    LatencyOverRead,
    /// The share of a store's working time that was spent on eviction.
    EvictionShare,
    /// The share of a store's working time that was spent on submitting.
    SubmissionShare,
}

impl Metric {
    /// Returns the least value used in ratios: counts per I/O may be zero, and a zero has no ratio.
    #[must_use]
    pub fn least(self) -> f64 {
        match self {
            Self::SystemCallsPerIo | Self::SwitchesPerIo | Self::InterruptsPerIo => 1e-4,
            _ => 0.0,
        }
    }

    /// Returns the name of the figure with its unit, for axes and tables, and the divisor that
    /// converts a value to that unit.
    #[must_use]
    pub fn unit(self) -> (&'static str, f64) {
        match self {
            Self::IosPerS => ("thousand I/Os per second", 1e3),
            Self::BytesPerS => ("MiB per second", 1_048_576.0),
            Self::P50Us => ("median latency, us", 1.0),
            Self::P99Us => ("99th percentile latency, us", 1.0),
            Self::CpuUsPerIo => ("CPU us per I/O", 1.0),
            Self::IosPerCpuS => ("thousand I/Os per second of processor time", 1e3),
            Self::KernelShare => ("the kernel's share of the processor time", 1.0),
            Self::HelperCores => ("cores that helpers kept busy", 1.0),
            Self::SubmitShare => ("submission's share of an I/O's time", 1.0),
            Self::CpuShare => ("processor time's share of the latency", 1.0),
            Self::SystemCallsPerIo => ("system calls per I/O", 1.0),
            Self::SwitchesPerIo => ("context switches per I/O", 1.0),
            Self::InterruptsPerIo => ("interrupts per I/O", 1.0),
            Self::CpuNsPerByte => ("CPU ns per byte", 1.0),
            Self::InstructionsPerByte => ("instructions per byte", 1.0),
            Self::CacheMissShare => ("cache misses per reference", 1.0),
            Self::DeviceBytesPerOp => ("KiB of the device per operation", 1024.0),
            Self::ReadsPerOp => ("reads of the device per operation", 1.0),
            Self::WritesPerOp => ("writes of the device per operation", 1.0),
            Self::WriteShare => ("writes' share of the requests", 1.0),
            Self::LatencyOverRead => ("mean latency, in reads of the device", 1.0),
            Self::EvictionShare => ("eviction's share of the workers' time", 1.0),
            Self::SubmissionShare => ("submission's share of the workers' time", 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_kept_and_dropped() {
        assert_eq!(digits(123_456.789), 123_460.0);
        assert_eq!(digits(0.001_234_567), 0.001_234_6);
        assert_eq!(digits(0.0), 0.0);
        assert_eq!(digits(f64::NAN), 0.0);
    }

    #[test]
    fn cost_of_a_byte() {
        let measure = Measure {
            ios_per_s: 1000.0,
            bytes_per_s: 4_096_000.0,
            cpu_us_per_io: 4.096,
            ..Measure::default()
        };
        assert!((measure.get(Metric::CpuNsPerByte).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(measure.get(Metric::InstructionsPerByte), None);
    }
}
