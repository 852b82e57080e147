//! A store of lists in memory, with snapshots and validation, that one thread steps. It is short,
//! so that it is easily seen to be right.

use std::collections::BTreeMap;

use fastrand::Rng;
use qpair_isolation::{
    By, Element, History, Isolation, List, Operation, Outcome, State, Transaction,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Transactions run one after the other.
    Serial,
    Serializable,
    Snapshot,
    /// Some transactions are serializable, others are not.
    Mixed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Two transactions that appended to the same list both commit.
    LostUpdate,
    /// Reads are not validated at commit.
    UncheckedReads,
    /// Snapshots lack the last commits.
    StaleSnapshot,
}

struct Running {
    transaction: Transaction,
    /// The number of commits in its snapshot.
    snapshot: usize,
    appends: Vec<(List, Element)>,
    steps: u32,
}

/// The commits in order, each with its appends.
#[derive(Default)]
struct Store {
    commits: Vec<Vec<(List, Element)>>,
    /// The numbers of transactions in the history, by commit.
    numbers: Vec<usize>,
    clock: u64,
    elements: u64,
    history: History,
}

const LISTS: u32 = 5;

pub(crate) fn run(rng: &mut Rng, level: Level, transactions: u32) -> History {
    run_broken(rng, level, transactions, None)
}

pub(crate) fn run_broken(
    rng: &mut Rng,
    level: Level,
    transactions: u32,
    broken: Option<Broken>,
) -> History {
    let mut store = Store::default();
    store.run(rng, level, transactions, broken);
    store.history
}

/// Makes a history that ends with a crash: some of the last commits that were not durable are lost.
pub(crate) fn crashed(rng: &mut Rng, level: Level, transactions: u32) -> History {
    let mut store = Store::default();
    store.run(rng, level, transactions, None);
    // Writers are durable up to a point. Everything that a durable reader has read must be durable
    // as well.
    let durable = rng.usize(0..=store.commits.len());
    let kept = rng.usize(durable..=store.commits.len());
    let there = store.state(durable);
    let is_there = |list: &List, elements: &[Element]| {
        there.get(list).is_some_and(|there| there.starts_with(elements)) || elements.is_empty()
    };
    let numbers = store.numbers[..durable].to_vec();
    for (number, transaction) in store.history.transactions.iter_mut().enumerate() {
        let writes =
            transaction.operations.iter().any(|one| matches!(one, Operation::Append { .. }));
        let has_read = transaction.operations.iter().all(|one| match one {
            Operation::Read { list, elements, .. } => is_there(list, elements),
            _ => true,
        });
        transaction.durable = if writes { numbers.contains(&number) } else { has_read };
    }
    store.history.recovered = Some(store.state(kept));
    store.history
}

impl Store {
    /// Returns the lists after `commits` commits.
    fn state(&self, commits: usize) -> State {
        let mut state = self.history.base.clone();
        for (list, element) in self.commits[..commits].iter().flatten() {
            state.entry(*list).or_default().push(*element);
        }
        state
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn run(&mut self, rng: &mut Rng, level: Level, transactions: u32, broken: Option<Broken>) {
        if rng.bool() {
            let base = (0..3).map(|list| (List(list), vec![Element(900_000 + u64::from(list))]));
            self.history.base = base.collect::<BTreeMap<_, _>>();
        }
        let processes = if level == Level::Serial { 1 } else { 6 };
        let mut running: Vec<Option<Running>> = (0..processes).map(|_| None).collect();
        let mut left = transactions;
        while left > 0 || running.iter().any(Option::is_some) {
            let process = rng.usize(0..processes);
            match running[process].take() {
                None if left > 0 => {
                    left -= 1;
                    running[process] = Some(self.begin(rng, level, process as u32, broken));
                }
                None => {}
                Some(mut one) if one.steps > 0 => {
                    one.steps -= 1;
                    self.step(rng, &mut one);
                    running[process] = Some(one);
                }
                Some(one) => self.end(rng, one, broken),
            }
        }
    }

    fn begin(
        &mut self,
        rng: &mut Rng,
        level: Level,
        process: u32,
        broken: Option<Broken>,
    ) -> Running {
        let serializable = match level {
            Level::Serial | Level::Serializable => true,
            Level::Snapshot => false,
            Level::Mixed => rng.bool(),
        };
        let isolation = if serializable { Isolation::Serializable } else { Isolation::Snapshot };
        let transaction = Transaction {
            process,
            began: self.tick(),
            ended: 0,
            operations: Vec::new(),
            isolation,
            outcome: Outcome::RolledBack,
            durable: true,
        };
        let late = if broken == Some(Broken::StaleSnapshot) { rng.usize(0..3) } else { 0 };
        let snapshot = self.commits.len().saturating_sub(late);
        Running { transaction, snapshot, appends: Vec::new(), steps: rng.u32(1..6) }
    }

    fn step(&mut self, rng: &mut Rng, one: &mut Running) {
        let list = List(rng.u32(0..LISTS));
        let operation = match rng.u8(0..8) {
            0..4 => {
                let mut elements = self.state(one.snapshot).remove(&list).unwrap_or_default();
                let own = one.appends.iter().filter(|(other, _)| *other == list);
                elements.extend(own.map(|(_, element)| *element));
                let by = if rng.bool() { By::Range } else { By::Row };
                Operation::Read { list, elements, by }
            }
            4 if rng.u8(0..4) == 0 => {
                let to = rng.usize(0..=one.transaction.operations.len());
                let kept = one.transaction.operations[..to].iter();
                one.appends = kept
                    .filter_map(|one| match one {
                        Operation::Append { list, element } => Some((*list, *element)),
                        _ => None,
                    })
                    .filter(|kept| one.appends.contains(kept))
                    .collect();
                Operation::RollBack { to }
            }
            _ => {
                self.elements += 1;
                let element = Element(self.elements);
                one.appends.push((list, element));
                Operation::Append { list, element }
            }
        };
        one.transaction.operations.push(operation);
    }

    fn end(&mut self, rng: &mut Rng, mut one: Running, broken: Option<Broken>) {
        let since: Vec<List> =
            self.commits[one.snapshot..].iter().flatten().map(|(list, _)| *list).collect();
        let written = one.appends.iter().any(|(list, _)| since.contains(list));
        let serializable = one.transaction.isolation == Isolation::Serializable;
        let read = one.transaction.operations.iter().any(|one| match one {
            Operation::Read { list, .. } => since.contains(list),
            _ => false,
        });
        let conflict = written && broken != Some(Broken::LostUpdate)
            || serializable
                && !one.appends.is_empty()
                && read
                && broken != Some(Broken::UncheckedReads);
        if !conflict && rng.u8(0..12) != 0 {
            // Some commits take place and are never answered.
            let answered = rng.u8(0..12) != 0;
            one.transaction.outcome = if answered { Outcome::Committed } else { Outcome::Unknown };
            if !one.appends.is_empty() {
                self.commits.push(one.appends);
                self.numbers.push(self.history.transactions.len());
            }
        }
        one.transaction.ended = self.tick();
        self.history.transactions.push(one.transaction);
    }
}
