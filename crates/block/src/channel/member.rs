//! One of the channels of a channel group.

use crate::channel::poller::PollSet;
use crate::seam::device::{IoChannel, WaitOptions};
use crate::seam::error::Result;
use crate::seam::request::{Completion, Request};

/// A channel, and the state that a thread needs to sleep for several of them.
pub(crate) struct MemberChannel {
    pub(crate) channel: Box<dyn IoChannel>,
    /// Whether the channel has no descriptor, because its requests complete at once.
    prompt: bool,
    /// Whether requests were submitted since the doorbell last rang.
    dirty: bool,
    /// Whether the descriptor may be readable although nothing is in flight, because its
    /// completions were taken already.
    stale: bool,
}

impl MemberChannel {
    /// Wraps a channel that a thread sleeps for alone.
    pub(crate) fn alone(channel: Box<dyn IoChannel>) -> Self {
        Self { channel, prompt: false, dirty: false, stale: false }
    }

    /// Wraps a channel whose descriptor, if it has one, joins those of the others.
    ///
    /// # Errors
    /// The errors of [`IoChannel::completion_fd`], or the kernel's error if no more descriptors can
    /// be added.
    pub(crate) fn among(channel: Box<dyn IoChannel>, others: &mut Option<PollSet>) -> Result<Self> {
        let mut member = Self::alone(channel);
        match member.channel.completion_fd()? {
            Some(fd) => {
                let set = match others {
                    Some(set) => set,
                    none => none.insert(PollSet::new()?),
                };
                set.add(fd)?;
            }
            None => member.prompt = true,
        }
        Ok(member)
    }

    #[inline]
    pub(crate) fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        self.channel.submit(request)?;
        (self.dirty, self.stale) = (true, !self.prompt);
        Ok(())
    }

    /// Sleeps in the channel's own way.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        completions: &mut Vec<Completion>,
        options: WaitOptions,
    ) -> usize {
        self.dirty = false;
        self.channel.wait(completions, options)
    }

    /// Rings the doorbell if anything was submitted since.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.channel.kick();
        }
    }

    pub(crate) fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.channel.in_flight() > 0 { self.channel.poll(completions) } else { 0 }
    }

    /// Makes the descriptor of a channel with nothing in flight unreadable; otherwise no thread
    /// could sleep.
    pub(crate) fn settle(&mut self, completions: &mut Vec<Completion>) {
        if self.stale && self.channel.in_flight() == 0 {
            self.channel.poll(completions);
            self.stale = false;
        }
    }

    /// Whether the channel has requests whose completion no descriptor announces.
    pub(crate) fn is_unsignalled(&self) -> bool {
        self.prompt && self.channel.in_flight() > 0
    }
}
