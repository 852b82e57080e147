//! A device that holds a write back until a test releases it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, IoChannel, Op, Request, WaitOptions, WakeEvent,
};

use super::Device;
use super::wrapped::Wrapped;

#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// The number of writes to hold back, from the next one on.
    wanted: AtomicU64,
    held: AtomicU64,
}

impl Hold {
    pub(crate) fn hold_next_write(&self) {
        self.wanted.store(1, Ordering::SeqCst);
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    pub(crate) fn let_go(&self) {
        self.held.store(0, Ordering::SeqCst);
    }
}

/// Wraps a device. Returns the wrapper, and the handle that selects the writes to hold back.
pub(crate) fn holding(below: Device) -> (Device, Arc<Hold>) {
    let hold = Arc::new(Hold::default());
    let its = hold.clone();
    let wrap = move |below: Box<dyn IoChannel>, options: &ChannelOptions| -> Box<dyn IoChannel> {
        Box::new(HoldingChannel {
            below,
            hold: its.clone(),
            held: None,
            wake: options.wake.clone(),
        })
    };
    (Arc::new(Wrapped { below, wrap: Box::new(wrap) }), hold)
}

struct HoldingChannel {
    below: Box<dyn IoChannel>,
    hold: Arc<Hold>,
    held: Option<Request>,
    wake: Option<Arc<WakeEvent>>,
}

impl HoldingChannel {
    fn release(&mut self) {
        if self.hold.held() == 0
            && let Some(request) = self.held.take()
        {
            self.below.submit(request).unwrap();
            self.below.kick();
        }
    }
}

impl IoChannel for HoldingChannel {
    fn submit(&mut self, request: Request) -> Result<(), Request> {
        if request.op == Op::Write && self.hold.wanted.swap(0, Ordering::SeqCst) > 0 {
            self.held = Some(request);
            self.hold.held.store(1, Ordering::SeqCst);
            return Ok(());
        }
        self.below.submit(request)
    }

    fn kick(&mut self) {
        self.below.kick();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.release();
        self.below.poll(completions)
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        if self.held.is_none() {
            return self.below.wait(completions, options);
        }
        // The thread that releases the write does not wake this one.
        let end = options.timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let got = self.poll(completions);
            let is_over = end.is_some_and(|end| end <= Instant::now());
            if got > 0
                || is_over
                || qpair_block::sleep(None, self.wake.as_deref(), Some(Duration::from_millis(1)))
            {
                return got;
            }
        }
    }

    fn in_flight(&self) -> u32 {
        self.below.in_flight() + u32::from(self.held.is_some())
    }

    fn statistics(&self) -> ChannelStatistics {
        self.below.statistics()
    }

    fn completion_fd(&mut self) -> qpair_block::Result<Option<BorrowedFd<'_>>> {
        self.below.completion_fd()
    }
}
