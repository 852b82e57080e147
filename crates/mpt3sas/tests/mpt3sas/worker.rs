//! A channel with memory, and requests that are waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, Completion, IoChannel, IoError, Op, Request,
    WaitOptions,
};
use qpair_scsi::ScsiDisk;

pub(crate) const BLOCK: u32 = 4096;
/// A time much longer than any ladder takes here: a request that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Worker {
    pub(crate) channel: Box<dyn IoChannel>,
    pub(crate) arena: Arc<Arena>,
    pub(crate) completions: Vec<Completion>,
}

impl Worker {
    pub(crate) fn new(disk: &ScsiDisk, depth: u32) -> Self {
        let arena = Arena::new(BLOCK as usize, depth, ArenaOptions::ordinary_pages()).unwrap();
        let options = ChannelOptions { depth, arenas: vec![arena.clone()], wake: None };
        let channel = disk.open_channel(&options).unwrap();
        Self { channel, arena, completions: Vec::new() }
    }

    /// Makes a request for block `number`; a write fills it with `fill`.
    pub(crate) fn request(&self, op: Op, number: u64, fill: u8) -> Request {
        let at = number * u64::from(BLOCK);
        let buffer = || {
            let mut buffer = self.arena.lease().unwrap();
            buffer.copy_from(0, &[fill; BLOCK as usize]);
            buffer
        };
        match op {
            Op::Read => Request::read(at, BLOCK, buffer(), number),
            Op::Write => Request::write(at, BLOCK, buffer(), number),
            Op::Flush => Request::flush(number),
            Op::Discard => Request::discard(at, BLOCK, number),
            Op::WriteZeroes => Request::write_zeroes(at, BLOCK, number),
        }
    }

    pub(crate) fn submit(&mut self, request: Request) {
        self.channel.submit(request).map_err(|_| "busy").unwrap();
    }

    /// Waits for all requests in flight. Returns tags and results, in the order of tags.
    pub(crate) fn drain(&mut self) -> Vec<(u64, Result<(), IoError>)> {
        let start = Instant::now();
        while self.channel.in_flight() > 0 {
            let options = WaitOptions {
                want: u32::MAX,
                linger: Duration::MAX,
                timeout: Some(Duration::from_millis(100)),
            };
            self.channel.wait(&mut self.completions, options);
            assert!(start.elapsed() < TIMEOUT, "{} requests hang", self.channel.in_flight());
        }
        let mut all: Vec<_> =
            self.completions.drain(..).map(|done| (done.tag, done.result)).collect();
        all.sort_by_key(|(tag, _)| *tag);
        all
    }

    pub(crate) fn run(&mut self, op: Op, number: u64, fill: u8) -> Result<(), IoError> {
        let request = self.request(op, number, fill);
        self.submit(request);
        let all = self.drain();
        assert_eq!(all.len(), 1);
        all[0].1
    }

    /// Returns the byte that a block is filled with, if it is the same everywhere.
    pub(crate) fn fill_of(&mut self, number: u64) -> Option<u8> {
        let request = self.request(Op::Read, number, 0xEE);
        self.submit(request);
        while self.channel.in_flight() > 0 {
            let options = WaitOptions { want: 1, linger: Duration::ZERO, timeout: Some(TIMEOUT) };
            self.channel.wait(&mut self.completions, options);
        }
        let done = self.completions.pop().unwrap();
        done.result.unwrap();
        let buffer = done.buffer.unwrap();
        let bytes = buffer.as_slice();
        bytes.iter().all(|byte| *byte == bytes[0]).then_some(bytes[0])
    }
}
