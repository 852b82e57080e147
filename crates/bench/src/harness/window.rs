//! The measured time of a run, the beginning of its requests, and its progress.

use qpair_block::locks::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use qpair::Result;

use super::arrivals::Arrivals;
use super::choice::Choice;
use super::control::Control;
use super::plan::Plan;

/// The weight of the requests that a thread has finished, in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Live(pub(super) AtomicU64);

/// The measured time, in nanoseconds since its base. Clients check it at every request.
pub(super) struct Window {
    pub(super) control: Control,
    pub(super) choice: Choice,
    pub(super) kinds: usize,
    base: Instant,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    arrivals: Option<Arrivals>,
    live: Mutex<Vec<Arc<Live>>>,
}

impl Window {
    pub(super) fn begin_now(plan: &Plan) -> Result<Self> {
        let from_ns = (plan.warm_up_s * 1e9) as u64;
        let to_ns = |seconds: f64| from_ns.saturating_add((seconds * 1e9) as u64);
        Ok(Self {
            control: Control::new(plan.clients),
            choice: Choice::new(plan.clients),
            kinds: plan.kinds,
            base: Instant::now(),
            from_ns,
            to_ns: plan.seconds.map_or(u64::MAX, to_ns),
            arrivals: Arrivals::of(plan.rate_per_s, 1)?,
            live: Mutex::default(),
        })
    }

    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    /// Whether a request that ends at this time counts.
    #[inline]
    pub(super) fn measures(&self, ended_ns: u64) -> bool {
        ended_ns >= self.from_ns && ended_ns < self.to_ns
    }

    #[inline]
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.to_ns || self.control.is_stopped()
    }

    /// Waits until this client is among those that run; in an open loop also until the next request
    /// is due, and sets `began_ns` to that time. Returns `false` if the client or the run ends
    /// before. In a closed loop the request begins at once.
    #[inline]
    pub(super) async fn begin(&self, number: usize, began_ns: &mut u64) -> bool {
        if !self.choice.admits(number) {
            if !self.choice.wait(number, || self.is_over(self.now_ns())).await {
                return false;
            }
            *began_ns = self.now_ns();
        }
        let Some(arrivals) = &self.arrivals else { return true };
        let due_ns = arrivals.next(|| self.now_ns(), |now_ns| self.is_over(now_ns)).await;
        *began_ns = due_ns.unwrap_or(*began_ns);
        due_ns.is_some()
    }

    /// Returns a new counter for a thread.
    pub(super) fn new_live(&self) -> Arc<Live> {
        let live = Arc::<Live>::default();
        self.live.lock().push(live.clone());
        live
    }

    /// Returns the weight of all finished requests, including those before the measured time.
    pub(super) fn done(&self) -> u64 {
        let live = self.live.lock();
        live.iter().map(|live| live.0.load(Ordering::Relaxed)).sum()
    }
}
