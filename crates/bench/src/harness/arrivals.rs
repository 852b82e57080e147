//! An open loop: operations that arrive at random times, independent of the store's speed.
//!
//! Invariants: the arrival time of an operation does not depend on earlier operations. A free
//! client takes the operation that is due first. If no client is free when an operation is due, the
//! operation is late; its latency counts from the time it was due.

use qpair_block::locks::Mutex;
use std::time::Duration;

use qpair::{Error, ErrorKind, Result};

/// The longest sleep of a client before it checks whether the run is over, in nanoseconds.
const SLEEP_NS_MAX: u64 = 10_000_000;

/// Independent arrivals for all clients together, with a given mean rate.
pub(crate) struct Arrivals {
    mean_ns: f64,
    next: Mutex<Next>,
}

struct Next {
    at_ns: f64,
    random: fastrand::Rng,
}

impl Arrivals {
    pub(crate) fn new(per_s: f64, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { mean_ns: 1e9 / per_s, next: Mutex::new(Next { at_ns: 0.0, random }) }
    }

    /// Returns the arrivals of a run at a rate; `None` if the run is a closed loop.
    pub(crate) fn of(rate_per_s: Option<f64>, seed: u64) -> Result<Option<Self>> {
        match rate_per_s {
            Some(per_s) if !(per_s > 0.0 && per_s <= 1e9) => {
                let context = format!(
                    "a rate of {per_s} operations a second is out of range: it must be more than 0 and at most 1e9"
                );
                Err(Error::new(ErrorKind::Invalid, context))
            }
            rate => Ok(rate.map(|per_s| Self::new(per_s, seed))),
        }
    }

    /// Returns the time at which the next operation is due.
    fn take(&self) -> u64 {
        let mut next = self.next.lock();
        // Distances between independent arrivals are exponentially distributed; 1 - f64() is not 0.
        next.at_ns -= self.mean_ns * (1.0 - next.random.f64()).ln();
        next.at_ns as u64
    }

    /// Sleeps until the next operation is due, and returns that time; `None` if the run ends
    /// before.
    pub(crate) async fn next(
        &self,
        now_ns: impl Fn() -> u64,
        is_over: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let due_ns = self.take();
        loop {
            let now_ns = now_ns();
            if now_ns >= due_ns {
                return Some(due_ns);
            }
            if is_over(now_ns) {
                return None;
            }
            let rest = Duration::from_nanos((due_ns - now_ns).min(SLEEP_NS_MAX));
            if qpair::task::sleep(rest).await.is_err() {
                // The caller is not a worker of a store, so there is no timer.
                qpair::task::yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_independent_of_whoever_takes_them() {
        let arrivals = Arrivals::new(1000.0, 7);
        let times: Vec<u64> = (0..100_000).map(|_| arrivals.take()).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        let mean_ns = *times.last().unwrap() as f64 / times.len() as f64;
        assert!((mean_ns / 1e6 - 1.0).abs() < 0.02, "{mean_ns}");
        // In an exponential distribution, a share of 1 - 1/e of the distances is below the mean.
        let short = times.windows(2).filter(|pair| pair[1] - pair[0] < 1_000_000).count();
        assert!((short as f64 / times.len() as f64 - 0.632).abs() < 0.01, "{short}");
        let again = Arrivals::new(1000.0, 7);
        assert!(times.iter().all(|time| again.take() == *time));
        assert!(Arrivals::of(Some(0.0), 1).is_err() && Arrivals::of(None, 1).unwrap().is_none());
        assert!(Arrivals::of(Some(f64::NAN), 1).is_err());
    }

    /// A waiting client reads the clock when it begins and when it is woken. An earlier version
    /// yielded in a loop and kept the processor busy, so a lookup cost more processor time at a low
    /// rate than at the highest.
    #[test]
    fn waiting_for_an_arrival_is_sleeping() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU64, Ordering};
        use std::time::Instant;

        const ARRIVALS: u64 = 20;
        let options = qpair::Options::new("ram:size=16MiB").memory_bytes(4 << 20).workers(1);
        let store = options.open().unwrap();
        let looks = Arc::new(AtomicU64::new(0));
        let counted = looks.clone();
        let client = store.spawn(move || async move {
            let (arrivals, start) = (Arrivals::new(1000.0, 7), Instant::now());
            for _ in 0..ARRIVALS {
                let now_ns = || {
                    counted.fetch_add(1, Ordering::Relaxed);
                    start.elapsed().as_nanos() as u64
                };
                let due_ns = arrivals.next(now_ns, |_| false).await.unwrap();
                assert!(start.elapsed().as_nanos() as u64 >= due_ns);
            }
        });
        client.join().unwrap();
        let looks = looks.load(Ordering::Relaxed);
        assert!(looks <= 3 * ARRIVALS, "{looks} looks at the clock for {ARRIVALS} arrivals");
        store.close().unwrap();
    }
}
