//! A lane carries a queue's requests to a block device, and their completions back.
//!
//! Invariant: a head has a transfer from [`Lane::begin`] until its end is reported. Exactly during
//! this time, one request with the head as its tag is in the channel or in `parked`, or the head is
//! in `waiting`.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use qpair_block::{
    Arena, Buffer, ChannelOptions, Completion, DeviceInfo, Error, ErrorKind, IoChannel, IoError,
    Op, Request, Result,
};

use crate::disk::{Disk, LaneCounters, add};

/// The maximum number of segments of a request: more than guests are told of, because data that
/// crosses regions is split.
pub(crate) const SEGMENTS_MAX: usize = 256;
/// The number of bounce buffers, for requests whose segments do not meet the device's alignment,
/// and the maximum size of each in bytes.
const BOUNCES: u32 = 4;
const BOUNCE_BYTES_MAX: u32 = 1 << 20;

/// A request to a block device, of any length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) op: Op,
    /// Whether a change must be durable before it ends, also on a device with a volatile cache.
    pub(crate) durable: bool,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u32,
}

/// A job that has ended.
pub(crate) struct End {
    pub(crate) head: u16,
    pub(crate) job: Job,
    pub(crate) list: Option<Buffer>,
    pub(crate) result: std::result::Result<(), IoError>,
}

struct Transfer {
    job: Job,
    /// The number of bytes of the job that are done.
    done_bytes: u32,
    /// Whether the job goes through a bounce buffer: its data does not meet the device's alignment,
    /// or the device does not write zeroes by itself.
    bounced: bool,
    /// Whether a flush must follow the last part: only a write can go around a volatile cache.
    needs_flush: bool,
    /// The data, while no request uses it.
    list: Option<Buffer>,
}

impl Transfer {
    /// Returns how many of the remaining bytes one request may carry.
    fn part(&self, transfer_bytes_max: u32) -> u32 {
        let left = self.job.len_bytes - self.done_bytes;
        if matches!(self.job.op, Op::Read | Op::Write) {
            left.min(transfer_bytes_max)
        } else {
            left
        }
    }
}

/// Whether all parts of a list meet the device's alignment. A part may begin inside an aligned
/// segment, at an offset that is not aligned.
#[inline]
fn takes_parts(info: &DeviceInfo, list: &Buffer, len_bytes: u32) -> bool {
    let most = info.transfer_bytes_max;
    if len_bytes <= most {
        return info.takes(list, 0, len_bytes);
    }
    let mut starts = (0..len_bytes).step_by(most as usize);
    starts.all(|at| info.takes(list, at, most.min(len_bytes - at)))
}

pub(crate) struct Lane {
    disk: Arc<Disk>,
    channel: Box<dyn IoChannel>,
    transfers: Box<[Option<Transfer>]>,
    busy: u32,
    /// Requests that the channel had no room for.
    parked: VecDeque<Request>,
    bounces: Arc<Arena>,
    /// Whether the device writes zeroes by itself: it says so, and has not refused to do it.
    writes_zeroes: bool,
    /// Heads that wait for a bounce buffer.
    waiting: VecDeque<u16>,
    completions: Vec<Completion>,
    /// The numbers of requests whose data the channel has copied, and of its system calls, at the
    /// last check.
    checked: (u64, u64),
    /// Whether requests have ended since that check.
    has_ended: bool,
    counters: Arc<LaneCounters>,
    /// Whether a descriptor signals completions.
    has_completion_fd: bool,
}

impl Lane {
    /// Opens a channel on the calling thread, for a queue of `size` heads with segment lists of
    /// `arena`.
    ///
    /// # Errors
    /// The device's error, or that of allocating the bounce buffers.
    pub(crate) fn open(disk: &Arc<Disk>, arena: &Arc<Arena>, size: u16) -> Result<Self> {
        Self::open_with(disk, std::slice::from_ref(arena), size)
    }

    /// Opens a channel as [`Lane::open`] does, for data in any of `arenas`.
    ///
    /// # Errors
    /// The errors of [`Lane::open`].
    pub(crate) fn open_with(disk: &Arc<Disk>, arenas: &[Arc<Arena>], size: u16) -> Result<Self> {
        let info = disk.device.info();
        let bounce_bytes = info.transfer_bytes_max.min(BOUNCE_BYTES_MAX);
        let bounce_bytes = (bounce_bytes as usize + 1).next_power_of_two() / 2;
        let bounces = Arena::new(bounce_bytes.max(512), BOUNCES, info.arena_options())
            .map_err(|cause| Error::os(cause, "allocating bounce buffers"))?;
        let channel = disk.device.open_channel(&ChannelOptions {
            depth: u32::from(size).min(info.depth_max),
            arenas: arenas.iter().chain([&bounces]).cloned().collect(),
            wake: None,
        })?;
        Ok(Self {
            disk: disk.clone(),
            channel,
            transfers: (0..size).map(|_| None).collect(),
            busy: 0,
            parked: VecDeque::new(),
            bounces,
            writes_zeroes: info.writes_zeroes,
            waiting: VecDeque::new(),
            completions: Vec::with_capacity(size.into()),
            checked: (0, 0),
            has_ended: false,
            counters: disk.attach(),
            has_completion_fd: false,
        })
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Counters that only this thread changes.
    #[inline]
    pub(crate) fn counters(&self) -> &LaneCounters {
        &self.counters
    }

    /// Counts a request that was taken from a ring.
    #[inline]
    pub(crate) fn count_taken(&self) {
        add(&self.counters.requests, 1);
    }

    /// Counts the requests whose data the channel has copied, and its system calls. Asking for them
    /// costs more than to count a request, so it waits for a turn in which nothing ends.
    #[cold]
    fn count_channel(&mut self) {
        self.has_ended = false;
        let statistics = self.channel.statistics();
        let now = (statistics.copied, statistics.system_calls);
        let before = std::mem::replace(&mut self.checked, now);
        add(&self.counters.bounced, now.0 - before.0);
        add(&self.counters.system_calls, now.1 - before.1);
    }

    /// Returns the number of transfers that have not ended.
    #[inline]
    pub(crate) fn busy(&self) -> u32 {
        self.busy
    }

    /// Returns the descriptor that polls readable when the channel may have completions; `None` if
    /// the channel must be polled.
    pub(crate) fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        let completion = self.channel.completion_fd()?;
        self.has_completion_fd = completion.is_some();
        Ok(completion)
    }

    /// Notes that nothing waits for the completion descriptor.
    pub(crate) fn be_unsignalled(&mut self) {
        self.has_completion_fd = false;
    }

    /// Whether a transfer is under way whose end no descriptor signals.
    pub(crate) fn is_unsignalled(&self) -> bool {
        self.busy > 0 && !self.has_completion_fd
    }

    /// Polls the channel if no transfer is under way: a completion descriptor may stay readable
    /// until a poll finds nothing.
    pub(crate) fn rest(&mut self) {
        if self.busy == 0 {
            self.channel.poll(&mut self.completions);
        }
    }

    /// Begins a job of a head that has none in this lane. `list` is the job's data.
    #[inline]
    pub(crate) fn begin(&mut self, head: u16, job: Job, list: Option<Buffer>) {
        let info = self.disk.device.info();
        let bounced = list.as_ref().is_some_and(|list| !takes_parts(info, list, job.len_bytes));
        if bounced {
            add(&self.counters.bounced, 1);
        }
        let bounced = bounced || job.op == Op::WriteZeroes && !self.writes_zeroes;
        let needs_flush = job.durable
            && info.volatile_write_cache
            && !bounced
            && matches!(job.op, Op::WriteZeroes | Op::Discard);
        self.transfers[usize::from(head)] =
            Some(Transfer { job, done_bytes: 0, bounced, needs_flush, list });
        self.busy += 1;
        self.go_on(head);
    }

    /// Submits the next part of a job: as much as the device takes at once, or as a bounce buffer
    /// holds.
    fn go_on(&mut self, head: u16) {
        let info = self.disk.device.info();
        let Some(transfer) = &mut self.transfers[usize::from(head)] else { return };
        let Job { mut op, durable, offset_bytes, .. } = transfer.job;
        let mut part = transfer.part(info.transfer_bytes_max);
        let (mut buffer, mut buffer_offset_bytes) = (None, 0);
        if transfer.bounced {
            let Some(mut block) = self.bounces.lease() else {
                self.waiting.push_back(head);
                return;
            };
            part = part.min(block.len() as u32);
            if op == Op::WriteZeroes {
                op = Op::Write;
                block.shared().zero(0, part as usize);
            } else if let (Op::Write, Some(list)) = (op, &mut transfer.list) {
                list.copy_out(transfer.done_bytes as usize, block.shared(), 0, part as usize);
            }
            buffer = Some(block);
        } else if matches!(op, Op::Read | Op::Write) {
            (buffer, buffer_offset_bytes) = (transfer.list.take(), transfer.done_bytes);
        }
        let request = Request {
            op,
            force_unit_access: durable && op == Op::Write && info.volatile_write_cache,
            atomic: false,
            offset_bytes: offset_bytes + u64::from(transfer.done_bytes),
            len_bytes: part,
            buffer_offset_bytes,
            buffer,
            tag: head.into(),
        };
        self.submit(request);
    }

    fn submit(&mut self, request: Request) {
        if !self.parked.is_empty() {
            self.parked.push_back(request);
        } else if let Err(request) = self.channel.submit(request) {
            self.parked.push_back(request);
        }
    }

    fn submit_parked(&mut self) {
        while let Some(request) = self.parked.pop_front() {
            if let Err(request) = self.channel.submit(request) {
                self.parked.push_front(request);
                return;
            }
        }
    }

    /// Submits parked requests, takes completions, and reports the jobs that have ended.
    #[inline]
    pub(crate) fn settle(&mut self, mut ended: impl FnMut(End)) {
        if self.busy == 0 {
            if self.has_ended {
                self.count_channel();
            }
            return;
        }
        self.submit_parked();
        self.channel.kick();
        let mut completions = std::mem::take(&mut self.completions);
        match self.channel.poll(&mut completions) {
            0 if self.has_ended => self.count_channel(),
            0 => {}
            _ => self.has_ended = true,
        }
        for completion in completions.drain(..) {
            if let Some(end) = self.end(completion) {
                ended(end);
            }
        }
        self.completions = completions;
    }

    /// Handles the completion of a request. Returns the end of its job if this was the last part.
    fn end(&mut self, completion: Completion) -> Option<End> {
        let Completion { tag, op, buffer, result } = completion;
        let head = tag as u16;
        let transfer = self.transfers.get_mut(usize::from(head))?.as_mut()?;
        let mut part = transfer.part(self.disk.device.info().transfer_bytes_max);
        let mut next = None;
        if transfer.bounced {
            if let Some(mut block) = buffer {
                part = part.min(block.len() as u32);
                if let (Op::Read, Ok(()), Some(list)) = (op, result, &mut transfer.list) {
                    list.copy_in(transfer.done_bytes as usize, block.shared(), 0, part as usize);
                }
            }
            next = self.waiting.pop_front();
        } else if buffer.is_some() {
            transfer.list = buffer;
        }
        // A layer below the device, such as a file system, may not support zeroing. Then nothing
        // was written.
        let is_refused = op == Op::WriteZeroes
            && result.is_err_and(|error| error.kind == ErrorKind::Unsupported);
        if is_refused {
            self.writes_zeroes = false;
            transfer.bounced = true;
            transfer.needs_flush = false;
        } else {
            transfer.done_bytes += part;
        }
        let is_over =
            !is_refused && (result.is_err() || transfer.done_bytes >= transfer.job.len_bytes);
        let must_flush = is_over && result.is_ok() && std::mem::take(&mut transfer.needs_flush);
        if let Some(next) = next {
            self.go_on(next);
        }
        if !is_over {
            self.go_on(head);
            return None;
        }
        if must_flush {
            self.submit(Request::flush(tag));
            return None;
        }
        let Transfer { job, list, .. } = self.transfers[usize::from(head)].take()?;
        self.busy -= 1;
        self.counters.end(job.op, job.len_bytes, result);
        Some(End { head, job, list, result })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.count_channel();
        self.disk.detach(&self.counters);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use qpair_block::{BlockDevice, ChannelStatistics, RamDevice, RamOptions, WaitOptions};

    use super::*;

    type Seen = Arc<Mutex<Vec<(Op, bool)>>>;

    /// A device with a volatile cache that notes each request: its operation, and whether it goes
    /// around the cache.
    #[derive(Debug)]
    struct Noting {
        info: DeviceInfo,
        inner: Arc<dyn BlockDevice>,
        seen: Seen,
    }

    impl BlockDevice for Noting {
        fn info(&self) -> &DeviceInfo {
            &self.info
        }

        fn size_bytes(&self) -> u64 {
            self.inner.size_bytes()
        }

        fn grow(&self, size_bytes: u64) -> Result<()> {
            self.inner.grow(size_bytes)
        }

        fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
            let inner = self.inner.open_channel(options)?;
            Ok(Box::new(NotingChannel { inner, seen: self.seen.clone() }))
        }
    }

    struct NotingChannel {
        inner: Box<dyn IoChannel>,
        seen: Seen,
    }

    impl IoChannel for NotingChannel {
        fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
            self.seen.lock().unwrap().push((request.op, request.force_unit_access));
            self.inner.submit(request)
        }

        fn kick(&mut self) {
            self.inner.kick();
        }

        fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
            self.inner.poll(completions)
        }

        fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
            self.inner.wait(completions, options)
        }

        fn in_flight(&self) -> u32 {
            self.inner.in_flight()
        }

        fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
            self.inner.completion_fd()
        }

        fn statistics(&self) -> ChannelStatistics {
            self.inner.statistics()
        }
    }

    /// Runs a job without data to its end on a device that writes zeroes by itself or does not, and
    /// returns the requests that the device has seen.
    fn requests_of(op: Op, durable: bool, writes_zeroes: bool) -> Vec<(Op, bool)> {
        let ram = RamDevice::new(RamOptions::default()).unwrap();
        let info = DeviceInfo { volatile_write_cache: true, writes_zeroes, ..ram.info().clone() };
        let seen = Seen::default();
        let device = Noting { info, inner: Arc::new(ram), seen: seen.clone() };
        let disk = Arc::new(Disk::new("d", Arc::new(device)));
        let arena = Arena::new(4096, 1, disk.device.info().arena_options()).unwrap();
        let mut lane = Lane::open(&disk, &arena, 4).unwrap();
        lane.begin(3, Job { op, durable, offset_bytes: 4096, len_bytes: 8192 }, None);
        let mut ended = Vec::new();
        while lane.busy() > 0 {
            lane.settle(|end| ended.push((end.head, end.job.op, end.result)));
        }
        assert_eq!(ended, [(3, op, Ok(()))]);
        seen.lock().unwrap().clone()
    }

    #[test]
    fn a_durable_change_that_no_write_makes_is_flushed_once() {
        for op in [Op::WriteZeroes, Op::Discard] {
            assert_eq!(requests_of(op, true, true), [(op, false), (Op::Flush, false)]);
            assert_eq!(requests_of(op, false, true), [(op, false)]);
        }
        // Zeroes by writes go around the cache, and need no flush.
        assert_eq!(requests_of(Op::WriteZeroes, true, false), [(Op::Write, true)]);
    }
}
