//! A device that records its reads.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, IoChannel, Op, Request, WaitOptions,
};

use super::Device;
use super::wrapped::Wrapped;

/// A read that a channel took.
#[derive(Debug)]
pub(crate) struct NotedRead {
    pub(crate) offset_bytes: u64,
    /// Requests of the channel that were in flight with it.
    pub(crate) in_flight: u32,
}

/// All reads so far.
pub(crate) type Reads = Arc<Mutex<Vec<NotedRead>>>;

pub(crate) fn noting(below: Device) -> (Device, Reads) {
    let reads = Reads::default();
    let its = reads.clone();
    let wrap = move |below: Box<dyn IoChannel>, _: &ChannelOptions| -> Box<dyn IoChannel> {
        Box::new(NotingChannel { below, reads: its.clone() })
    };
    (Arc::new(Wrapped { below, wrap: Box::new(wrap) }), reads)
}

struct NotingChannel {
    below: Box<dyn IoChannel>,
    reads: Reads,
}

impl IoChannel for NotingChannel {
    fn submit(&mut self, request: Request) -> Result<(), Request> {
        let (op, offset_bytes) = (request.op, request.offset_bytes);
        self.below.submit(request)?;
        if op == Op::Read {
            let in_flight = self.below.in_flight();
            self.reads.lock().unwrap().push(NotedRead { offset_bytes, in_flight });
        }
        Ok(())
    }

    fn kick(&mut self) {
        self.below.kick();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.below.poll(completions)
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.below.wait(completions, options)
    }

    fn in_flight(&self) -> u32 {
        self.below.in_flight()
    }

    fn statistics(&self) -> ChannelStatistics {
        self.below.statistics()
    }

    fn completion_fd(&mut self) -> qpair_block::Result<Option<BorrowedFd<'_>>> {
        self.below.completion_fd()
    }
}
