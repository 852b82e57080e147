//! The life of a channel's queue pair: made, used, taken away.

use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result};
use qpair_nvme_wire::Command;
use qpair_nvme_wire::command::admin;

use crate::admin::Outcome;
use crate::channel::NvmeChannel;
use crate::controller::Controller;
use crate::state::Phase;

/// The number of a queue pair: given back unless it is kept.
pub(crate) struct Number<'a> {
    controller: &'a Controller,
    number: u16,
}

impl<'a> Number<'a> {
    pub(crate) fn take(controller: &'a Controller) -> Result<Self> {
        let mut core = controller.hub.lock();
        match core.take_queue() {
            Some(number) => Ok(Self { controller, number }),
            None => {
                let granted = core.queues_granted();
                let context = format!(
                    "channel {} on {}: the controller grants {granted} I/O queue pairs",
                    u32::from(granted) + 1,
                    controller.info().name
                );
                Err(Error::new(ErrorKind::Limit, context)
                    .hint(format!("use at most {granted} workers")))
            }
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// The channel has it, and gives it back.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        self.controller.hub.lock().return_queue(self.number);
    }
}

/// Where a queue pair is in its life.
#[derive(Debug)]
pub(crate) struct Line {
    _period: Duration,
}

impl Line {
    pub(crate) fn new(controller: &Controller) -> Self {
        Self { _period: controller.options.timeout() / 8 }
    }
}

impl NvmeChannel {
    /// Makes the queue pair, and waits until it is there.
    pub(crate) fn open_queue(&mut self) -> Result<()> {
        let (queue, entries) = (self.queue, self.rings.entries());
        let (submission, completion) = (self.rings.submission_iova(), self.rings.completion_iova());
        let vector = self.bell.vector();
        let make_cq = Command::create_cq(queue, entries, completion, vector);
        let make_sq = Command::create_sq(queue, entries, submission);
        for (command, what) in [(make_cq, "completion"), (make_sq, "submission")] {
            let outcome = self.controller.hub.call(|_| command, |_, outcome| outcome)?;
            if let Outcome::Failed(status) = outcome {
                let name = &self.controller.info().name;
                let context = format!("{name}: making {what} queue {queue}: {status:?}");
                return Err(Error::new(ErrorKind::Io, context));
            }
        }
        self.is_open = true;
        Ok(())
    }

    /// Waits for what is under way, and takes the queue pair away.
    pub(crate) fn close(&mut self) {
        let mut completions = Vec::new();
        let start = Instant::now();
        while self.has_commands() && start.elapsed() < Duration::from_secs(60) {
            self.turn(&mut completions);
            completions.clear();
        }
        let hub = &self.controller.hub;
        for opcode in [admin::DELETE_SQ, admin::DELETE_CQ] {
            let command = Command::delete_queue(opcode, self.queue);
            let _ = hub.call(|_| command, |_, outcome| outcome);
        }
        hub.lock().return_queue(self.queue);
    }

    /// Looks at the clock and at the controller.
    #[cold]
    pub(crate) fn tend(&mut self) {
        self.seen = self.controller.hub.state();
        if let Some(mut core) = self.controller.hub.try_lock()
            && core.state().phase() != Phase::Gone
        {
            core.advance();
        }
    }
}
