//! The thread that backs a store up while it is open.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use qpair_engine::{Error, ErrorKind, Result, Store, WeakStore};

use crate::objects::Objects;
use crate::shipper::{BackupOptions, BackupStatus, Shipper, Step};

/// The shortest and the longest pause after a failure.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long the last commits are sent again before the backup ends without them.
const LAST_ATTEMPTS_FOR: Duration = Duration::from_secs(10);
/// The interval at which the thread sees whether much was committed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Returns the time of this machine's clock, in milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How a backup is to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Once all commits are shipped.
    Shipped,
    /// At once.
    Abandoned,
}

#[derive(Default)]
struct State {
    end: Option<End>,
    status: BackupStatus,
    /// The last failure, until a step succeeds.
    failure: Option<Error>,
    /// The reason why the backup has ended.
    ended: Option<Error>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this time, or until the follower is to stop.
    fn pause(&self, time: Duration) {
        let state = self.state();
        if state.end.is_none() {
            drop(self.stopped.wait_timeout(state, time));
        }
    }
}

/// A backup that follows an open store, on a thread of its own. It does not keep the store open.
pub struct Follower {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins to back a store up to this place, with a full part first. Another process that backs
    /// the store up to this place ends.
    ///
    /// # Errors
    /// As [`Shipper::open`].
    pub fn begin(store: &Store, objects: Arc<dyn Objects>, options: BackupOptions) -> Result<Self> {
        let shipper = Shipper::open(store, objects, options, now_ms())?;
        let shared = Arc::new(Shared::default());
        let (weak, of) = (store.downgrade(), shared.clone());
        let thread = std::thread::Builder::new()
            .name("qpair-backup".to_owned())
            .spawn(move || run(shipper, &weak, &of))
            .map_err(|error| {
                Error::new(ErrorKind::Limit, format!("starting the thread of a backup: {error}"))
            })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the state of the backup.
    #[must_use]
    pub fn status(&self) -> BackupStatus {
        self.shared.state().status
    }

    /// Returns the failure of the last attempt, which will be repeated.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared.state().failure.clone()
    }

    /// Returns the error that has ended the backup.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.shared.state().ended.clone()
    }

    /// Ships all commits, and ends. Call it before the store is closed.
    ///
    /// # Errors
    /// The error that has ended the backup, or that kept the last commits from being shipped.
    pub fn stop(mut self) -> Result<BackupStatus> {
        self.end(End::Shipped);
        let state = self.shared.state();
        match &state.ended {
            Some(error) => Err(error.clone()),
            None => Ok(state.status),
        }
    }

    /// Ends after the step that is being made, without the commits that are not shipped; returns
    /// the error that says so.
    pub fn abandon(mut self) -> Error {
        self.end(End::Abandoned);
        Error::with_hint(
            ErrorKind::Interrupted,
            "the backup was interrupted before its full part was complete",
            "run the command again: it begins anew",
        )
    }

    fn end(&mut self, end: End) {
        self.shared.state().end = Some(end);
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has no status to return.
            let _ = thread.join();
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end(End::Shipped);
        }
    }
}

fn run(mut shipper: Shipper, store: &WeakStore, shared: &Shared) {
    let mut pause = PAUSE;
    let mut stopping_since = None;
    loop {
        let end = shared.state().end;
        if end == Some(End::Abandoned) {
            return;
        }
        let stop = end.is_some();
        if stop {
            stopping_since.get_or_insert_with(Instant::now);
        }
        let Some(store) = store.upgrade() else {
            shared.state().ended = Some(Error::closed());
            return;
        };
        let outcome = match stop {
            true => shipper.finish(&store, now_ms()).map(|()| Step::Worked),
            false => shipper.step(&store, now_ms()),
        };
        drop(store);
        shared.state().status = shipper.status();
        match outcome {
            Ok(_) if stop => return,
            Ok(step) => {
                shared.state().failure = None;
                pause = PAUSE;
                if let Step::Idle(until) = step {
                    let time = Duration::from_millis(until.saturating_sub(now_ms()));
                    shared.pause(time.min(LOOK_EVERY));
                }
            }
            Err(error)
                if may_pass(&error)
                    && stopping_since.is_none_or(|since| since.elapsed() < LAST_ATTEMPTS_FOR) =>
            {
                shared.state().failure = Some(error);
                match stop {
                    true => std::thread::sleep(PAUSE),
                    false => shared.pause(pause),
                }
                pause = (2 * pause).min(PAUSE_MAX);
            }
            Err(error) => {
                shared.state().ended = Some(if stop { not_shipped(&error) } else { error });
                return;
            }
        }
    }
}

/// Returns the error of a backup that ends without the last commits.
fn not_shipped(error: &Error) -> Error {
    Error::with_hint(
        error.kind(),
        format!("the backup has ended without the last commits: {}", error.context()),
        "the store has them; the next backup to this place begins with a full part, which has them too",
    )
}

/// Whether another attempt may succeed: the place may be full, or its access be renewed.
fn may_pass(error: &Error) -> bool {
    use ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Io | Kind::NoSpace | Kind::NoMemory | Kind::Denied | Kind::TimedOut | Kind::Limit
    )
}
