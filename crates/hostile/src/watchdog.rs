//! Ends the run when nothing moves any more.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Far longer than anything takes.
const STUCK: Duration = Duration::from_secs(240);

/// What is being done, and since when.
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
                let (since, what) = &*watched.0.lock().unwrap_or_else(PoisonError::into_inner);
                if since.elapsed() > STUCK {
                    eprintln!("hostile: stuck for {} s in {what}", STUCK.as_secs());
                    std::process::exit(1);
                }
            }
        });
        dog
    }

    /// Something else is done from now on.
    pub(super) fn set(&self, what: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), what.to_owned());
    }

    /// Adds to what is being done.
    pub(super) fn name(&self) -> impl Fn(&str) + use<> {
        let dog = self.clone();
        move |what| dog.set(what)
    }
}
