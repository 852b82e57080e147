//! The process that is killed. It opens a store, reports its content, and runs transactions without
//! end. It reports each request and each answer before it continues.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use qpair_engine::{Error, Store};
use qpair_isolation::{Outcome, Transaction};

use super::Options;
use super::chores::{Chores, tidy_up};
use super::kills::plan_of;
use super::plan::{Plan, file};
use super::text::Line;
use crate::lists::{Actor, Lists, Recorder, Sink, Threads, ready};

/// The longest time that a killed process may hold its files. The kernel releases its rings in the
/// background.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Writes everything at once. A pipe keeps its data when the writer is killed.
struct Pipe;

impl Pipe {
    fn say(line: &Line) {
        // If the parent no longer reads, it also no longer needs this output.
        let _ = io::stdout().lock().write_all(line.text().as_bytes());
    }
}

impl Sink for Pipe {
    fn asks(&mut self, number: usize, transaction: &Transaction) {
        Self::say(&Line::Asks(number, transaction.clone()));
    }

    fn ends(&mut self, number: usize, outcome: Outcome, ended: u64) {
        Self::say(&Line::Ends(number, outcome, ended));
    }
}

/// Runs transactions until the process is killed. If no transactions are wanted, only reports the
/// content of the store.
pub(super) fn run(options: &Options, store: &Path) -> ExitCode {
    match live(options, store) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            // The parent process reads this.
            let _ = writeln!(io::stderr(), "{wrong}");
            ExitCode::FAILURE
        }
    }
}

fn open(plan: &Plan, path: &Path) -> Result<Store, String> {
    let began = Instant::now();
    loop {
        let device = match file(path, false) {
            Err(_) if began.elapsed() < TIMEOUT => {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            device => device?,
        };
        return Store::open(vec![device], &plan.store_options())
            .map_err(|error| format!("opening: {:?}: {error}", error.kind()));
    }
}

fn live(options: &Options, path: &Path) -> Result<(), String> {
    let plan = plan_of(options.seed, options.life);
    let store = open(&plan, path)?;
    let said = |doing: &str, error: &Error| format!("{doing}: {:?}: {error}", error.kind());
    tidy_up(&store).map_err(|error| said("tidying up", &error))?;
    let recorder = Recorder::new(options.life << 40 | 1, Some(Box::new(Pipe)));
    let unexpected = |error: &Error| Some(format!("{:?}: {error}", error.kind()));
    let lists = Lists::open(&store, plan.habits, recorder, unexpected);
    let lists = Arc::new(lists.map_err(|error| said("opening tables", &error))?);
    let mut rng = Rng::with_seed(options.seed ^ options.life << 32);
    // Nothing has changed yet, so this is the state that the last crash left.
    let state = ready(lists.state_now(&Threads(&store), &mut rng));
    let state = state.map_err(|error| said("reading all lists", &error))?;
    lists.begin_with(&state);
    Pipe::say(&Line::State(state));
    if options.transactions == 0 {
        drop(lists);
        return store.close().map_err(|error| said("closing", &error));
    }
    let mut chores = Chores::new(&store, lists.clone(), &plan, rng.fork());
    std::thread::scope(|scope| {
        for process in 0..plan.processes {
            let (lists, rng) = (lists.clone(), rng.fork());
            if plan.tasks {
                let session = store.task();
                drop(store.spawn(move || Actor::new(lists, session, process, rng).run(usize::MAX)));
            } else {
                let store = &store;
                scope.spawn(move || {
                    ready(Actor::new(lists, Threads(store), process, rng).run(usize::MAX));
                });
            }
        }
        while !lists.is_over() {
            if plan.has_chores {
                chores.some()
            } else {
                std::thread::sleep(Duration::from_millis(1))
            }
        }
    });
    Err(lists.first_wrong().unwrap_or_else(|| "it ended".to_owned()))
}
