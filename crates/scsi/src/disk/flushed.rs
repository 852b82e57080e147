//! Flushes that the disk has completed, and the proof that they lost nothing.
//!
//! A successful flush says nothing of data that an earlier loss of power took, and the unit reports
//! that loss to a single command. So all commands that were in flight then, on any channel, must be
//! followed to their end. Alternatively the unit is asked for its timestamp, which reveals a loss
//! too.

use std::time::{Duration, Instant};

use qpair_block::{Completion, IoError, time};
use qpair_scsi_wire::timestamp::{self, TIMESTAMP_BYTES, Timestamp};

use super::channel::ScsiChannel;
use super::plan::Plan;
use super::power::Token;
use crate::middle::{Command, Place};

/// How long to wait for the ends of other commands before the unit is asked for its timestamp,
/// which takes about as long.
const ASK_AFTER: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Waits for the end of all commands that were in flight when the flush was done, or for the
    /// time to be up.
    Looking { look: u64, since: Instant },
    /// Waits for the timestamp. `unseen` is the number of commands that had ended unseen when it
    /// was asked for.
    Asking { unseen: u64 },
    /// Waits for the timestamp to be set anew; after that the flush fails.
    Setting(Token),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Flushed {
    tag: u16,
    step: Step,
}

impl ScsiChannel {
    /// Handles the end of a command of a flush: SYNCHRONIZE CACHE, or a later one.
    #[cold]
    pub(super) fn flush_ended(
        &mut self,
        tag: u16,
        result: std::result::Result<(), IoError>,
        completions: &mut Vec<Completion>,
    ) {
        let known = self.flushed.iter().position(|it| it.tag == tag);
        let step = known.map(|at| self.flushed.swap_remove(at).step);
        match (step, result) {
            (None, Ok(())) => {
                let look = self.state.recall.begin_look(&self.answers);
                self.look_up();
                let step = Step::Looking { look, since: time::now() };
                self.flushed.push(Flushed { tag, step });
            }
            (Some(Step::Asking { unseen }), Ok(())) => {
                let at = self.layout.list(tag) as usize;
                let mut bytes = [0; TIMESTAMP_BYTES];
                self.queue.scratch().shared().copy_to(at, &mut bytes);
                let timestamp = Timestamp::decode(&bytes);
                if timestamp.is_some_and(|it| self.state.power.is_as_set(it)) {
                    self.state.power.clear(unseen);
                    match self.is_kept(tag) {
                        true => self.finish(tag, Ok(()), completions),
                        false => self.fail(tag, false, completions),
                    }
                } else {
                    self.fail(tag, true, completions);
                }
            }
            (Some(Step::Setting(token)), result) => {
                self.state.power.watch(result.is_ok().then_some(token));
                self.power_losses = self.state.power.losses();
                self.finish(tag, Err(IoError::IO), completions);
            }
            // The lost data is not known.
            (_, Err(error)) => self.finish(tag, Err(error), completions),
            (Some(Step::Looking { .. }), Ok(())) => {}
        }
    }

    /// Answers the looks that flushes request, one after the other. A look is answered when all
    /// commands that had been sent when it was seen have ended.
    #[cold]
    pub(super) fn look_up(&mut self) {
        loop {
            if self.queue.older() > 0 {
                return;
            }
            if self.is_looking {
                self.is_looking = false;
                self.answers.answer_look(self.look);
            }
            let look = self.state.recall.looks();
            if look == self.look {
                return;
            }
            (self.look, self.is_looking) = (look, true);
            self.queue.begin_round();
        }
    }

    #[cold]
    pub(super) fn settle_flushes(&mut self, completions: &mut Vec<Completion>) {
        let mut at = 0;
        while let Some(&Flushed { tag, step }) = self.flushed.get(at) {
            at += 1;
            let Step::Looking { look, since } = step else { continue };
            let is_seen = self.state.recall.is_seen(look);
            let power = &self.state.power;
            let (can_ask, is_unsure) = (power.has_witness(), power.is_unsure());
            let timeout = if can_ask { ASK_AFTER } else { self.timeout };
            if !is_seen && !is_unsure && time::now() - since < timeout {
                continue;
            }
            at -= 1;
            self.flushed.swap_remove(at);
            if !self.is_kept(tag) {
                self.fail(tag, false, completions);
            } else if is_seen && !is_unsure {
                self.finish(tag, Ok(()), completions);
            } else if can_ask {
                let unseen = self.state.power.unseen();
                self.send_timestamp(tag, None, Step::Asking { unseen });
            } else {
                self.finish(tag, Err(IoError::IO), completions);
            }
        }
    }

    /// Whether no loss was counted since the last flush.
    fn is_kept(&self, tag: u16) -> bool {
        let at_sending = self.jobs[usize::from(tag)].map(|job| job.power_losses);
        at_sending == Some(self.power_losses) && self.state.power.losses() == self.power_losses
    }

    /// Fails a flush, because writes from before it may be lost. Sets the timestamp anew, so that
    /// it reveals the next loss.
    fn fail(&mut self, tag: u16, is_news: bool, completions: &mut Vec<Completion>) {
        let power = &self.state.power;
        let losses = power.losses();
        // A loss that only the timestamp reveals must be counted, unless another channel has done
        // that.
        let is_to_count = is_news && losses == self.power_losses;
        if is_to_count || power.has_witness() && !power.is_watched() {
            let token = Token::new();
            return self.send_timestamp(tag, Some(token), Step::Setting(token));
        }
        self.power_losses = losses;
        self.finish(tag, Err(IoError::IO), completions);
    }

    fn send_timestamp(&mut self, tag: u16, token: Option<Token>, step: Step) {
        let offset = self.layout.list(tag);
        let bytes = token.map_or([0; TIMESTAMP_BYTES], |token| timestamp::encode_set(token.ms));
        self.queue.scratch().shared().copy_from(offset as usize, &bytes);
        let is_out = token.is_some();
        let (place, len) = (Place::Scratch, TIMESTAMP_BYTES as u32);
        self.flushed.push(Flushed { tag, step });
        let cdb = Plan::timestamp(is_out);
        self.queue.send(tag, Command { cdb, is_out, place, offset, len });
    }

    /// Whether a flush waits for other threads, which do not wake this one.
    pub(crate) fn awaits_looks(&self) -> bool {
        self.flushed.iter().any(|it| matches!(it.step, Step::Looking { .. }))
    }
}
