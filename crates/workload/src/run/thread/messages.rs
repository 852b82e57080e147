//! Requests that another thread triggers one by one: S4's *msg*.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qpair_block::WakeEvent;

use super::{Common, LOOK, Thread, nanos};

impl Thread<'_> {
    /// Like [`Self::turn`], with requests that another thread triggers.
    pub(super) fn turn_of_messages(
        &mut self,
        now: u64,
        over: bool,
        messages: &Messages<'_>,
    ) -> u64 {
        if !over {
            while !self.free.is_empty()
                && let Ok(due_ns) = messages.queue.try_recv()
            {
                let Some(mut candidate) = self.candidate() else { break };
                candidate.due_ns = due_ns;
                self.submit(candidate, now);
            }
        }
        self.kick();
        messages.wake.prepare();
        let timeout = if over && self.in_flight == 0 { Duration::ZERO } else { LOOK };
        self.wait(1, Some(timeout));
        messages.wake.awake();
        let now = self.common.now_ns();
        self.take(now);
        now
    }
}

/// The queue of moments at which requests were triggered, and the event that announces them.
pub(in crate::run) struct Messages<'a> {
    pub(in crate::run) queue: &'a std::sync::mpsc::Receiver<u64>,
    pub(in crate::run) wake: &'a WakeEvent,
}

/// Count the interval from the real time of the last one, so that a late one does not make the next
/// one come sooner.
pub(in crate::run) fn produce(
    queue: &std::sync::mpsc::SyncSender<u64>,
    wake: &WakeEvent,
    interval: Duration,
    common: &Common<'_>,
    over: &AtomicBool,
) {
    let mut due = common.now_ns();
    while !over.load(Ordering::Relaxed) {
        let now = common.now_ns();
        if now < due {
            common.sleep_towards(due);
            continue;
        }
        match queue.try_send(now) {
            Ok(()) => {
                wake.wake();
                // The shortest distance, from when it really went: a late one does not make the
                // next come sooner.
                due = now + nanos(interval).max(1);
            }
            Err(std::sync::mpsc::TrySendError::Full(_)) => std::thread::yield_now(),
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => return,
        }
    }
}
