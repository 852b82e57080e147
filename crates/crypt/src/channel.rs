//! A device whose content is encrypted: the data plane.
//!
//! Invariants:
//! - Nothing behind the superblocks goes down in clear: a write is encrypted into memory of the
//!   channel, since others may read its own buffer meanwhile. A write that finds none is held until
//!   an earlier one ends.
//! - Nothing comes up that was not decrypted for its place.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use qpair_block::{
    Arena, Arrival, Buffer, ChannelStatistics, Completion, IoChannel, Op, Request, Slots,
    WaitClock, WaitOptions,
};
use qpair_format::page::NOT_AUTHENTIC;
use qpair_format::superblock::SUPERBLOCK_BYTES;

use crate::cipher::{Cipher, Place};

/// An offset past the end of every device: the device below rejects it.
const NOWHERE: u64 = 1 << 63;

/// A request that is at the device below.
struct Passed {
    tag: u64,
    offset_bytes: u64,
    len_bytes: u32,
    buffer_offset_bytes: u32,
    /// Whether it is to be decrypted.
    encrypted: bool,
    /// The buffer of a write, which is not below.
    written: Option<Buffer>,
}

pub(crate) struct EncryptedChannel {
    inner: Box<dyn IoChannel>,
    cipher: Arc<Cipher>,
    index: u32,
    unit_bytes: u32,
    small: Arc<Arena>,
    large: Arc<Arena>,
    depth: u32,
    passed: Slots<Passed>,
    held: VecDeque<Request>,
    unit: Vec<u8>,
    /// Completions of the device below; kept so that polling does not allocate.
    results: Vec<Completion>,
}

impl EncryptedChannel {
    pub(crate) fn new(
        inner: Box<dyn IoChannel>,
        (cipher, index, unit_bytes): (Arc<Cipher>, u32, u32),
        (small, large): (Arc<Arena>, Arc<Arena>),
        depth: u32,
    ) -> Self {
        Self {
            inner,
            cipher,
            index,
            unit_bytes,
            small,
            large,
            depth,
            passed: Slots::new(depth),
            held: VecDeque::with_capacity(depth as usize),
            unit: vec![0; unit_bytes as usize],
            results: Vec::with_capacity(depth as usize),
        }
    }

    /// Whether a read or write is of whole units behind the superblocks, with a buffer for them.
    fn is_of_units(&self, request: &Request) -> bool {
        let len = u64::from(request.len_bytes);
        let buffer_bytes = request.buffer.as_ref().map_or(0, Buffer::len) as u64;
        (request.offset_bytes | len) & u64::from(self.unit_bytes - 1) == 0
            && request.offset_bytes >= SUPERBLOCK_BYTES
            && u64::from(request.buffer_offset_bytes) + len <= buffer_bytes
            && request.len_bytes as usize <= self.large.block_size()
    }

    /// Encrypts the bytes of a write into memory of the channel, if some is free.
    fn encrypted(&mut self, request: &Request) -> Option<Buffer> {
        let source = request.buffer.as_ref()?;
        let mut target = match request.len_bytes == self.unit_bytes {
            true => self.small.lease().or_else(|| self.large.lease())?,
            false => self.large.lease()?,
        };
        for at in (0..request.len_bytes).step_by(self.unit_bytes as usize) {
            source.copy_to((request.buffer_offset_bytes + at) as usize, &mut self.unit);
            let offset_bytes = request.offset_bytes + u64::from(at);
            self.cipher.encrypt(Place { device: self.index, offset_bytes }, &mut self.unit);
            target.copy_from(at as usize, &self.unit);
        }
        Some(target)
    }

    fn decrypt(&mut self, buffer: &mut Buffer, passed: &Passed) {
        for at in (0..passed.len_bytes).step_by(self.unit_bytes as usize) {
            let from = (passed.buffer_offset_bytes + at) as usize;
            buffer.copy_to(from, &mut self.unit);
            if self.unit.iter().all(|byte| *byte == 0) {
                continue;
            }
            let place =
                Place { device: self.index, offset_bytes: passed.offset_bytes + u64::from(at) };
            if !self.cipher.decrypt(place, &mut self.unit) {
                self.unit.fill(0);
                self.unit[..NOT_AUTHENTIC.len()].copy_from_slice(&NOT_AUTHENTIC);
            }
            buffer.copy_from(from, &self.unit);
        }
    }

    /// Sends a request down. Returns it if there is no room for it yet.
    fn pass(&mut self, mut request: Request) -> Result<(), Request> {
        let is_data = matches!(request.op, Op::Read | Op::Write);
        let end_bytes = request.offset_bytes.saturating_add(request.len_bytes.into());
        let mut passed = Passed {
            tag: request.tag,
            offset_bytes: request.offset_bytes,
            len_bytes: request.len_bytes,
            buffer_offset_bytes: request.buffer_offset_bytes,
            encrypted: is_data && end_bytes > SUPERBLOCK_BYTES,
            written: None,
        };
        if passed.encrypted {
            if !self.is_of_units(&request) {
                passed.encrypted = false;
                request.offset_bytes = NOWHERE;
            } else if request.op == Op::Write {
                let Some(target) = self.encrypted(&request) else { return Err(request) };
                passed.written = request.buffer.replace(target);
                request.buffer_offset_bytes = 0;
            }
        }
        let Some(slot) = self.passed.insert(passed) else {
            // The caller counted the slots.
            return Err(request);
        };
        request.tag = slot;
        self.inner.submit(request).map_err(|mut request| {
            if let Some(passed) = self.passed.take(slot) {
                request.tag = passed.tag;
                request.offset_bytes = passed.offset_bytes;
                request.buffer_offset_bytes = passed.buffer_offset_bytes;
                request.buffer = passed.written.or(request.buffer.take());
            }
            request
        })
    }

    /// Sends down the requests that were held, as far as there is room.
    fn pass_held(&mut self) {
        let mut any = false;
        while let Some(request) = self.held.pop_front() {
            if let Err(request) = self.pass(request) {
                self.held.push_front(request);
                break;
            }
            any = true;
        }
        if any {
            self.inner.kick();
        }
    }

    fn finish(&mut self, mut completion: Completion) -> Option<Completion> {
        let mut passed = self.passed.take(completion.tag)?;
        completion.tag = passed.tag;
        if let Some(written) = passed.written.take() {
            completion.buffer = Some(written);
        } else if passed.encrypted
            && completion.result.is_ok()
            && let Some(buffer) = &mut completion.buffer
        {
            self.decrypt(buffer, &passed);
        }
        Some(completion)
    }

    fn finish_all(&mut self, completions: &mut Vec<Completion>) {
        let mut results = std::mem::take(&mut self.results);
        for result in results.drain(..) {
            completions.extend(self.finish(result));
        }
        self.results = results;
        self.pass_held();
    }
}

impl IoChannel for EncryptedChannel {
    fn submit(&mut self, request: Request) -> Result<(), Request> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        match self.pass(request) {
            // Writes under way will return their memory.
            Err(request) if request.op == Op::Write && self.passed.used() > 0 => {
                self.held.push_back(request);
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.inner.poll(&mut self.results);
        self.finish_all(completions);
        completions.len() - before
    }

    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.inner.look(&mut self.results);
        self.finish_all(completions);
        completions.len() - before
    }

    fn arrival(&self) -> Arrival {
        self.inner.arrival()
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let clock = WaitClock::start(options, self.in_flight());
        self.kick();
        let mut taken = self.poll(completions);
        let now = std::time::Instant::now();
        if !clock.is_over(taken, now) {
            let before = completions.len();
            self.inner.wait(&mut self.results, clock.rest(taken, clock.end(taken), now));
            self.finish_all(completions);
            taken += completions.len() - before;
        }
        taken
    }

    fn in_flight(&self) -> u32 {
        self.passed.used() + self.held.len() as u32
    }

    fn statistics(&self) -> ChannelStatistics {
        self.inner.statistics()
    }

    fn completion_fd(&mut self) -> qpair_block::Result<Option<BorrowedFd<'_>>> {
        self.inner.completion_fd()
    }
}
