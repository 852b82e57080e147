//! Detection of losses of power. A loss takes the data in a unit's volatile cache, and the unit
//! reports it to a single command.
//!
//! A command that ended without the unit's own status may have been the one that got the report.
//! The unit's timestamp reveals this: it is set to a token here, and restarts with the power.
//!
//! Invariants:
//! - A loss before a command ended is counted in `losses`; or that command is counted in `unseen`
//!   and not in `cleared`; or the timestamp is not a token.
//! - A loss from before a token is known here has been counted in `losses` by then.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use qpair_block::time;
use qpair_scsi_wire::timestamp::{ORIGIN_SET, Timestamp};

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// The smallest token. Tokens are times in ms in the 43rd century: no initiator that means the time
/// sets a clock to them.
const TOKEN_MIN: u64 = 1 << 46;
/// How far a drive's clock may run ahead, in addition to running at twice the speed.
const CLOCK_SLACK: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) ms: u64,
    /// A time before the token was sent.
    since: Instant,
}

impl Token {
    pub(crate) fn new() -> Self {
        let random = RandomState::new().hash_one(0);
        Self { ms: TOKEN_MIN + random % TOKEN_MIN, since: time::now() }
    }

    /// Whether a timestamp can be this token, plus the time that has passed.
    fn is_in(&self, timestamp: Timestamp) -> bool {
        let at_most = (2 * (time::now() - self.since) + CLOCK_SLACK).as_millis();
        let passed = timestamp.ms.checked_sub(self.ms);
        timestamp.origin == ORIGIN_SET && passed.is_some_and(|ms| u128::from(ms) <= at_most)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Power {
    /// The number of times that the unit may have been without power.
    losses: AtomicU64,
    /// The number of commands that ended without the unit's own status.
    unseen: AtomicU64,
    /// The number of unseen commands that are known to hide no uncounted loss.
    cleared: AtomicU64,
    /// Whether the unit has a timestamp that can be set.
    has_witness: AtomicBool,
    /// The token that the timestamp was last set to, and the losses counted at that time.
    witness: Mutex<Option<(Token, u64)>>,
}

impl Power {
    #[inline]
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    #[cold]
    pub(crate) fn note_loss(&self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a command whose status from the unit is not known. Without a witness it counts as a
    /// loss.
    #[cold]
    pub(crate) fn note_unseen(&self) {
        let count = if self.has_witness() { &self.unseen } else { &self.losses };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn has_witness(&self) -> bool {
        self.has_witness.load(Ordering::Relaxed)
    }

    pub(crate) fn set_has_witness(&self, has_one: bool) {
        self.has_witness.store(has_one, Ordering::Relaxed);
    }

    /// Returns the number of commands that ended unseen. Must be read before the unit is asked, for
    /// [`Power::clear`].
    pub(crate) fn unseen(&self) -> u64 {
        self.unseen.load(Ordering::Relaxed)
    }

    /// Whether there may be an uncounted loss. Must be called before [`Power::losses`].
    #[inline]
    pub(crate) fn is_unsure(&self) -> bool {
        // Acquire: a thread that sees the commands cleared also sees the losses that were counted
        // before; the partner is `clear`.
        self.unseen.load(Ordering::Relaxed) > self.cleared.load(Ordering::Acquire)
    }

    /// Whether the unit's timestamp proves that it was not without power since the timestamp was
    /// set.
    pub(crate) fn is_as_set(&self, timestamp: Timestamp) -> bool {
        let witness = *lock(&self.witness);
        witness.is_some_and(|(token, _)| token.is_in(timestamp))
    }

    /// Clears unseen commands, because the unit was not without power before it answered: they hide
    /// no loss.
    pub(crate) fn clear(&self, unseen: u64) {
        self.cleared.fetch_max(unseen, Ordering::Release);
    }

    /// Whether the timestamp was set after the last known loss.
    pub(crate) fn is_watched(&self) -> bool {
        let witness = *lock(&self.witness);
        witness.is_some_and(|(_, losses)| losses == self.losses())
    }

    /// Handles the end of a SET TIMESTAMP. It erases the trace of an earlier loss, so a possible
    /// loss is counted before the token becomes known.
    pub(crate) fn watch(&self, token: Option<Token>) {
        let unseen = self.unseen();
        let losses = self.losses.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(token) = token {
            self.clear(unseen);
            *lock(&self.witness) = Some((token, losses));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> crate::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn at(token: Token, ms: u64) -> Timestamp {
        Timestamp { origin: ORIGIN_SET, ms: token.ms + ms }
    }

    #[test]
    fn a_timestamp_that_somebody_else_set_is_no_witness() {
        let (power, token) = (Power::default(), Token::new());
        assert!(!power.is_as_set(at(token, 0)), "not set yet");
        power.watch(Some(token));
        assert!(power.is_as_set(at(token, 0)) && power.is_as_set(at(token, 1000)));
        let hour = 3_600_000;
        assert!(!power.is_as_set(at(token, hour)), "more time than has passed");
        assert!(!power.is_as_set(Timestamp { origin: 0, ..at(token, 0) }));
        assert!(!power.is_as_set(Timestamp { origin: ORIGIN_SET, ms: 1_800_000_000_000 }));
        let other = Token::new();
        assert!(!power.is_as_set(at(other, 0)) && other.ms < 1 << 47);
    }

    #[test]
    fn what_is_unseen_is_a_loss_until_it_is_cleared() {
        let power = Power::default();
        power.note_unseen();
        assert_eq!((power.losses(), power.is_unsure()), (1, false), "no witness");
        power.set_has_witness(true);
        power.watch(Some(Token::new()));
        let losses = power.losses();
        power.note_unseen();
        let asked = power.unseen();
        power.note_unseen();
        power.clear(asked);
        assert!(power.is_unsure() && power.losses() == losses);
        power.clear(power.unseen());
        assert!(!power.is_unsure() && power.is_watched());
        power.note_loss();
        assert!(!power.is_watched());
        power.note_unseen();
        power.watch(None);
        assert!(power.is_unsure() && !power.is_watched(), "the timestamp was not set");
        power.watch(Some(Token::new()));
        assert!(!power.is_unsure() && power.is_watched() && power.losses() == losses + 3);
    }
}

#[cfg(all(test, loom))]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// One channel finds a loss, and erases its trace by setting the timestamp again. A flush on
    /// another channel that sees nothing unsure any more, or sees the new token, also sees the
    /// loss.
    #[test]
    fn a_loss_that_is_covered_up_is_counted() {
        loom::model(|| {
            let power = Arc::new(Power::default());
            power.set_has_witness(true);
            power.note_unseen();
            let token = Token::new();
            let channel = {
                let power = power.clone();
                loom::thread::spawn(move || power.watch(Some(token)))
            };
            let found = Timestamp { origin: ORIGIN_SET, ms: token.ms };
            if !power.is_unsure() || power.is_as_set(found) {
                assert_eq!(power.losses(), 1);
            }
            channel.join().unwrap();
        });
    }
}
