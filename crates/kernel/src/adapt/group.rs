//! The adaptive channels of one thread and family, which change together, and their windows.
//!
//! Invariants:
//! - A window begins after the last change of any channel of the group, and contains none.
//! - `epoch` changes whenever the way or the reason does.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::process::{CHANNELS, Clocks, REQUESTS, Turn};
use super::rule::{self, Rule, Window};
use super::way::Way;
use super::ways::Ways;

/// The length of a window. Shorter ones would be mostly noise: a core's clock of /proc/stat has
/// ticks of 10 ms.
const WINDOW: Duration = Duration::from_millis(100);

thread_local! {
    /// The groups of this thread, one for each family of devices.
    static GROUPS: RefCell<Vec<(&'static str, Weak<Group>)>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
pub(super) struct Group {
    plan: RefCell<Plan>,
    way: Cell<Way>,
    epoch: Cell<u32>,
    counts: Cell<Counts>,
    begun: Cell<(Instant, Clocks)>,
    birth: Instant,
}

#[derive(Debug)]
enum Plan {
    Measure {
        rule: Box<Rule>,
        means: rule::Means,
        /// Whether there are ways with submission threads.
        has_threads: bool,
        turn: Option<Turn>,
    },
    /// Tests change after a number of looks, to each of the ways in turn.
    #[cfg(test)]
    Forced { ways: Vec<Way>, next: usize },
}

/// The counts of the channels since the window began.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    bytes: u64,
    depths: u64,
    looks: u64,
}

impl Group {
    /// Returns the group of this thread, for a channel to a device with these ways. If the thread
    /// has channels of the family already, the group is left with the ways that all devices have.
    pub(super) fn join(ways: &Ways) -> Rc<Self> {
        let family = ways.family;
        let is_its = |(name, _): &&(&str, Weak<Self>)| *name == family.name;
        let known = GROUPS.with_borrow(|groups| groups.iter().find(is_its)?.1.upgrade());
        if let Some(group) = known {
            group.limit(&ways.others);
            return group;
        }
        let has_threads = ways.has_threads;
        let means = rule::Means { cores: ways.cores, ways: ways.others.clone() };
        let rule = Box::new(Rule::new(family, ways.start, ways.why.clone()));
        let plan = Plan::Measure { rule, means, has_threads, turn: None };
        let group = Rc::new(Self::with(plan, ways.start));
        GROUPS.with_borrow_mut(|groups| {
            groups.retain(|(name, _)| *name != family.name);
            groups.push((family.name, Rc::downgrade(&group)));
        });
        group
    }

    fn limit(&self, ways: &[Way]) {
        match &mut *self.plan.borrow_mut() {
            Plan::Measure { means, .. } => means.ways.retain(|way| ways.contains(way)),
            #[cfg(test)]
            Plan::Forced { .. } => {}
        }
    }

    #[cfg(test)]
    pub(super) fn forced(ways: Vec<Way>) -> Rc<Self> {
        Rc::new(Self::with(Plan::Forced { ways, next: 0 }, Way::Interrupts))
    }

    fn with(plan: Plan, way: Way) -> Self {
        let now = Instant::now();
        Self {
            plan: RefCell::new(plan),
            way: Cell::new(way),
            epoch: Cell::new(0),
            counts: Cell::default(),
            begun: Cell::new((now, Clocks::read())),
            birth: now,
        }
    }

    #[inline]
    pub(super) fn way(&self) -> Way {
        self.way.get()
    }

    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    pub(super) fn is_in_trial(&self) -> bool {
        match &*self.plan.borrow() {
            Plan::Measure { rule, .. } => rule.is_in_trial(),
            #[cfg(test)]
            Plan::Forced { .. } => false,
        }
    }

    pub(super) fn reason(&self) -> String {
        match &*self.plan.borrow() {
            Plan::Measure { rule, .. } => rule.reason().to_owned(),
            #[cfg(test)]
            Plan::Forced { .. } => "a test forces it".to_owned(),
        }
    }

    /// Begins a new window, because a channel has changed.
    pub(super) fn restart(&self) {
        self.counts.take();
        self.begun.set((Instant::now(), Clocks::read()));
    }

    /// Notes that a channel could not be opened in a way, which is not tried again.
    pub(super) fn refuse(&self, way: Way, why: &str) {
        match &mut *self.plan.borrow_mut() {
            Plan::Measure { rule, turn, .. } => {
                rule.refuse(way, why);
                *turn = None;
                self.way.set(rule.way());
            }
            #[cfg(test)]
            Plan::Forced { ways, .. } => {
                ways.retain(|known| *known != way);
                self.way.set(Way::Interrupts);
            }
        }
        self.epoch.set(self.epoch.get() + 1);
        self.restart();
    }

    /// Adds the counters of a channel, and ends the window if it is long enough.
    pub(super) fn look(&self, requests: u64, bytes: u64, depth: u32) {
        // Relaxed: a counter that guards no memory.
        REQUESTS.fetch_add(requests, Ordering::Relaxed);
        let counts = self.counts.get();
        self.counts.set(Counts {
            requests: counts.requests + requests,
            bytes: counts.bytes + bytes,
            depths: counts.depths + u64::from(depth),
            looks: counts.looks + 1,
        });
        match &mut *self.plan.borrow_mut() {
            Plan::Measure { rule, means, has_threads, turn } => {
                let (begun, clocks) = self.begun.get();
                let now = Instant::now();
                if now - begun >= WINDOW {
                    if *has_threads {
                        set_thread(means);
                    }
                    self.end_window(rule, means, turn, now, now - begun, clocks);
                }
            }
            #[cfg(test)]
            Plan::Forced { ways, next } => {
                if !ways.is_empty() {
                    self.way.set(ways[*next % ways.len()]);
                    self.epoch.set(self.epoch.get() + 1);
                    *next += 1;
                }
            }
        }
    }

    #[cold]
    fn end_window(
        &self,
        rule: &mut Rule,
        means: &rule::Means,
        turn: &mut Option<Turn>,
        now: Instant,
        long: Duration,
        before: Clocks,
    ) {
        let (counts, after) = (self.counts.take(), Clocks::read());
        self.begun.set((now, after));
        let seconds = long.as_secs_f64();
        let all = (after.requests - before.requests).max(1) as f64;
        let own = (counts.requests as f64 / all).min(1.0);
        let thread = if rule.way().has_thread() { 1.0 } else { 0.0 };
        let machine = (after.machine_s - before.machine_s) / seconds;
        let window = Window {
            seconds,
            requests: counts.requests,
            bytes: counts.bytes,
            depth: counts.depths as f64 / counts.looks.max(1) as f64,
            cpu_s: (after.process_s - before.process_s) * own,
            others: (machine - (after.thread_s - before.thread_s) / seconds - thread).max(0.0),
        };
        if turn.is_none() {
            *turn = Turn::take();
        }
        let now_s = (now - self.birth).as_secs_f64();
        let changes = rule.step(means, &window, now_s, turn.is_some());
        if !rule.is_in_trial() {
            *turn = None;
        }
        if changes {
            self.way.set(rule.way());
            self.epoch.set(self.epoch.get() + 1);
        }
    }
}

/// Puts the way with a submission thread last among the ways: one for each channel while there are
/// cores for them, or a shared one.
fn set_thread(means: &mut rule::Means) {
    means.ways.retain(|way| !way.has_thread());
    if means.cores >= 2.0 {
        let channels = f64::from(CHANNELS.load(Ordering::Relaxed));
        let has_own = channels * 2.0 <= means.cores;
        means.ways.push(if has_own { Way::OwnThread } else { Way::SharedThread });
    }
}
