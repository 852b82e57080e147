//! The lives of one store: opened, worked with, ended, judged, and opened again on what survived.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use fastrand::Rng;
use qpair_block::sim::{SimFaults, TraceHash};
use qpair_engine::{
    Canary, CheckReport, ErrorKind, JoinHandle, Runtime, Step, Store, StoreOptions, Table,
};

use super::oracle::Oracle;
use super::scenario::{End, Life, Scenario};
use super::summary::Counts;
use super::value::{Key, Value};
use super::workload::{Notes, Single, TaskContext, Transactions};
use super::world::World;

/// Tables of the store: first those for changes by themselves, then those for transactions.
const TABLES: [&str; 4] = ["single", "another", "shared", "common"];
/// How many are for changes by themselves.
const SINGLES: usize = 2;

/// Steps of a life, at most: then something goes round in circles.
const STEPS_MAX: u64 = 20_000_000;

/// One run of the simulation.
pub(crate) struct Run {
    scenario: Arc<Scenario>,
    world: World,
    notes: Arc<Mutex<Notes>>,
    rng: Rng,
    /// There is a store on the devices.
    formatted: bool,
    canary: Option<Canary>,
    pub(crate) counts: Counts,
    /// What happened, for people.
    pub(crate) log: Vec<String>,
}

/// Why a life is over before its end.
enum Cut {
    /// The devices failed.
    Excused,
    Wrong(String),
}

impl From<String> for Cut {
    fn from(wrong: String) -> Self {
        Self::Wrong(wrong)
    }
}

impl Run {
    pub(crate) fn new(seed: u64, canary: Option<Canary>) -> Result<Self, String> {
        // The engine draws from this one.
        fastrand::seed(seed);
        let mut rng = Rng::with_seed(seed);
        let scenario = Arc::new(Scenario::new(&mut rng));
        let world = World::new(&scenario, rng.fork())?;
        let notes = Notes {
            oracle: Oracle::default(),
            wrong: Vec::new(),
            trace: TraceHash::default(),
            watch: world.watch(),
            operations: 0,
        };
        Ok(Self {
            log: vec![format!("{scenario:?}")],
            notes: Arc::new(Mutex::new(notes)),
            scenario,
            world,
            rng,
            formatted: false,
            canary,
            counts: Counts::default(),
        })
    }

    /// Runs all lives; a hash of all that happened.
    pub(crate) fn run(&mut self) -> Result<u64, String> {
        for _ in 0..self.scenario.lives {
            let life = Life::new(&mut self.rng);
            self.live(life)?;
        }
        // Whatever happened before, a store on devices that are well opens and is whole.
        self.live(Life::last())?;
        let trace = self.notes(|notes| notes.trace.value());
        let mut hash = TraceHash::default();
        hash.add(trace);
        hash.add(self.world.trace());
        hash.add(self.world.clock.now_ns());
        self.counts.operations = self.notes(|notes| notes.operations);
        Ok(hash.value())
    }

    fn notes<T>(&self, look: impl FnOnce(&mut Notes) -> T) -> T {
        look(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn say(&mut self, what: impl Into<String>) {
        self.log.push(format!("{:>12} ns: {}", self.world.clock.now_ns(), what.into()));
    }

    /// Takes in an error: a reason to end the life, or wrong.
    fn judge_error(&self, doing: &str, error: &qpair_engine::Error) -> Cut {
        match self.notes(|notes| notes.watch.excuses(error)) {
            true => Cut::Excused,
            false => Cut::Wrong(format!("{doing}: {:?}: {error}", error.kind())),
        }
    }

    fn live(&mut self, life: Life) -> Result<(), String> {
        self.say(format!("{life:?}"));
        self.counts.lives += 1;
        self.world.power_on()?;
        if life.faults_at_open {
            self.world.set_faults(life.faults);
        }
        if let End::Cut(changes) = life.end {
            self.world.power.cut_at_change(changes);
        }
        let watch = self.world.watch();
        self.notes(|notes| notes.watch = watch);
        let Some(store) = self.begin(life)? else { return Ok(()) };
        self.world.set_faults(life.faults);
        let outcome = self.spend(&store, life);
        let panics = super::runner::take_panics();
        if let Some(panic) = panics.first() {
            store.crash();
            return Err(format!("a panic: {panic}"));
        }
        match outcome {
            Ok(()) => self.end(store, life),
            Err(Cut::Excused) => {
                self.say("the devices failed");
                store.crash();
                Ok(())
            }
            Err(Cut::Wrong(wrong)) => {
                store.crash();
                Err(wrong)
            }
        }
    }

    /// Opens the store, or makes it; none if the devices fail meanwhile.
    fn open(&mut self) -> Result<Option<Store>, String> {
        let clock = self.world.clock.clone();
        let options = StoreOptions {
            format: !self.formatted,
            runtime: Runtime::Stepped { seed: self.rng.u64(..), clock },
            canary: self.canary,
            ..self.scenario.store_options()
        };
        let error = match Store::open(self.world.members(), &options) {
            Ok(store) => {
                self.counts.opened += 1;
                self.say("opened");
                self.formatted = true;
                return Ok(Some(store));
            }
            Err(error) => error,
        };
        self.say(format!("not opened: {error}"));
        if self.notes(|notes| notes.watch.has_failed()) && !is_deadlock(&error) {
            self.counts.failed_opens += 1;
            return Ok(None);
        }
        if error.kind() == ErrorKind::NoSpace && self.scenario.is_small() {
            // Recovery wants room beside what there is, and a full device has none.
            self.counts.full_opens += 1;
            return Ok(None);
        }
        Err(format!("opening: {:?}: {error}", error.kind()))
    }

    /// Opens the store, and checks every page if the life begins so. One that was recovered, or just made, is closed and
    /// opened again for that.
    fn begin(&mut self, life: Life) -> Result<Option<Store>, String> {
        let Some(mut store) = self.open()? else { return Ok(None) };
        if !life.checks {
            return Ok(Some(store));
        }
        let mut report = store.check(&|_, _| ());
        if report.as_ref().is_err_and(|error| error.kind() == ErrorKind::Invalid) {
            if !self.close(store)? {
                return Ok(None);
            }
            let Some(opened) = self.open()? else { return Ok(None) };
            store = opened;
            report = store.check(&|_, _| ());
        }
        let outcome = match report {
            Ok(report) => self.judge_report(&report),
            Err(error) => Err(self.judge_error("check", &error)),
        };
        match outcome {
            Ok(()) => Ok(Some(store)),
            Err(cut) => {
                store.crash();
                match cut {
                    Cut::Excused => Ok(None),
                    Cut::Wrong(wrong) => Err(wrong),
                }
            }
        }
    }

    fn judge_report(&mut self, report: &CheckReport) -> Result<(), Cut> {
        self.counts.checks += 1;
        if self.notes(|notes| notes.watch.has_failed()) {
            return Ok(());
        }
        if !report.is_sound() {
            return Err(format!("check: {:?}", report.faults).into());
        }
        if report.leaked_pages > 0 {
            return Err(format!("check: {} pages leaked", report.leaked_pages).into());
        }
        self.say("every page is as it should be");
        Ok(())
    }

    /// Closes the store; whether that went well.
    fn close(&mut self, store: Store) -> Result<bool, String> {
        match store.close() {
            Ok(()) => {
                self.counts.closes += 1;
                self.say("closed");
                Ok(true)
            }
            Err(error) => {
                self.say(format!("not closed: {error}"));
                match self.judge_error("closing", &error) {
                    Cut::Wrong(wrong) => Err(wrong),
                    Cut::Excused => Ok(false),
                }
            }
        }
    }

    /// Checks what was found, and works with the store until the life ends.
    fn spend(&mut self, store: &Store, life: Life) -> Result<(), Cut> {
        let found = self.read_all(store)?;
        self.notes(|notes| notes.oracle.recovered(&found))?;
        self.counts.judged += 1;
        self.say(format!("{} records are as they may be", found.len()));
        let tables = self.tables(store)?;
        let tasks = self.start(store, &tables, life);
        drop(tables);
        self.step(store, life, &tasks)?;
        if let Some(wrong) = self.notes(|notes| notes.wrong.first().cloned()) {
            return Err(wrong.into());
        }
        self.notes(|notes| notes.oracle.check_isolation())?;
        self.counts.commits += self.notes(|notes| notes.oracle.commits());
        let all_done = tasks.iter().all(JoinHandle::is_finished);
        if all_done && !self.world.power.is_cut() && self.rng.bool() {
            let found = self.read_all(store)?;
            self.notes(|notes| notes.oracle.at_rest(&found))?;
            self.say("at rest, nothing is missing");
        }
        Ok(())
    }

    fn tables(&self, store: &Store) -> Result<Vec<Table>, Cut> {
        let open = |name: &&str| store.table(name).map_err(|e| self.judge_error("a table", &e));
        TABLES.iter().map(open).collect()
    }

    /// All that is in the store.
    fn read_all(&self, store: &Store) -> Result<BTreeMap<Key, Value>, Cut> {
        let mut found = BTreeMap::new();
        for (number, name) in TABLES.iter().enumerate() {
            let number = number as u8;
            let table = store.existing_table(name).map_err(|e| self.judge_error("a table", &e))?;
            let Some(table) = table else { continue };
            let range =
                table.range::<[u8], _>(..).map_err(|e| self.judge_error("reading all", &e))?;
            for entry in range {
                let (key, value) = entry.map_err(|e| self.judge_error("reading all", &e))?;
                let (Some(key), Some(value)) = (Key::parse(number, &key), Value::parse(&value))
                else {
                    return Err(format!("{name} has a record that nobody wrote: {key:?}").into());
                };
                if found.insert(key, value).is_some() {
                    return Err(format!("{key:?} twice").into());
                }
            }
        }
        Ok(found)
    }

    fn start(&mut self, store: &Store, tables: &[Table], life: Life) -> Vec<JoinHandle<()>> {
        let mut handles = Vec::new();
        for number in 0..life.tasks {
            let context = TaskContext {
                notes: self.notes.clone(),
                scenario: self.scenario.clone(),
                rng: self.rng.fork(),
                steps: life.steps_per_task,
            };
            if self.rng.u8(0..3) != 0 {
                let shared = (SINGLES..).zip(&tables[SINGLES..]);
                let transactions = Transactions {
                    context,
                    store: store.task(),
                    tables: shared.map(|(n, table)| (n as u8, table.clone())).collect(),
                };
                handles.push(store.spawn(move || transactions.run()));
                continue;
            }
            let table = self.rng.usize(0..SINGLES);
            let task = tables[table].task();
            let (share, shares) = (number as u16, life.tasks as u16);
            let single = Single::new(context, table as u8, share, shares);
            handles.push(store.spawn(move || single.run(task)));
        }
        handles
    }

    /// Lets the workers go on until the tasks are done or the life is over.
    fn step(&mut self, store: &Store, life: Life, tasks: &[JoinHandle<()>]) -> Result<(), Cut> {
        let until = match life.end {
            End::Kill => {
                let most = 1 << self.rng.u8(4..14);
                self.rng.u64(0..most)
            }
            _ => STEPS_MAX,
        };
        for step in 0..until {
            if self.world.power.is_cut() || tasks.iter().all(JoinHandle::is_finished) {
                self.say(format!("{step} steps"));
                return Ok(());
            }
            if store.step() == Step::Stuck {
                let left = tasks.iter().filter(|task| !task.is_finished()).count();
                let what = format!("deadlock: {left} tasks wait, and nothing is under way");
                return Err(what.into());
            }
        }
        match life.end {
            End::Kill => Ok(()),
            _ => Err(format!("no end after {STEPS_MAX} steps").into()),
        }
    }

    fn end(&mut self, store: Store, life: Life) -> Result<(), String> {
        if self.world.power.is_cut() || life.end == End::Kill {
            self.counts.crashes += 1;
            self.say(if life.end == End::Kill { "killed" } else { "the power was cut" });
            store.crash();
            return Ok(());
        }
        if self.close(store)? {
            self.notes(|notes| notes.oracle.closed());
        }
        self.world.set_faults(SimFaults::default());
        // What was closed survives at once.
        self.world.power.cut();
        Ok(())
    }
}

fn is_deadlock(error: &qpair_engine::Error) -> bool {
    error.to_string().contains("deadlock")
}
