//! The queue of a channel whose requests complete while they are submitted.

use std::sync::Arc;

use crate::seam::device::{ChannelOptions, ChannelStatistics, WaitOptions};
use crate::seam::error::IoError;
use crate::seam::request::{Completion, Request};
use crate::seam::sleep::sleep;
use crate::seam::wake::WakeEvent;

/// Completions waiting to be polled; allocated once, at the channel's depth.
pub(crate) struct ReadyQueue {
    depth: usize,
    ended: Vec<Completion>,
    statistics: ChannelStatistics,
    wake: Option<Arc<WakeEvent>>,
}

impl ReadyQueue {
    pub(crate) fn new(options: &ChannelOptions) -> Self {
        let depth = options.depth as usize;
        Self {
            depth,
            ended: Vec::with_capacity(depth),
            statistics: ChannelStatistics::default(),
            wake: options.wake.clone(),
        }
    }

    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.ended.len() >= self.depth
    }

    /// Completes `request`. The caller must have checked [`ReadyQueue::is_full`].
    #[inline]
    pub(crate) fn push(&mut self, request: Request, result: Result<(), IoError>) {
        self.statistics.count(request.op, request.len_bytes, result);
        self.ended.push(request.complete(result));
    }

    #[inline]
    pub(crate) fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let count = self.ended.len();
        completions.append(&mut self.ended);
        count
    }

    /// Everything in flight has completed already, so a wait sleeps only if the queue is empty.
    pub(crate) fn wait(
        &mut self,
        completions: &mut Vec<Completion>,
        options: WaitOptions,
    ) -> usize {
        if self.ended.is_empty() {
            self.statistics.system_calls += 1;
            sleep(None, self.wake.as_deref(), options.timeout);
        }
        self.poll(completions)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.ended.len() as u32
    }

    pub(crate) fn statistics(&self) -> ChannelStatistics {
        self.statistics
    }
}
