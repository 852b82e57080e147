//! Two devices behind one channel, for a thread that waits for both.
//!
//! Invariant: addresses from [`PAIR_SECOND_BYTES`] on belong to the second device, all others to
//! the first. A flush goes to the device that its offset names, and to no other. A request belongs
//! to one of the two devices, whose grid, size and limits apply to all of it.

use std::os::fd::BorrowedFd;

use crate::channel::group::ChannelGroup;
use crate::channel::poller::EarlyQueue;
use crate::seam::device::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, IoChannel, WaitOptions,
};
use crate::seam::error::Result;
use crate::seam::request::{Completion, Request};

/// The address at which the second device of a pair begins.
pub const PAIR_SECOND_BYTES: u64 = 1 << 62;

struct PairChannel {
    sides: ChannelGroup,
    /// Has no entries. Its event wakes a thread that sleeps on the descriptor, for completions that
    /// are available at once.
    early: EarlyQueue,
}

/// Opens one channel to two devices, each with the depth and memory of its own options. Addresses
/// from [`PAIR_SECOND_BYTES`] on belong to the second device. The wake event is that of the first
/// device's options. Call it on the thread that will use the channel.
///
/// # Errors
/// The errors of [`BlockDevice::open_channel`] for either device.
pub fn open_pair(
    first: (&dyn BlockDevice, &ChannelOptions),
    second: (&dyn BlockDevice, &ChannelOptions),
) -> Result<Box<dyn IoChannel>> {
    Ok(Box::new(PairChannel {
        sides: ChannelGroup::open([first, second])?,
        early: EarlyQueue::new(0),
    }))
}

impl IoChannel for PairChannel {
    fn submit(&mut self, mut request: Request) -> std::result::Result<(), Request> {
        let second = request.offset_bytes >= PAIR_SECOND_BYTES;
        let base_bytes = if second { PAIR_SECOND_BYTES } else { 0 };
        request.offset_bytes -= base_bytes;
        self.sides.submit(usize::from(second), request).map_err(|request| {
            let offset_bytes = request.offset_bytes + base_bytes;
            Request { offset_bytes, ..request }
        })
    }

    fn kick(&mut self) {
        self.sides.kick();
        // A thread that sleeps on the descriptor gets no other notification of a side without a
        // descriptor.
        if self.sides.is_unsignalled() {
            self.early.tell();
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.early.poll(completions);
        self.sides.poll(completions)
    }

    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.sides.look(completions)
    }

    fn arrival(&self) -> Arrival {
        self.sides.arrival()
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.early.poll(completions);
        self.sides.wait(completions, options)
    }

    fn in_flight(&self) -> u32 {
        self.sides.in_flight()
    }

    fn statistics(&self) -> ChannelStatistics {
        let mut sides = self.sides.statistics();
        sides.system_calls += self.early.system_calls;
        sides
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.sides.completion_fd(&mut self.early)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use qpair_memory::{Arena, ArenaOptions};

    use super::*;
    use crate::{DelayDevice, DelayOptions, IoError, Op, RamDevice, RamOptions, WakeEvent};

    fn ram(size_bytes: u64) -> Arc<RamDevice> {
        Arc::new(RamDevice::new(RamOptions { size_bytes, ..RamOptions::default() }).unwrap())
    }

    fn slow(write_us: u64) -> DelayDevice {
        let options = DelayOptions { write_us, flush_us: write_us, ..DelayOptions::default() };
        DelayDevice::new(ram(1 << 20), options).unwrap()
    }

    fn wait_for(want: u32) -> WaitOptions {
        WaitOptions { want, linger: Duration::MAX, timeout: None }
    }

    #[test]
    fn each_side_gets_its_own() {
        let (first, second) = (ram(1 << 20), ram(64 << 10));
        let arena = Arena::new(4096, 4, ArenaOptions::ordinary_pages()).unwrap();
        let options = ChannelOptions { depth: 4, ..ChannelOptions::default() };
        let mut pair = open_pair((first.as_ref(), &options), (second.as_ref(), &options)).unwrap();
        let mut completions = Vec::new();
        for (tag, offset_bytes) in [(1, 8192), (2, PAIR_SECOND_BYTES + 8192)] {
            let mut buffer = arena.lease().unwrap();
            buffer.copy_from(0, &[tag as u8; 4096]);
            pair.submit(Request::write(offset_bytes, 4096, buffer, tag)).unwrap();
        }
        // This is past the end of the second device, although the first one is large enough.
        let past = Request::read(PAIR_SECOND_BYTES + (64 << 10), 4096, arena.lease().unwrap(), 3);
        pair.submit(past).unwrap();
        pair.submit(Request { offset_bytes: PAIR_SECOND_BYTES, ..Request::flush(4) }).unwrap();
        assert_eq!(pair.wait(&mut completions, wait_for(4)), 4);
        completions.sort_by_key(|completion| completion.tag);
        let results: Vec<_> = completions.drain(..).map(|completion| completion.result).collect();
        assert_eq!(results, [Ok(()), Ok(()), Err(IoError::INVALID), Ok(())]);
        for (device, byte) in [(&first, 1), (&second, 2)] {
            let mut channel = device.open_channel(&options).unwrap();
            channel.submit(Request::read(8192, 4096, arena.lease().unwrap(), 0)).unwrap();
            channel.wait(&mut completions, wait_for(1));
            let buffer = completions.pop().unwrap().buffer.unwrap();
            assert_eq!(buffer.as_slice()[..4096], [byte; 4096]);
        }
        assert_eq!((pair.statistics().writes, pair.statistics().flushes), (2, 1));
    }

    #[test]
    fn a_full_side_gives_the_request_back_as_it_was() {
        let options = ChannelOptions { depth: 1, ..ChannelOptions::default() };
        let (first, second) = (slow(1000), slow(1000));
        let mut pair = open_pair((&first, &options), (&second, &options)).unwrap();
        let flush = |tag| Request { offset_bytes: PAIR_SECOND_BYTES, ..Request::flush(tag) };
        pair.submit(flush(1)).unwrap();
        let refused = pair.submit(flush(2)).unwrap_err();
        assert_eq!((refused.tag, refused.offset_bytes), (2, PAIR_SECOND_BYTES));
        pair.submit(Request::flush(3)).unwrap();
        assert_eq!(pair.in_flight(), 2);
    }

    #[test]
    fn sleeps_for_both_and_is_woken() {
        let wake = Arc::new(WakeEvent::new().unwrap());
        let options =
            ChannelOptions { depth: 4, wake: Some(wake.clone()), ..ChannelOptions::default() };
        for (first_us, second_us) in [(2000, 500), (500, 2000)] {
            let (first, second) = (slow(first_us), slow(second_us));
            let mut pair = open_pair((&first, &options), (&second, &options)).unwrap();
            pair.submit(Request::flush(1)).unwrap();
            pair.submit(Request { offset_bytes: PAIR_SECOND_BYTES, ..Request::flush(2) }).unwrap();
            let mut completions = Vec::new();
            assert_eq!(pair.wait(&mut completions, wait_for(2)), 2);
            assert!(completions.iter().all(|completion| completion.op == Op::Flush));
            wake.signal();
            assert_eq!(pair.wait(&mut completions, wait_for(1)), 0);
            wake.clear();
        }
    }
}
