//! The incarnations of one store: opened, used, ended, judged, and opened again with the data that
//! survived.
//!
//! Long, because one incarnation after the other changes the same record of the run.

use qpair_block::locks::Mutex;
use std::sync::Arc;

use fastrand::Rng;
use qpair_engine::{
    Canary, CheckReport, ErrorKind, JoinHandle, Runtime, Step, Store, StoreOptions,
};
use qpair_sim_block::{SimFaults, TraceHash};

use super::catalog::{Catalog, SINGLES};
use super::errands::Errands;
use super::histories::Histories;
use super::makings::MAKINGS_SEED;
use super::oracle::Oracle;
use super::plan::{Devices, Plan};
use super::scenario::{Damage, End, Life, Scenario};
use super::summary::Counts;
use super::workload::{Notes, Single, TaskContext, Transactions};
use super::world::World;

/// The maximum number of steps of an incarnation. Beyond it, the run is taken for an endless loop.
const STEPS_MAX: u64 = 20_000_000;

/// Turns the seed of a run into the seed of its records that expire.
const EXPIRING_SEED: u64 = 0x6578_7069_7265_6421;

pub(crate) struct Run {
    pub(super) scenario: Arc<Scenario>,
    pub(super) world: World,
    pub(super) notes: Arc<Mutex<Notes>>,
    pub(super) rng: Rng,
    /// Whether there is a store on the devices.
    pub(super) formatted: bool,
    /// The number of workers of the store that was opened last.
    pub(super) workers: usize,
    pub(super) canary: Option<Canary>,
    seed: u64,
    /// Draws panics. It is a separate generator, so that a seed behaves the same with and without
    /// them.
    panics: Rng,
    /// Draws the actions of the task with windows, in the runs that have one.
    windows: Option<Rng>,
    /// Draws the creations that are cut. It is a separate generator for the same reason.
    pub(super) makings: Rng,
    /// The panic planted in this incarnation, and the number of times that it is skipped first.
    planted: Option<(Canary, u64)>,
    pub(super) errands: Errands,
    /// The timestamp of the newest commit when the store was opened.
    pub(super) recovered_to: u64,
    /// Lists for the judge of isolation, in some runs.
    pub(super) histories: Option<Histories>,
    /// Whether the tasks work with lists only.
    only_lists: bool,
    /// The contents of the devices before each incarnation, if they are needed.
    pub(super) older: Vec<Vec<Vec<u8>>>,
    pub(crate) counts: Counts,
    pub(crate) log: Vec<String>,
}

pub(super) enum Cut {
    /// The devices failed, which explains this error of the store.
    Excused(String),
    Wrong(String),
}

impl From<String> for Cut {
    fn from(wrong: String) -> Self {
        Self::Wrong(wrong)
    }
}

impl Run {
    pub(crate) fn new(seed: u64, plan: Plan) -> Result<Self, String> {
        // The engine uses the global generator.
        fastrand::seed(seed);
        let mut rng = Rng::with_seed(seed);
        let canary = plan.engine_canary();
        let scenario = Scenario::new(&mut rng).shaped_for(canary).aligned(seed).transformed(seed);
        let scenario = if plan.only_lists { scenario.for_lists() } else { scenario };
        let (scenario, world) = match plan.devices {
            Devices::Sim => {
                let world = World::new(&scenario, rng.fork())?;
                (scenario, world)
            }
            Devices::Hba => {
                let scenario = scenario.on_hba();
                let world = World::on_hba(&scenario, (rng.fork(), plan.scsi_canary()))?;
                (scenario, world)
            }
        };
        let scenario = Arc::new(scenario);
        let notes = Notes {
            oracle: Oracle::default(),
            catalog: Catalog::new(scenario.long_keys),
            wrong: Vec::new(),
            trace: TraceHash::default(),
            watch: world.watch(),
            operations: 0,
            timed_out: 0,
        };
        Ok(Self {
            log: vec![format!("{scenario:?}")],
            notes: Arc::new(Mutex::new(notes)),
            histories: Histories::new(seed, &scenario, plan.only_lists),
            only_lists: plan.only_lists,
            scenario,
            world,
            rng,
            formatted: false,
            workers: 0,
            canary,
            seed,
            panics: Rng::with_seed(!seed),
            windows: windows_of(seed),
            makings: Rng::with_seed(seed ^ MAKINGS_SEED),
            planted: None,
            errands: Errands::default(),
            recovered_to: 0,
            older: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// Runs all incarnations, and returns a hash of all that happened.
    pub(crate) fn run(&mut self) -> Result<u64, String> {
        let expiring = self.expire()?;
        if self.canary == Some(Canary::HorizonBeforeDurable) {
            // No other part has tables whose records expire.
            return Ok(expiring);
        }
        self.make_in_vain()?;
        for nth in 0..self.scenario.lives {
            let life = Life::new(&mut self.rng, self.scenario.length).shaped_for(self.canary, nth);
            self.plant_panic();
            let lived = self.live(life);
            self.planted = None;
            lived?;
        }
        // Whatever happened before, a store on devices without faults must open and be complete.
        self.live(Life::last())?;
        self.judge_last_history()?;
        if self.fill_up()? {
            self.damage()?;
        }
        self.counts.met = self.world.met();
        self.world.judge()?;
        let trace = self.notes(|notes| notes.trace.value());
        let mut hash = TraceHash::default();
        hash.add(trace);
        hash.add(self.world.trace());
        hash.add(self.world.clock.now_ns());
        hash.add(expiring);
        (self.counts.operations, self.counts.timed_out) =
            self.notes(|notes| (notes.operations, notes.timed_out));
        Ok(hash.value())
    }

    /// Runs a store of its own with tables whose records expire, in one run of four.
    fn expire(&mut self) -> Result<u64, String> {
        let mut rng = Rng::with_seed(self.seed ^ EXPIRING_SEED);
        let is_planted = self.canary == Some(Canary::HorizonBeforeDurable);
        if !is_planted && (self.canary.is_some() || rng.u8(0..4) != 0) {
            return Ok(0);
        }
        let outcome = super::expiring::run(rng.u64(..), self.canary);
        // What follows must not depend on what the engine drew here.
        fastrand::seed(self.seed);
        outcome
    }

    /// Plants a panic of the engine in some incarnations. Acknowledged commits must survive it, and
    /// no task may wait for ever.
    fn plant_panic(&mut self) {
        if self.canary.is_none() && self.panics.u8(0..8) == 0 {
            let canary = Canary::PANICS[self.panics.usize(0..Canary::PANICS.len())];
            let most = 1 << self.panics.u8(0..6);
            self.planted = Some((canary, self.panics.u64(0..most)));
        }
    }

    /// Whether the planted panic occurred. Any other panic is an error.
    fn judge_panics(&mut self) -> Result<bool, String> {
        let panics = super::runner::take_panics();
        let is_planted = |panic: &String| self.planted.is_some() && panic.contains("planted: ");
        if let Some(panic) = panics.iter().find(|panic| !is_planted(panic)) {
            return Err(format!("a panic: {panic}"));
        }
        if let Some(panic) = panics.first() {
            self.counts.panics += 1;
            self.say(panic.clone());
        }
        Ok(!panics.is_empty())
    }

    pub(super) fn notes<T>(&self, look: impl FnOnce(&mut Notes) -> T) -> T {
        look(&mut self.notes.lock())
    }

    pub(super) fn say(&mut self, what: impl Into<String>) {
        self.log.push(format!("{:>12} ns: {}", self.world.clock.now_ns(), what.into()));
    }

    /// Judges an error of the store: it either ends the incarnation or is a fault.
    pub(super) fn judge_error(&self, doing: &str, error: &qpair_engine::Error) -> Cut {
        match self.notes(|notes| notes.watch.excuses(error)) {
            true => Cut::Excused(format!("{doing}: {error}")),
            false => Cut::Wrong(format!("{doing}: {:?}: {error}", error.kind())),
        }
    }

    /// Restores power, and ends all faults of the devices.
    pub(super) fn begin_well(&mut self) -> Result<(), String> {
        self.world.power_on()?;
        self.world.power.cut_at_change(0);
        self.world.set_faults(SimFaults::default());
        let watch = self.world.watch();
        self.notes(|notes| notes.watch = watch);
        Ok(())
    }

    pub(super) fn live(&mut self, life: Life) -> Result<(), String> {
        self.say(format!("{life:?}"));
        self.counts.lives += 1;
        self.world.power_on()?;
        if self.scenario.damage == Some(Damage::Stale) {
            self.older.push(self.world.contents());
        }
        // Faults of the last incarnation end here, even if the devices kept running.
        self.world.set_faults(if life.faults_at_open { life.faults } else { SimFaults::default() });
        self.world.trouble(life.troubled && life.faults_at_open);
        match life.end {
            End::Cut(changes) => self.world.power.cut_at_change(changes),
            End::CutAtRecord(writes) => self.world.cut_at_record(writes),
            End::Close | End::Kill => self.world.power.cut_at_change(0),
        }
        let mut watch = self.world.watch();
        watch.panics = self.planted.is_some();
        self.notes(|notes| notes.watch = watch);
        let Some(store) = self.begin(life)? else { return self.judge_panics().map(drop) };
        self.world.set_faults(life.faults);
        self.world.trouble(life.troubled);
        let damaged = life.faults.bit_flip + life.faults.bad_sector > 0.0;
        self.notes(|notes| notes.watch.damaged = damaged);
        let outcome = self.spend(&store, life);
        let outcome = self.end_history().map_err(Cut::Wrong).and(outcome);
        self.notes(|notes| notes.catalog.end_life());
        let panicked = match self.judge_panics() {
            Ok(panicked) => panicked,
            Err(wrong) => {
                store.crash();
                return Err(wrong);
            }
        };
        match outcome {
            Ok(()) if panicked && self.panics.bool() => match store.close() {
                Ok(()) => Err("a store that panicked was closed as if it had not".to_owned()),
                Err(error) => {
                    self.say(format!("not closed: {error}"));
                    super::runner::take_panics();
                    Ok(())
                }
            },
            Ok(()) if panicked => {
                store.crash();
                Ok(())
            }
            Ok(()) => {
                self.end(store, life)?;
                self.judge_panics().map(drop)
            }
            Err(Cut::Excused(why)) => {
                self.say(format!("the devices failed: {why}"));
                store.crash();
                Ok(())
            }
            Err(Cut::Wrong(wrong)) => {
                store.crash();
                Err(wrong)
            }
        }
    }

    /// Opens the store, or creates it. Returns `None` if the devices fail meanwhile.
    pub(super) fn open(&mut self) -> Result<Option<Store>, String> {
        self.open_with(usize::MAX)
    }

    /// Opens the store as [`Self::open`] does, with at most `workers_max` workers.
    pub(super) fn open_with(&mut self, workers_max: usize) -> Result<Option<Store>, String> {
        let clock = self.world.clock.clone();
        let of_life = match self.canary {
            // A planted bug needs the scenario's own options to show.
            Some(_) => self.scenario.store_options(),
            None => self.scenario.options_of_a_life(&mut self.rng),
        };
        let options = StoreOptions {
            format: !self.formatted,
            runtime: Runtime::Stepped { seed: self.rng.u64(..), clock },
            canary: self.canary.or(self.planted.map(|(canary, _)| canary)),
            canary_passes: self.planted.map_or(0, |(_, passes)| passes),
            log_place: self.world.log_place(),
            workers: of_life.workers.min(workers_max),
            ..of_life
        };
        self.workers = options.workers;
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
        let panicked = matches!(error.kind(), ErrorKind::Panicked | ErrorKind::Closed);
        if panicked && self.notes(|notes| notes.watch.excuses(&error)) {
            return Ok(None);
        }
        if self.notes(|notes| notes.watch.has_failed()) && !is_deadlock(&error) {
            self.counts.failed_opens += 1;
            return Ok(None);
        }
        if error.kind() == ErrorKind::NoSpace && self.scenario.is_small() {
            // Recovery needs extra room, which a full device does not have.
            self.counts.full_opens += 1;
            return Ok(None);
        }
        Err(format!("opening: {:?}: {error}", error.kind()))
    }

    /// Opens the store, and checks every page if the incarnation begins that way. A store that was
    /// recovered or just created is first closed and reopened.
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
                    Cut::Excused(_) => Ok(None),
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

    /// Closes the store, and returns whether that succeeded.
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
                    Cut::Excused(_) => Ok(false),
                }
            }
        }
    }

    /// Checks the data found, and works with the store until the incarnation ends.
    fn spend(&mut self, store: &Store, life: Life) -> Result<(), Cut> {
        let found = self.read_all(store)?;
        self.recovered_to = store.metrics().map_or(u64::MAX, |metrics| metrics.last_timestamp);
        self.notes(|notes| notes.oracle.recovered(&found.values))?;
        self.counts.judged += 1;
        self.say(format!("{} records are as they may be", found.values.len()));
        let tables = self.tables(store)?;
        self.notes(|notes| {
            notes.catalog.begin_life(&tables);
            notes.catalog.recovered(&found.temporary);
        });
        drop((tables, found));
        self.begin_history(store)?;
        let mut tasks = self.start(store, life);
        self.step(store, life, &mut tasks)?;
        if let Some(wrong) = self.notes(|notes| notes.wrong.first().cloned()) {
            return Err(wrong.into());
        }
        self.notes(|notes| notes.oracle.check_isolation())?;
        self.notes(|notes| notes.oracle.check_backups())?;
        self.counts.commits += self.notes(|notes| notes.oracle.commits());
        let all_done = tasks.iter().all(JoinHandle::is_finished);
        if all_done && !self.world.power.is_cut() {
            self.read_lists(store)?;
        }
        if all_done && !self.world.power.is_cut() && self.rng.bool() {
            let found = self.read_all(store)?;
            self.notes(|notes| notes.oracle.at_rest(&found.values))?;
            self.say("at rest, nothing is missing");
        }
        Ok(())
    }

    pub(super) fn context(&mut self, steps: u32) -> TaskContext {
        TaskContext {
            notes: self.notes.clone(),
            scenario: self.scenario.clone(),
            rng: self.rng.fork(),
            steps,
        }
    }

    pub(super) fn start(&mut self, store: &Store, life: Life) -> Vec<JoinHandle<()>> {
        let mut handles = self.start_lists(store, life);
        for number in 0..if self.only_lists { 0 } else { life.tasks } {
            let context = self.context(life.steps_per_task);
            if self.rng.u8(0..3) != 0 {
                let transactions = Transactions { context, store: store.task() };
                handles.push(store.spawn(move || transactions.run()));
                continue;
            }
            let table = self.rng.u16(0..SINGLES as u16);
            let Some(handle) = self.notes(|notes| notes.catalog.handle(table)) else { continue };
            let task = handle.task();
            let (share, shares) = (number as u16, life.tasks as u16);
            let single = Single::new(context, table, share, shares);
            handles.push(store.spawn(move || single.run(task)));
        }
        if let Some(rng) = &mut self.windows {
            let (rng, steps) = (rng.fork(), life.steps_per_task);
            let (notes, scenario) = (self.notes.clone(), self.scenario.clone());
            let context = TaskContext { notes, scenario, rng, steps };
            let windows = Transactions { context, store: store.task() };
            handles.push(store.spawn(move || windows.windows()));
        }
        handles
    }

    /// Runs the workers until the tasks are done or the incarnation is over.
    fn step(
        &mut self,
        store: &Store,
        life: Life,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> Result<(), Cut> {
        self.errands = Errands::default();
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
            if let Some(one_in) = self.scenario.errands
                && self.rng.u32(0..one_in) == 0
            {
                self.errand(store, tasks)?;
                // Other threads may have made progress meanwhile.
                continue;
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
            self.history_is_durable();
        }
        self.world.set_faults(SimFaults::default());
        self.world.trouble(false);
        // Everything that was closed survives.
        self.world.power.cut();
        Ok(())
    }
}

/// Returns the generator of the task with windows, for one run of eight. It is separate from the
/// run's generator, so that a seed without such a task behaves as it did before the task existed.
fn windows_of(seed: u64) -> Option<Rng> {
    let mut rng = Rng::with_seed(seed.rotate_left(32));
    (rng.u8(0..8) == 0).then_some(rng)
}

fn is_deadlock(error: &qpair_engine::Error) -> bool {
    error.to_string().contains("deadlock")
}
