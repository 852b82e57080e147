//! Tables with a time to live, while the wall clock is set ahead and back, and power is cut.
//!
//! Tasks put, read and delete records, each with keys of its own. The thread that steps them sets
//! the clock, and asks for removals. A record that a reader has missed must never be seen again, a
//! record must not be missed before its time, and when all times have passed, nothing may be left.

mod actor;
mod model;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use qpair_block::locks::Mutex;
use qpair_block::time::SimClock;
use qpair_engine::{
    Canary, Compression, Result, Runtime, Step, Store, StoreOptions, Table, TableOptions, WallClock,
};
use qpair_sim_block::{SimDevice, SimOptions, SimPower};

use actor::Actor;
use model::Model;

const TABLES: [(&str, u64); 2] = [("quick", 5_000), ("slow", 60_000)];
const LIVES: u32 = 5;
const TASKS: u32 = 6;
/// The steps after which a store counts as stuck in an endless loop.
const STEPS_MAX: u64 = 5_000_000;

type Shared = Arc<Mutex<Model>>;

struct World {
    rng: Rng,
    clock: SimClock,
    power: SimPower,
    device: SimDevice,
    wall_ms: Arc<AtomicU64>,
    model: Shared,
    page_size: usize,
    compressed: bool,
    canary: Option<Canary>,
}

/// Runs one seed. Returns a hash of all that happened.
pub(super) fn run(seed: u64, canary: Option<Canary>) -> std::result::Result<u64, String> {
    let mut rng = Rng::with_seed(seed);
    let clock = SimClock::new();
    let began_ms = 1_000_000_000_000;
    let options = SimOptions::new(rng.u64(..), &clock);
    let mut world = World {
        power: options.power.clone(),
        device: SimDevice::new(options).map_err(|error| error.to_string())?,
        clock,
        wall_ms: Arc::new(AtomicU64::new(began_ms)),
        model: Arc::new(Mutex::new(Model::new(began_ms))),
        page_size: 512 << rng.u8(0..3),
        compressed: rng.bool(),
        canary,
        rng,
    };
    let mut is_new = true;
    for life in 0..LIVES {
        is_new &= !world.live(is_new, life + 1 == LIVES)?;
    }
    let model = world.model.lock();
    Ok(world.device.trace().value() ^ model.operations << 32 ^ model.missed)
}

fn said(doing: &str) -> impl Fn(qpair_engine::Error) -> String {
    move |error| format!("expiry: {doing}: {:?}: {error}", error.kind())
}

impl World {
    fn options(&mut self) -> StoreOptions {
        let workers = self.rng.usize(1..=3);
        StoreOptions {
            memory_bytes: (self.page_size * 64 * workers.max(2)) as u64,
            workers,
            page_size: self.page_size,
            stripe_unit_bytes: 64 << 10,
            log_segment_bytes: 16 << 10,
            checkpoint_bytes: 64 << self.rng.u8(0..14),
            runtime: Runtime::Stepped { seed: self.rng.u64(..), clock: self.clock.clone() },
            wall_clock: WallClock::Simulated(self.wall_ms.clone()),
            canary: self.canary,
            ..StoreOptions::default()
        }
    }

    fn is_cut(&self) -> bool {
        self.power.is_cut()
    }

    /// Replaces the device by what survived on it, with power.
    fn power_on(&mut self) -> std::result::Result<(), String> {
        let content = self.device.content();
        let options = SimOptions {
            power: SimPower::new(&self.clock),
            ..SimOptions::new(self.rng.u64(..), &self.clock)
        };
        self.power = options.power.clone();
        self.device = SimDevice::over(options, content).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Sets the wall clock, mostly ahead.
    fn set_wall(&mut self) {
        let now_ms = self.wall_ms.load(Ordering::Relaxed);
        let to_ms = match self.rng.u8(0..8) {
            0 => now_ms.saturating_sub(self.rng.u64(0..40_000)),
            1 => now_ms + self.rng.u64(0..30_000),
            _ => now_ms + self.rng.u64(0..2_000),
        };
        self.wall_ms.store(to_ms, Ordering::Relaxed);
        self.model.lock().walls_ms.push(to_ms);
    }

    /// Opens the store, uses it, and ends it. Returns whether there is a store from then on.
    fn live(&mut self, is_new: bool, is_last: bool) -> std::result::Result<bool, String> {
        self.power_on()?;
        if self.rng.bool() {
            self.set_wall();
        }
        let changes = self.rng.u64(1..=300);
        let is_cut_off = !is_last && self.rng.u8(0..4) != 0;
        if is_cut_off && !is_new {
            self.power.cut_at_change(changes);
        }
        let options = StoreOptions { format: is_new, ..self.options() };
        let device = Arc::new(self.device.clone());
        let store = match Store::open(vec![device], &options) {
            Ok(store) => store,
            Err(_) if self.is_cut() => return Ok(false),
            Err(error) => return Err(said("opening")(error)),
        };
        let horizon_ms = store.horizon_ms();
        let known_ms = self.model.lock().horizon_ms;
        // A new store has no horizon before its first table.
        if horizon_ms < known_ms {
            store.crash();
            return Err(format!("expiry: the horizon is {horizon_ms}, after it was {known_ms}"));
        }
        if is_cut_off && is_new {
            self.power.cut_at_change(changes);
        }
        let used = self.spend(&store);
        if let Some(wrong) = self.model.lock().wrong.clone() {
            store.crash();
            return Err(format!("expiry: {wrong}"));
        }
        match used {
            Err(error) if !self.is_cut() => {
                store.crash();
                Err(error)
            }
            Ok(()) if is_last => self.end(store).map(|()| true),
            Ok(()) if !self.is_cut() && self.rng.bool() => {
                match store.close() {
                    Err(error) if !self.is_cut() => return Err(said("closing")(error)),
                    // The power was cut while the store was being closed.
                    _ => {}
                }
                Ok(true)
            }
            _ => {
                store.crash();
                Ok(true)
            }
        }
    }

    fn tables(&self, store: &Store) -> std::result::Result<Vec<Table>, String> {
        let compression = if self.compressed { Compression::Lz4 } else { Compression::None };
        let options = |ttl_ms| {
            TableOptions::default().compression(compression).ttl(Duration::from_millis(ttl_ms))
        };
        TABLES
            .iter()
            .map(|(name, ttl_ms)| store.table_with(name, &options(*ttl_ms)))
            .collect::<Result<_>>()
            .map_err(said("opening a table"))
    }

    fn spend(&mut self, store: &Store) -> std::result::Result<(), String> {
        let tables = self.tables(store)?;
        self.judge(store, &tables)?;
        let turns = self.rng.u32(5..60);
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let actor = Actor {
                    task,
                    rng: self.rng.fork(),
                    model: self.model.clone(),
                    store: store.clone(),
                    session: store.task(),
                    tables: tables.iter().map(Table::task).collect(),
                    plain: tables.clone(),
                };
                store.spawn(move || actor.act(turns))
            })
            .collect();
        let mut steps = 0;
        while !tasks.iter().all(qpair_engine::JoinHandle::is_finished) {
            for _ in 0..self.rng.u32(1..400) {
                steps += 1;
                if store.step() == Step::Stuck {
                    break;
                }
            }
            if steps > STEPS_MAX {
                return Err("expiry: tasks run for ever".to_owned());
            }
            if self.rng.u8(0..3) == 0 {
                self.set_wall();
            }
            if self.rng.bool() {
                store.remove_expired().map_err(said("removing"))?;
            }
        }
        for task in tasks {
            task.join().and_then(|outcome| outcome).map_err(said("a task"))?;
        }
        self.set_wall();
        store.remove_expired().map_err(said("removing"))?;
        self.judge(store, &tables)
    }

    /// Reads all keys, one by one and as ranges.
    fn judge(&self, store: &Store, tables: &[Table]) -> std::result::Result<(), String> {
        for (number, table) in tables.iter().enumerate() {
            let keys = self.model.lock().keys_of(number);
            for key in &keys {
                let before_ms = self.model.lock().note_horizon(store.horizon_ms());
                let found = table.get(key).map_err(said("reading"))?;
                let found = found.map(|value| id_of(&value)).transpose()?;
                let horizons = (before_ms, self.model.lock().note_horizon(store.horizon_ms()));
                self.model.lock().reads((number, key), found, horizons);
            }
            let forward: Vec<Vec<u8>> =
                table.iter().map(|it| Ok(it?.0)).collect::<Result<_>>().map_err(said("a range"))?;
            let mut back: Vec<Vec<u8>> = table
                .iter()
                .reverse()
                .map(|it| Ok(it?.0))
                .collect::<Result<_>>()
                .map_err(said("a range"))?;
            back.reverse();
            if forward != back || forward.iter().any(|key| !keys.contains(key)) {
                return Err(format!("expiry: table {number} has other keys from the other end"));
            }
        }
        Ok(())
    }

    /// Lets all records expire: nothing may be left of them. Then checks the store.
    fn end(&mut self, store: Store) -> std::result::Result<(), String> {
        let later_ms = self.model.lock().walls_ms.iter().max().map_or(0, |most| most + 10_000_000);
        self.wall_ms.store(later_ms, Ordering::Relaxed);
        self.model.lock().walls_ms.push(later_ms);
        let tables = self.tables(&store)?;
        store.remove_expired().map_err(said("removing"))?;
        self.judge(&store, &tables)?;
        for (table, (name, _)) in tables.iter().zip(TABLES) {
            let left = table.stored().count().map_err(said("counting"))?;
            if left > 0 {
                return Err(format!("expiry: {left} records of table {name} were not removed"));
            }
        }
        if let Some(wrong) = self.model.lock().wrong.clone() {
            return Err(format!("expiry: {wrong}"));
        }
        drop(tables);
        store.close().map_err(said("closing"))?;
        let options = StoreOptions { read_only: true, ..self.options() };
        let store = Store::open(vec![Arc::new(self.device.clone())], &options)
            .map_err(said("opening for a check"))?;
        let report = store.check(&|_, _| ()).map_err(said("a check"))?;
        store.close().map_err(said("closing after a check"))?;
        match report.faults.first() {
            Some(fault) => Err(format!("expiry: a check found: {fault}")),
            None => Ok(()),
        }
    }
}

/// Returns the bytes of a value: its number, and bytes that follow from it.
fn bytes_of(id: u64) -> Vec<u8> {
    let len = if id.is_multiple_of(13) { 2_000 } else { 8 + id as usize % 100 };
    id.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn id_of(value: &[u8]) -> std::result::Result<u64, String> {
    let id = value.first_chunk().map(|id| u64::from_le_bytes(*id));
    id.filter(|id| bytes_of(*id) == value)
        .ok_or_else(|| "expiry: a value is none that was put".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_has_expired_is_seen_again() {
        for seed in 1..=60 {
            assert_eq!(run(seed, None).map(drop), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn a_horizon_that_is_seen_too_early_is_found() {
        let is_found = |seed| run(seed, Some(Canary::HorizonBeforeDurable)).is_err();
        assert!((1..=400).any(is_found));
    }
}
