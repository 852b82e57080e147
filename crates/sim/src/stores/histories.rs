//! Lists that tasks append to in some runs, in addition to all other work. The checker of
//! isolation, which knows nothing of the engine, receives their reads. See
//! docs/design/isolation.md.
//!
//! Whether a run has lists, and what their tasks do, is drawn from a separate generator. The other
//! work of a run is therefore the same as without lists.

use std::sync::Arc;

use fastrand::Rng;
use qpair_engine::{JoinHandle, Store};
use qpair_isolation::{History, judge};

use super::lives::{Cut, Run};
use super::scenario::{Life, Scenario};
use crate::lists::{Actor, Habits, Layout, Level, Lists, Recorder, Threads, ready};

/// The process that reads everything at the end, and the process that reads backups.
const LAST: u32 = u32::MAX;
const READER: u32 = u32::MAX - 1;
/// One of this many runs has lists, among the runs whose store is not damaged at the end.
const ONE_IN: u8 = 2;
/// The maximum number of transactions of an incarnation of usual length; longer ones have
/// proportionally more.
const TRANSACTIONS_MAX: usize = 300;

pub(super) struct Histories {
    rng: Rng,
    habits: Habits,
    /// The lists of the current incarnation.
    lists: Option<Arc<Lists>>,
    /// The history of the last incarnation, until the state that it left is known.
    pending: Option<History>,
    /// The lists at the beginning of the incarnation.
    base: qpair_isolation::State,
    lives: u64,
}

impl Histories {
    pub(super) fn new(seed: u64, scenario: &Scenario, always: bool) -> Option<Self> {
        let mut rng = Rng::with_seed(seed.rotate_left(32) ^ 0x15_0147);
        let fits = scenario.damage.is_none() && !scenario.is_small();
        if !always && (!fits || rng.u8(0..ONE_IN) != 0) {
            return None;
        }
        let layouts = [Layout::Row, Layout::Rows, Layout::Rows, Layout::TwoTables];
        let levels = [Level::Snapshot, Level::Serializable, Level::Mixed];
        let level = levels[rng.usize(0..levels.len())];
        let habits = Habits {
            layout: layouts[rng.usize(0..layouts.len())],
            level,
            durability: rng.bool().then_some(scenario.durability),
            has_heads: level != Level::Serializable || rng.bool(),
            is_durable: scenario.is_durable(qpair_engine::Durability::Sync),
            padding_max: scenario.page_size as u16 / 16,
        };
        let (lists, pending) = (None, None);
        Some(Self { rng, habits, lists, pending, base: qpair_isolation::State::new(), lives: 0 })
    }
}

impl Run {
    /// Reads the state that the last incarnation left, and judges that incarnation.
    pub(super) fn begin_history(&mut self, store: &Store) -> Result<(), Cut> {
        let notes = self.notes.clone();
        let Some(histories) = &mut self.histories else { return Ok(()) };
        histories.lives += 1;
        let recorder = Recorder::new(histories.lives << 32 | 1, None);
        let opened = Lists::open(store, histories.habits, recorder, move |error| {
            let notes = notes.lock();
            (!notes.watch.excuses(error)).then(|| format!("{:?}: {error}", error.kind()))
        });
        let opened = opened.and_then(|lists| {
            let state = ready(lists.state_now(&Threads(store), &mut histories.rng))?;
            Ok((lists, state))
        });
        let (lists, state) =
            opened.map_err(|error| self.judge_error("reading the lists", &error))?;
        if let Some(wrong) = lists.first_wrong() {
            return Err(wrong.into());
        }
        let Some(histories) = &mut self.histories else { return Ok(()) };
        lists.begin_with(&state);
        histories.lists = Some(Arc::new(lists));
        histories.base.clone_from(&state);
        let Some(mut history) = histories.pending.take() else { return Ok(()) };
        history.recovered = Some(state);
        self.judge_history(&history).map_err(Cut::Wrong)
    }

    fn judge_history(&mut self, history: &History) -> Result<(), String> {
        let verdict = judge(history);
        if !verdict.is_clean() {
            return Err(format!("the judge of isolation: {verdict}"));
        }
        self.counts.listed += verdict.transactions;
        Ok(())
    }

    pub(super) fn start_lists(&mut self, store: &Store, life: Life) -> Vec<JoinHandle<()>> {
        let Some(histories) = &mut self.histories else { return Vec::new() };
        let Some(lists) = &histories.lists else { return Vec::new() };
        let most = TRANSACTIONS_MAX * usize::from(self.scenario.length);
        let wanted = histories.rng.usize(1..=most.min(16 * life.steps_per_task as usize).max(1));
        let tasks = histories.rng.u32(2..=6);
        let start = |process| {
            let (lists, session, rng) = (lists.clone(), store.task(), histories.rng.fork());
            store.spawn(move || Actor::new(lists, session, process, rng).run(wanted))
        };
        (0..tasks).map(start).collect()
    }

    pub(super) fn read_lists(&mut self, store: &Store) -> Result<(), Cut> {
        let Some(histories) = &mut self.histories else { return Ok(()) };
        let Some(lists) = &histories.lists else { return Ok(()) };
        let read = ready(lists.read_all(&Threads(store), LAST, &mut histories.rng));
        read.map(drop).map_err(|error| self.judge_error("reading all lists", &error))
    }

    /// Returns the current time of the lists' own clock.
    pub(super) fn now_of_lists(&self) -> Option<u64> {
        Some(self.histories.as_ref()?.lists.as_ref()?.recorder.now())
    }

    /// Reads the lists of a backup that was made between two moments.
    pub(super) fn read_lists_of(
        &mut self,
        copy: &Store,
        between: Option<(u64, u64)>,
    ) -> Result<(), String> {
        let Some(histories) = &mut self.histories else { return Ok(()) };
        let (Some(lists), Some(_)) = (&histories.lists, between) else { return Ok(()) };
        let read = lists.read_copy(copy, READER, between, &mut histories.rng);
        read.map(drop).map_err(|error| format!("{:?}: {error}", error.kind()))
    }

    /// Takes the recorded transactions. The tasks must have ended.
    pub(super) fn end_history(&mut self) -> Result<(), String> {
        let Some(histories) = &mut self.histories else { return Ok(()) };
        let Some(lists) = histories.lists.take() else { return Ok(()) };
        let (base, transactions) = (std::mem::take(&mut histories.base), lists.recorder.take());
        histories.pending = Some(History { base, transactions, recovered: None });
        lists.first_wrong().map_or(Ok(()), Err)
    }

    /// Notes that all acknowledged commits are durable, because the store was closed.
    pub(super) fn history_is_durable(&mut self) {
        let pending = self.histories.as_mut().and_then(|histories| histories.pending.as_mut());
        for transaction in pending.into_iter().flat_map(|history| &mut history.transactions) {
            transaction.durable = true;
        }
    }

    pub(super) fn judge_last_history(&mut self) -> Result<(), String> {
        let pending = self.histories.as_mut().and_then(|histories| histories.pending.take());
        pending.map_or(Ok(()), |history| self.judge_history(&history))
    }
}
