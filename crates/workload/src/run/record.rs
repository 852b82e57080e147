//! Counters and histograms that a job's thread keeps while it runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::job::{Direction, Measured};
use crate::report::{DirectionReport, Sample};

use super::histograms::Histograms;

/// The state of a running job that the watcher sees. Only the job's thread writes it, once per
/// turn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shown {
    pub(crate) ios: [AtomicU64; 3],
    pub(crate) bytes: [AtomicU64; 3],
    /// 0: not begun, 1: ramp, 2: measuring, 3: verifying, 4: over.
    pub(crate) phase: AtomicU64,
}

impl Shown {
    /// Whether the job is past its ramp and before its end.
    pub(crate) fn is_measured(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == 2
    }

    /// Whether the job has begun and is not over.
    pub(crate) fn is_running(&self) -> bool {
        (1..4).contains(&self.phase.load(Ordering::Relaxed))
    }

    /// Returns the requests and bytes of all directions.
    pub(crate) fn sums(&self) -> (u64, u64) {
        let sum = |counts: &[AtomicU64; 3]| counts.iter().map(|c| c.load(Ordering::Relaxed)).sum();
        (sum(&self.ios), sum(&self.bytes))
    }
}

/// The stamps of one request, nanoseconds on the run's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamps {
    /// The planned start; for requests without a plan, the real start.
    pub(crate) intended_ns: u64,
    pub(crate) start_ns: u64,
    /// The time at which the submitting call returned.
    pub(crate) issued_ns: u64,
}

pub(crate) struct Record {
    pub(crate) directions: [DirectionReport; 3],
    pub(crate) flushes: DirectionReport,
    pub(crate) series: Vec<Sample>,
    pub(crate) depth_classes: [u64; 7],
    pub(crate) submit_classes: [u64; 7],
    pub(crate) complete_classes: [u64; 7],
    pub(crate) late_ns_max: u64,
    pub(crate) histograms: Option<Histograms>,
    sample: Sample,
    /// The beginning of the measurement, the beginning of the sample, and its end.
    begin_ns: u64,
    sample_begin_ns: u64,
    sample_end_ns: u64,
    sample_ns: u64,
    measured: Measured,
}

impl Record {
    pub(crate) fn new(measured: Measured, sample: Duration) -> Self {
        Self {
            directions: std::array::from_fn(|_| DirectionReport::default()),
            flushes: DirectionReport::default(),
            series: Vec::new(),
            depth_classes: [0; 7],
            submit_classes: [0; 7],
            complete_classes: [0; 7],
            late_ns_max: 0,
            histograms: None,
            sample: Sample::default(),
            begin_ns: 0,
            sample_begin_ns: 0,
            sample_end_ns: 0,
            sample_ns: u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX).max(1),
            measured,
        }
    }

    /// Adds histograms over time, each of an interval of this length.
    pub(crate) fn with_histograms(mut self, every: Option<Duration>) -> Self {
        self.histograms = every.map(|every| Histograms::new(every, 0));
        self
    }

    /// Discards all measurements, and measures from now on.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        let sample = Duration::from_nanos(self.sample_ns);
        *self = Self {
            begin_ns: now_ns,
            sample_begin_ns: now_ns,
            sample_end_ns: now_ns + self.sample_ns,
            histograms: self.histograms.as_ref().map(|some| some.again(now_ns)),
            ..Self::new(self.measured, sample)
        };
    }

    /// Returns a copy without the histograms over time.
    pub(crate) fn copy(&self) -> Self {
        Self {
            directions: self.directions.clone(),
            flushes: self.flushes.clone(),
            series: self.series.clone(),
            histograms: None,
            ..*self
        }
    }

    /// Returns a copy as if the measurement ended now, without the histograms over time.
    pub(crate) fn so_far(&self, now_ns: u64) -> Self {
        let mut copy = self.copy();
        copy.end(now_ns);
        copy
    }

    /// Returns a similar record that begins and ends now.
    pub(crate) fn nothing(&self, now_ns: u64) -> Self {
        let mut empty = Self::new(self.measured, Duration::from_nanos(self.sample_ns));
        empty.begin(now_ns);
        empty.end(now_ns);
        empty
    }

    /// Returns the beginning of the measurement, in nanoseconds on the run's clock.
    pub(crate) fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    #[inline]
    pub(crate) fn done(&mut self, direction: Direction, len_bytes: u32, stamps: Stamps, now: u64) {
        let at = direction as usize;
        let figures = &mut self.directions[at];
        figures.ios += 1;
        figures.bytes += u64::from(len_bytes);
        let lat_ns = now.saturating_sub(stamps.intended_ns);
        let sample = &mut self.sample;
        sample.ios[at] += 1;
        sample.bytes[at] += u64::from(len_bytes);
        sample.lat_ns_sum[at] += lat_ns;
        sample.lat_ns_max[at] = sample.lat_ns_max[at].max(lat_ns);
        if self.measured.slat {
            let slat_ns = stamps.issued_ns.saturating_sub(stamps.start_ns);
            sample.slat_ns_sum[at] += slat_ns;
            figures.slat.record(slat_ns);
        }
        if self.measured.clat {
            let from = if self.measured.slat { stamps.issued_ns } else { stamps.start_ns };
            let clat_ns = now.saturating_sub(from);
            sample.clat_ns_sum[at] += clat_ns;
            figures.clat.record(clat_ns);
            if let Some(histograms) = &mut self.histograms {
                histograms.record(direction, len_bytes, clat_ns);
            }
        }
        if self.measured.lat {
            figures.lat.record(lat_ns);
        }
    }

    pub(crate) fn flushed(&mut self, stamps: Stamps, now: u64) {
        self.flushes.ios += 1;
        self.flushes.lat.record(now.saturating_sub(stamps.start_ns));
    }

    #[inline]
    pub(crate) fn late(&mut self, late_ns: u64) {
        self.late_ns_max = self.late_ns_max.max(late_ns);
    }

    #[inline]
    pub(crate) fn submitted(&mut self, count: u32, in_flight: u32) {
        self.submit_classes[batch_class(count)] += 1;
        // Count the requests of a batch one by one, as fio does. Each counts with the depth after
        // the batch.
        self.depth_classes[depth_class(in_flight)] += u64::from(count);
    }

    #[inline]
    pub(crate) fn completed(&mut self, count: u32) {
        self.complete_classes[batch_class(count)] += 1;
    }

    /// Closes samples that are over.
    #[inline]
    pub(crate) fn turn(&mut self, now_ns: u64, shown: &Shown) {
        for at in 0..3 {
            shown.ios[at].store(self.directions[at].ios, Ordering::Relaxed);
            shown.bytes[at].store(self.directions[at].bytes, Ordering::Relaxed);
        }
        if let Some(histograms) = &mut self.histograms {
            histograms.turn(now_ns);
        }
        if now_ns >= self.sample_end_ns {
            // Samples end at multiples of their length, however late the end is noticed.
            let over_ns = now_ns - self.sample_end_ns;
            self.close_sample(now_ns - over_ns % self.sample_ns);
        }
    }

    fn close_sample(&mut self, end_ns: u64) {
        self.sample.end = Duration::from_nanos(end_ns - self.begin_ns);
        self.sample.len = Duration::from_nanos(end_ns - self.sample_begin_ns);
        self.series.push(std::mem::take(&mut self.sample));
        self.sample_begin_ns = end_ns;
        self.sample_end_ns = end_ns.saturating_add(self.sample_ns);
    }

    /// Closes the last sample, if it is long enough to be meaningful.
    pub(crate) fn end(&mut self, now_ns: u64) {
        if let Some(histograms) = &mut self.histograms {
            histograms.close(now_ns);
        }
        let len_ns = now_ns.saturating_sub(self.sample_begin_ns);
        if self.series.is_empty() || len_ns > self.sample_ns / 10 {
            self.close_sample(now_ns.max(self.sample_begin_ns));
        }
    }
}

/// Returns fio's class of a batch: 0, up to 4, 8, 16, 32, 64, more.
#[inline]
fn batch_class(count: u32) -> usize {
    match count {
        0 => 0,
        1..=4 => 1,
        5..=8 => 2,
        9..=16 => 3,
        17..=32 => 4,
        33..=64 => 5,
        _ => 6,
    }
}

/// Returns fio's class of a depth: 1, 2, 4, 8, 16, 32, 64 and more.
#[inline]
fn depth_class(depth: u32) -> usize {
    depth.max(1).ilog2().min(6) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Latencies;

    /// A job has memory only for the latencies that it measures, and no latency is cut off.
    #[test]
    fn histograms_have_memory_once_they_are_used() {
        let mut record =
            Record::new(Measured { slat: false, clat: true, lat: false }, Duration::MAX);
        let hour_ns = 3600 * 1_000_000_000;
        record.done(Direction::Write, 4096, Stamps::default(), hour_ns);
        for (at, direction) in record.directions.iter().enumerate() {
            let used = [&direction.slat, &direction.clat, &direction.lat].map(Latencies::is_used);
            assert_eq!(used, [false, at == 1, false]);
        }
        assert!(!record.flushes.lat.is_used());
        assert!(record.directions[1].clat.max() >= hour_ns);
    }

    #[test]
    fn samples_end_on_the_grid() {
        let measured = Measured { slat: false, clat: false, lat: false };
        let mut record = Record::new(measured, Duration::from_secs(1));
        let shown = Shown::default();
        record.begin(500);
        let ms = 1_000_000;
        for now_ns in [999, 1001, 2100, 2999, 5300, 6000] {
            record.turn(500 + now_ns * ms, &shown);
        }
        record.end(500 + 6400 * ms);
        let ends: Vec<_> = record.series.iter().map(|sample| sample.end.as_millis()).collect();
        let lens: Vec<_> = record.series.iter().map(|sample| sample.len.as_millis()).collect();
        assert_eq!(
            (ends, lens),
            (vec![1000, 2000, 5000, 6000, 6400], vec![1000, 1000, 3000, 1000, 400])
        );
    }
}
