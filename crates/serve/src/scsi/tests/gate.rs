//! A device that holds completions back.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair_block::{
    BlockDevice, ChannelOptions, ChannelStatistics, Completion, DeviceInfo, IoChannel, Request,
    WaitOptions,
};

use crate::queue::rig::ram;

/// A device that holds completions back while its gate is shut.
#[derive(Debug)]
pub(super) struct Gate {
    inner: Arc<dyn BlockDevice>,
    is_shut: Arc<AtomicBool>,
}

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { inner: ram(), is_shut: Arc::default() })
    }

    pub(super) fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::Relaxed);
    }
}

impl BlockDevice for Gate {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn grow(&self, size_bytes: u64) -> qpair_block::Result<()> {
        self.inner.grow(size_bytes)
    }

    fn open_channel(&self, options: &ChannelOptions) -> qpair_block::Result<Box<dyn IoChannel>> {
        let inner = self.inner.open_channel(options)?;
        Ok(Box::new(GateChannel { inner, is_shut: self.is_shut.clone() }))
    }
}

struct GateChannel {
    inner: Box<dyn IoChannel>,
    is_shut: Arc<AtomicBool>,
}

impl IoChannel for GateChannel {
    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.inner.submit(request)
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.is_shut.load(Ordering::Relaxed) { 0 } else { self.inner.poll(completions) }
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.inner.wait(completions, options)
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight()
    }

    fn statistics(&self) -> ChannelStatistics {
        self.inner.statistics()
    }

    fn completion_fd(&mut self) -> qpair_block::Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }
}
