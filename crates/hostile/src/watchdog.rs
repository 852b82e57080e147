//! Ends the run when it makes no progress.

use qpair_memory::locks::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A time that is far longer than any step takes.
const STUCK: Duration = Duration::from_secs(240);

/// The current step and its start.
#[derive(Clone)]
pub(super) struct Watchdog(Arc<Mutex<(Instant, String)>>);

impl Watchdog {
    #[allow(clippy::print_stderr, reason = "it is a command")]
    pub(super) fn start() -> Self {
        let dog = Self(Arc::new(Mutex::new((Instant::now(), "the start".to_owned()))));
        let watched = dog.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let (since, what) = &*watched.0.lock();
                if since.elapsed() > STUCK {
                    eprintln!("hostile: stuck for {} s in {what}", STUCK.as_secs());
                    std::process::exit(1);
                }
            }
        });
        dog
    }

    pub(super) fn set(&self, what: &str) {
        *self.0.lock() = (Instant::now(), what.to_owned());
    }

    /// Returns a function that extends the description of the current step.
    pub(super) fn name(&self) -> impl Fn(&str) + use<> {
        let dog = self.clone();
        move |what| dog.set(what)
    }
}
