//! One lock for all I/O of a device: threads submit and poll for completions one at a time.
//!
//! Section 3.5 of the study describes such a lock (S3). The device exists for comparison with
//! channels without a lock. No thread sleeps with the lock held.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use qpair_block::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, Completion, DeviceInfo, IoChannel,
    Request, Result, WaitClock, WaitOptions,
};
use qpair_memory::locks::Mutex;

/// A device whose channels take turns under one lock.
#[derive(Debug)]
pub struct OneLockDevice {
    info: DeviceInfo,
    inner: Arc<dyn BlockDevice>,
    lock: Arc<Mutex<()>>,
}

impl OneLockDevice {
    /// Adds a lock to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        let info = inner.info().behind("onelock", "", "one lock for all I/O");
        Self { info, inner, lock: Arc::default() }
    }
}

impl BlockDevice for OneLockDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn removed(&self) -> Option<String> {
        self.inner.removed()
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.inner.grow(size_bytes)
    }

    fn shrinks(&self) -> bool {
        self.inner.shrinks()
    }

    fn shrink(&self, size_bytes: u64) -> Result<()> {
        self.inner.shrink(size_bytes)
    }

    fn reset(&self) -> Result<()> {
        self.inner.reset()
    }

    fn resets(&self) -> u64 {
        self.inner.resets()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        let inner = self.inner.open_channel(options)?;
        Ok(Box::new(OneLockChannel { inner, lock: self.lock.clone() }))
    }
}

struct OneLockChannel {
    inner: Box<dyn IoChannel>,
    lock: Arc<Mutex<()>>,
}

impl OneLockChannel {
    /// Returns the channel below, with the lock held.
    fn turn(&mut self) -> (MutexGuard<'_, ()>, &mut dyn IoChannel) {
        let held = self.lock.lock();
        (held, self.inner.as_mut())
    }
}

impl IoChannel for OneLockChannel {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        let (_held, inner) = self.turn();
        inner.submit(request)
    }

    fn kick(&mut self) {
        let (_held, inner) = self.turn();
        inner.kick();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let (_held, inner) = self.turn();
        inner.poll(completions)
    }

    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let (_held, inner) = self.turn();
        inner.look(completions)
    }

    fn arrival(&self) -> Arrival {
        self.inner.arrival()
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let clock = WaitClock::start(options, self.inner.in_flight());
        self.kick();
        let taken = self.poll(completions);
        let now = Instant::now();
        if clock.is_over(taken, now) {
            return taken;
        }
        taken + self.inner.wait(completions, clock.rest(taken, clock.end(taken), now))
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight()
    }

    fn statistics(&self) -> ChannelStatistics {
        self.inner.statistics()
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.inner.completion_fd()
    }
}
