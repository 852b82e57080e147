//! The rule by which `auto` changes: from what the machine has and the counters of one window to
//! the way for the next one, with a reason.
//!
//! Invariants:
//! - The rule reads no clock and makes no call: the same inputs give the same ways.
//! - In any hour there are at most [`CHANGES_MAX`] changes.
//! - In a way that spins, at least one change is left, with which the rule goes back to interrupts.

mod judgement;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use self::judgement::{Known, Sample, Trial, Verdict};
use super::way::{Family, Way};

/// The maximum number of changes in any hour, those of trials included.
pub(crate) const CHANGES_MAX: usize = 40;
const HOUR_S: f64 = 3600.0;
/// The number of changes that must be left for a trial: four of its own, one to interrupts, and one
/// to spare.
const CHANGES_OF_TRIAL: usize = 6;
/// The number of changes that must be left to take a way that is known: its own, and one to
/// interrupts.
const CHANGES_OF_KNOWN: usize = 2;

/// Fewer requests a second than this are no load.
const QUIET_IOPS: f64 = 2000.0;
/// The number of windows after which quiet, or a crowd, is believed.
const BELIEVED: u32 = 3;
/// The number of windows of one class after which a load is steady.
const STEADY: u32 = 2;

/// The part of a core that others may use of those that a way needs when the way is taken.
const CROWD_TO_START: f64 = 0.3;
/// The part of a core beyond which others crowd a way out.
const CROWD_TO_LEAVE: f64 = 0.7;

/// The result of asking the machine, for the channels of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Means {
    /// The number of cores that the process may use.
    pub(crate) cores: f64,
    /// The ways that may be tried, in this order. Interrupts are always possible.
    pub(crate) ways: Vec<Way>,
}

/// The counters of a stretch of time in which no channel changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// The mean number of requests in flight.
    pub(crate) depth: f64,
    /// The processor time for these requests in seconds, with that of kernel threads.
    pub(crate) cpu_s: f64,
    /// The mean number of cores in use by others.
    pub(crate) others: f64,
}

/// Loads of one class are treated alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    depth: usize,
    size: usize,
}

const DEPTHS: [&str; 4] = ["1 to 2", "3 to 8", "9 to 64", "over 64"];
const SIZES: usize = 3;

impl Class {
    const COUNT: usize = DEPTHS.len() * SIZES;

    fn of(window: &Window) -> Self {
        let depth = [2.5, 8.5, 64.5].iter().filter(|limit| window.depth > **limit).count();
        let mean_bytes = window.bytes / window.requests.max(1);
        let size = [16 << 10, 128 << 10].iter().filter(|limit| mean_bytes > **limit).count();
        Self { depth, size }
    }

    fn index(self) -> usize {
        self.depth * SIZES + self.size
    }

    fn depth_in_words(self) -> &'static str {
        DEPTHS[self.depth]
    }
}

/// The state of the rule.
#[derive(Debug)]
pub(crate) struct Rule {
    family: &'static Family,
    way: Way,
    /// The way before the last change.
    previous: Way,
    reason: String,
    /// The reason for which the present way was taken, without those of trials after that.
    chosen: String,
    class: Option<Class>,
    steady: u32,
    quiet: u32,
    crowded: u32,
    trial: Option<Trial>,
    known: [Known; Class::COUNT],
    /// Ways that could not be opened.
    refused: [bool; Way::ALL.len()],
    /// The times of the last changes, the oldest first.
    changes: VecDeque<f64>,
}

impl Rule {
    /// Returns the rule of a thread that begins with `way`.
    pub(crate) fn new(family: &'static Family, way: Way, reason: String) -> Self {
        Self {
            family,
            way,
            previous: Way::Interrupts,
            chosen: reason.clone(),
            reason,
            class: None,
            steady: 0,
            quiet: 0,
            crowded: 0,
            trial: None,
            known: Default::default(),
            refused: Default::default(),
            changes: VecDeque::with_capacity(CHANGES_MAX + 1),
        }
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Returns the reason for the way, as a sentence without a full stop.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn is_in_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Notes that a way could not be opened. The way is not tried again.
    pub(crate) fn refuse(&mut self, way: Way, why: &str) {
        self.refused[way.index()] = true;
        self.trial = None;
        self.steady = 0;
        for known in &mut self.known {
            known.forget(way);
        }
        if self.way == way {
            // The change was counted. It happens to a way once, so the way back is not.
            let back = self.previous;
            self.way = if self.refused[back.index()] { Way::Interrupts } else { back };
        }
        self.reason = format!("{} cannot be used: {why}", self.name_of(way));
    }

    fn name_of(&self, way: Way) -> &'static str {
        (self.family.name_of)(way)
    }

    /// Takes the counters of a window that ends at `now_s`, and returns whether the way changes.
    ///
    /// `may_try` says whether a trial may begin: no other thread of the process tries.
    pub(crate) fn step(
        &mut self,
        means: &Means,
        window: &Window,
        now_s: f64,
        may_try: bool,
    ) -> bool {
        let before = self.way;
        let sample = Sample::of(window);
        if sample.iops < QUIET_IOPS {
            self.on_quiet(now_s);
        } else {
            self.quiet = 0;
            if !self.on_crowd(means, window, now_s) {
                let class = Class::of(window);
                match self.trial.take() {
                    Some(trial) => self.on_trial(trial, class, sample, now_s),
                    None => self.on_load(means, window, sample, now_s, may_try),
                }
            }
        }
        self.way != before
    }

    fn on_quiet(&mut self, now_s: f64) {
        self.class = None;
        self.steady = 0;
        self.quiet += 1;
        if let Some(trial) = self.trial.take() {
            self.go(trial.from, now_s, self.chosen.clone());
        }
        if self.quiet >= BELIEVED && self.way.spins() {
            let why = format!("fewer than {QUIET_IOPS:.0} requests/s need no processor that waits");
            self.choose(Way::Interrupts, now_s, why);
        }
    }

    /// Leaves a way for whose core others compete. Returns whether that is the case.
    fn on_crowd(&mut self, means: &Means, window: &Window, now_s: f64) -> bool {
        let needs = self.family.needs(self.way);
        let crowd = needs.filter(|(cores, _)| window.others > means.cores - cores + CROWD_TO_LEAVE);
        let Some((_, what)) = crowd else {
            self.crowded = 0;
            return false;
        };
        self.crowded += 1;
        if self.crowded < BELIEVED {
            return false;
        }
        self.crowded = 0;
        self.trial = None;
        let why = format!(
            "others use {:.1} of {:.0} cores, so {what} has none",
            window.others, means.cores
        );
        self.choose(Way::Interrupts, now_s, why);
        true
    }

    fn on_load(
        &mut self,
        means: &Means,
        window: &Window,
        sample: Sample,
        now_s: f64,
        may_try: bool,
    ) {
        let class = Class::of(window);
        self.steady = if self.class == Some(class) { self.steady + 1 } else { 1 };
        self.class = Some(class);
        if self.steady < STEADY {
            return;
        }
        let best = self.known[class.index()].best;
        if let Some(best) = best.filter(|best| *best != self.way) {
            if self.may_use(best, means, window) && self.may_take_known(now_s) {
                let (name, words) = (self.name_of(best), class.depth_in_words());
                self.choose(best, now_s, format!("{name} was the best before at depth {words}"));
            }
            return;
        }
        if !may_try || self.left(now_s) < CHANGES_OF_TRIAL {
            return;
        }
        let known = &self.known[class.index()];
        let candidates = [Way::Interrupts].into_iter().chain(means.ways.iter().copied());
        let next = candidates
            .filter(|way| *way != self.way && self.may_use(*way, means, window))
            .find(|way| known.is_due(*way, now_s));
        if let Some(way) = next {
            self.trial = Some(Trial::new(self.family, class.index(), self.way, way, sample));
            self.go(way, now_s, format!("{} is tried", self.name_of(way)));
        }
    }

    fn on_trial(&mut self, mut trial: Trial, class: Class, sample: Sample, now_s: f64) {
        let verdict = match class.index() == trial.class {
            true => trial.take(sample),
            false => Some(Verdict::lost("the load changed during the trial".to_owned())),
        };
        let (from, tried) = (trial.from, trial.way);
        match verdict {
            None => {
                // The two ways take turns.
                let next = if self.way == tried { from } else { tried };
                self.trial = Some(trial);
                self.go(next, now_s, format!("{} is tried", self.name_of(tried)));
            }
            Some(verdict) => {
                let known = &mut self.known[trial.class];
                let words = class.depth_in_words();
                let (way, other) = if verdict.won { (tried, from) } else { (from, tried) };
                known.judge(way, other, now_s);
                self.steady = 0;
                let why = format!("at depth {words} {}", verdict.why);
                if verdict.won {
                    self.choose(way, now_s, why);
                } else {
                    self.go(way, now_s, format!("{}; {why}", self.chosen));
                }
            }
        }
    }

    fn may_use(&self, way: Way, means: &Means, window: &Window) -> bool {
        let has_core = self
            .family
            .needs(way)
            .is_none_or(|(cores, _)| window.others <= means.cores - cores + CROWD_TO_START);
        !self.refused[way.index()] && has_core
    }

    /// Whether a known way may be taken: changes are left, and the last one was long enough ago.
    /// The more changes there were in the last hour, the longer that is.
    fn may_take_known(&mut self, now_s: f64) -> bool {
        let left = self.left(now_s);
        let wait_s = 0.5 * f64::exp2((CHANGES_MAX - left) as f64 / 4.0);
        let last = self.changes.back();
        left >= CHANGES_OF_KNOWN && last.is_none_or(|last| now_s - last >= wait_s)
    }

    /// Returns the number of changes that are left for now.
    fn left(&mut self, now_s: f64) -> usize {
        while self.changes.front().is_some_and(|first| now_s - first >= HOUR_S) {
            self.changes.pop_front();
        }
        CHANGES_MAX - self.changes.len()
    }

    /// Goes to a way for good.
    fn choose(&mut self, way: Way, now_s: f64, why: String) {
        self.chosen.clone_from(&why);
        self.go(way, now_s, why);
    }

    fn go(&mut self, way: Way, now_s: f64, why: String) {
        if way != self.way {
            if self.left(now_s) == 0 {
                let name = self.name_of(self.way);
                self.reason =
                    format!("{CHANGES_MAX} changes an hour are the limit, so {name} stays");
                return;
            }
            self.changes.push_back(now_s);
            self.previous = std::mem::replace(&mut self.way, way);
        }
        self.reason = why;
    }
}
