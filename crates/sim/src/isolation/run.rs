//! One run: a store, its processes, and the verdict.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use qpair_block::BlockDevice;
use qpair_engine::{Store, StoreOptions};
use qpair_isolation::{History, Verdict, judge};

use super::chores::Chores;
use super::plan::{On, Plan};
use crate::lists::{Actor, Lists, Recorder, Threads, ready};

/// The number of the process that reads everything after the others have ended.
const LAST: u32 = u32::MAX;

fn said(doing: &str) -> impl Fn(qpair_engine::Error) -> String {
    move |error| format!("{doing}: {:?}: {error}", error.kind())
}

/// Runs a plan; returns a verdict, or an error that occurred without one.
pub(super) fn run(
    plan: &Plan,
    folder: &Path,
    interrupted: &AtomicBool,
    backups: &mut u64,
) -> Result<Verdict, String> {
    let device = plan.device(folder)?;
    let options = StoreOptions { format: true, ..plan.store_options() };
    let store = Store::open(vec![device.clone()], &options).map_err(said("making a store"))?;
    let unexpected = |error: &qpair_engine::Error| Some(format!("{:?}: {error}", error.kind()));
    let lists = Lists::open(&store, plan.habits, Recorder::new(1, None), unexpected);
    let lists = Arc::new(lists.map_err(said("making tables"))?);
    let mut rng = Rng::with_seed(!plan.seed);
    let chores = Chores::new(&store, lists.clone(), plan, rng.fork());
    *backups += work(plan, &store, &lists, chores, (&mut rng, interrupted))?;
    ready(lists.read_all(&Threads(&store), LAST, &mut rng)).map_err(said("reading all lists"))?;
    store.close().map_err(said("closing"))?;
    if plan.reopens {
        read_again(plan, &device, &lists, &mut rng)?;
    }
    let history = History { transactions: lists.recorder.take(), ..History::default() };
    let wrong = lists.first_wrong();
    drop((lists, device));
    if plan.on == On::File {
        // The whole folder is removed at the end of the program.
        let _ = std::fs::remove_file(folder.join(format!("store-{}", plan.seed)));
    }
    match wrong {
        Some(wrong) => Err(wrong),
        None => Ok(judge(&history)),
    }
}

/// Lets the processes run until they have run as many transactions as the plan wants. Returns the
/// number of backups made in that time.
fn work(
    plan: &Plan,
    store: &Store,
    lists: &Arc<Lists>,
    mut chores: Chores<'_>,
    (rng, interrupted): (&mut Rng, &AtomicBool),
) -> Result<u64, String> {
    let wanted = plan.transactions;
    let mut watch = |ended: &dyn Fn() -> bool| {
        while !ended() {
            if interrupted.load(Ordering::Relaxed) {
                lists.stop();
            }
            match plan.has_chores && !lists.is_over() && lists.recorder.len() < wanted {
                true => chores.some(),
                false => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    };
    if plan.tasks {
        let tasks: Vec<_> = (0..plan.processes)
            .map(|process| {
                let (lists, session, rng) = (lists.clone(), store.task(), rng.fork());
                store.spawn(move || Actor::new(lists, session, process, rng).run(wanted))
            })
            .collect();
        watch(&|| tasks.iter().all(qpair_engine::JoinHandle::is_finished));
        tasks.into_iter().try_for_each(|task| task.join().map_err(said("a task")))?;
    } else {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..plan.processes)
                .map(|process| {
                    let (lists, rng) = (lists.clone(), rng.fork());
                    scope.spawn(move || {
                        ready(Actor::new(lists, Threads(store), process, rng).run(wanted))
                    })
                })
                .collect();
            watch(&|| threads.iter().all(std::thread::ScopedJoinHandle::is_finished));
        });
    }
    Ok(chores.backups)
}

fn read_again(
    plan: &Plan,
    device: &Arc<dyn BlockDevice>,
    lists: &Lists,
    rng: &mut Rng,
) -> Result<(), String> {
    let store =
        Store::open(vec![device.clone()], &plan.store_options()).map_err(said("opening again"))?;
    lists.read_copy(&store, LAST, None, rng).map_err(said("reading all lists again"))?;
    store.close().map_err(said("closing again"))
}
