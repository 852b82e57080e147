//! Trials of one way beside another, and what is known after them.

use super::super::way::{Family, Way};
use super::Window;

/// The gain in requests for which a way is taken.
const GAIN: f64 = 1.03;
/// The gain of each window over each where a request costs more processor time than [`AS_DEAR`]
/// times as much: the drive's own ups and downs must not buy that.
const CLEAR_GAIN: f64 = 1.05;
const AS_DEAR: f64 = 1.03;
/// The part of the other way's requests from which a way counts as giving as many.
const ALIKE: f64 = 0.98;
/// The part of the processor time for which a way with as many requests is taken.
const CHEAPER: f64 = 0.93;
/// The part of the requests below which a first window ends a trial.
const HOPELESS: f64 = 0.85;
/// The gain in requests below which much more processor time ends a trial.
const HARDLY: f64 = 1.03;
const DEARER: f64 = 1.5;

/// The time after which a way that lost is tried again, at first and at most, in seconds.
const AGAIN_S: f64 = 60.0;
const AGAIN_MAX_S: f64 = 3600.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) iops: f64,
    cpu_us: f64,
}

impl Sample {
    pub(super) fn of(window: &Window) -> Self {
        let requests = window.requests as f64;
        Self {
            iops: requests / window.seconds.max(1e-6),
            cpu_us: window.cpu_s * 1e6 / requests.max(1.0),
        }
    }
}

/// A trial: windows of two ways in turn, of which the first was before the trial.
#[derive(Debug)]
pub(super) struct Trial {
    family: &'static Family,
    pub(super) class: usize,
    pub(super) from: Way,
    pub(super) way: Way,
    base: Vec<Sample>,
    tried: Vec<Sample>,
}

#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) won: bool,
    pub(super) why: String,
}

impl Verdict {
    pub(super) fn lost(why: String) -> Self {
        Self { won: false, why }
    }
}

impl Trial {
    pub(super) fn new(
        family: &'static Family,
        class: usize,
        from: Way,
        way: Way,
        base: Sample,
    ) -> Self {
        Self { family, class, from, way, base: vec![base], tried: Vec::new() }
    }

    /// Takes the next window. Returns the verdict, once there is one.
    pub(super) fn take(&mut self, sample: Sample) -> Option<Verdict> {
        match self.base.len() == self.tried.len() {
            true => self.base.push(sample),
            false => self.tried.push(sample),
        }
        let (iops, cpu) = self.ratios();
        let hopeless = iops < HOPELESS || (iops < HARDLY && cpu > DEARER);
        match self.tried.len() {
            1 if self.base.len() == 1 && hopeless => Some(self.verdict()),
            0 | 1 => None,
            _ => Some(self.verdict()),
        }
    }

    /// Returns the tried way's requests and processor time for each, relative to the other's.
    fn ratios(&self) -> (f64, f64) {
        let mean = |samples: &[Sample], of: fn(&Sample) -> f64| {
            samples.iter().map(of).sum::<f64>() / samples.len().max(1) as f64
        };
        let ratio = |of: fn(&Sample) -> f64| mean(&self.tried, of) / mean(&self.base, of).max(1e-9);
        (ratio(|sample| sample.iops), ratio(|sample| sample.cpu_us))
    }

    fn verdict(&self) -> Verdict {
        let name_of = self.family.name_of;
        let (from, way, (iops, cpu)) = (name_of(self.from), name_of(self.way), self.ratios());
        let each = |is_better: &dyn Fn(&Sample, &Sample) -> bool| {
            self.tried.iter().all(|tried| self.base.iter().all(|base| is_better(tried, base)))
        };
        let least = if cpu > AS_DEAR { CLEAR_GAIN } else { 1.0 };
        let more = iops >= GAIN && each(&|tried, base| tried.iops > base.iops * least);
        let cheaper =
            iops >= ALIKE && cpu <= CHEAPER && each(&|tried, base| tried.cpu_us < base.cpu_us);
        let what = format!(
            "{way} gave {iops:.2} times the requests of {from} for {cpu:.2} times its processor time each"
        );
        match more || cheaper {
            true => Verdict { won: true, why: what },
            false => Verdict::lost(format!("{what}, so {from} stays")),
        }
    }
}

/// The results of trials for loads of one class.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) best: Option<Way>,
    lost: [Option<Lost>; Way::ALL.len()],
}

#[derive(Clone, Copy, Debug)]
struct Lost {
    at_s: f64,
    times: u32,
}

impl Known {
    pub(super) fn judge(&mut self, won: Way, lost: Way, now_s: f64) {
        self.best = Some(won);
        let times = self.lost[lost.index()].map_or(0, |lost| lost.times) + 1;
        self.lost[lost.index()] = Some(Lost { at_s: now_s, times });
        self.lost[won.index()] = None;
    }

    pub(super) fn is_due(&self, way: Way, now_s: f64) -> bool {
        self.lost[way.index()].is_none_or(|lost| {
            let wait_s = AGAIN_S * f64::exp2(f64::from(lost.times.min(16) - 1));
            now_s - lost.at_s >= wait_s.min(AGAIN_MAX_S)
        })
    }

    pub(super) fn forget(&mut self, way: Way) {
        if self.best == Some(way) {
            self.best = None;
        }
    }
}
