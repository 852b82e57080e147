//! The setup of every check: a device, memory, a channel, and waits with a timeout.

use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, Completion, IoChannel, Request,
    WaitOptions, WakeEvent,
};

use crate::{Options, Pass};

/// The size of a block of the rig's arenas in bytes; the longest ordinary request of the suite.
pub(crate) const BUFFER_BYTES: u32 = 64 << 10;

/// The time after which a device counts as hung.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Rig {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) options: Options,
    pub(crate) rng: fastrand::Rng,
}

pub(crate) struct Line {
    pub(crate) channel: Box<dyn IoChannel>,
    pub(crate) arena: Arc<Arena>,
    pub(crate) completions: Vec<Completion>,
}

impl Rig {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, options: Options, rng: fastrand::Rng) -> Self {
        Self { device, options, rng }
    }

    pub(crate) fn block(&self) -> u32 {
        self.device.info().logical_block_bytes
    }

    /// Returns the longest ordinary request: a multiple of the logical block that fits a buffer.
    pub(crate) fn len_max(&self) -> u32 {
        let limit = self.device.info().transfer_bytes_max.min(BUFFER_BYTES);
        (limit / self.block() * self.block()).min(self.region() as u32)
    }

    /// Returns the number of bytes at the device's start that checks may use.
    pub(crate) fn region(&self) -> u64 {
        let region = self.options.region_bytes.min(self.device.size_bytes()).min(1 << 30);
        region / u64::from(self.block()) * u64::from(self.block())
    }

    pub(crate) fn depth(&self) -> u32 {
        self.options.depth.min(self.device.info().depth_max).max(1)
    }

    /// Returns a random range of the region, aligned to logical blocks.
    pub(crate) fn range(&mut self) -> (u64, u32) {
        let block = self.block();
        let len = self.rng.u32(1..=self.len_max() / block) * block;
        let places = (self.region() - u64::from(len)) / u64::from(block);
        (self.rng.u64(0..=places) * u64::from(block), len)
    }

    pub(crate) fn bytes(&mut self, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.rng.fill(&mut bytes);
        bytes
    }

    /// Returns why checks that write must be skipped, if they must.
    pub(crate) fn unwritable(&self) -> Option<Pass> {
        let read_only = self.device.info().read_only;
        read_only.then(|| Pass::Skipped("the device is read-only".into()))
    }

    /// Returns why checks that read data back must be skipped, if they must.
    pub(crate) fn forgetful(&self) -> Option<Pass> {
        let forgetful = !self.options.keeps_content;
        let skip = forgetful.then(|| Pass::Skipped("the device keeps no content".into()));
        self.unwritable().or(skip)
    }

    /// Opens a channel with `blocks` registered blocks of memory.
    pub(crate) fn open(&self, blocks: u32, wake: Option<Arc<WakeEvent>>) -> Result<Line, String> {
        open(&self.device, self.depth(), blocks, wake)
    }
}

pub(crate) fn open(
    device: &Arc<dyn BlockDevice>,
    depth: u32,
    blocks: u32,
    wake: Option<Arc<WakeEvent>>,
) -> Result<Line, String> {
    let arena = arena(BUFFER_BYTES as usize, blocks)?;
    let options = ChannelOptions { depth, arenas: vec![arena.clone()], wake };
    let channel = device.open_channel(&options).map_err(|e| format!("open_channel: {e}"))?;
    Ok(Line { channel, arena, completions: Vec::new() })
}

pub(crate) fn arena(block_bytes: usize, blocks: u32) -> Result<Arc<Arena>, String> {
    Arena::new(block_bytes, blocks, ArenaOptions::ordinary_pages())
        .map_err(|e| format!("arena: {e}"))
}

/// Returns the number of free blocks.
pub(crate) fn free_blocks(arena: &Arc<Arena>) -> u32 {
    std::iter::from_fn(|| arena.lease()).collect::<Vec<_>>().len() as u32
}

impl Line {
    pub(crate) fn lease(&self) -> Result<Buffer, String> {
        self.arena.lease().ok_or_else(|| "a buffer did not come back: the arena is empty".into())
    }

    /// Submits a request for which there must be room.
    pub(crate) fn submit(&mut self, request: Request) -> Result<(), String> {
        let in_flight = self.channel.in_flight();
        self.channel
            .submit(request)
            .map_err(|r| format!("busy with {in_flight} in flight: {:?}", r.op))
    }

    /// Waits for all requests in flight. Completions are appended to `self.completions`.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while self.channel.in_flight() > 0 {
            let options = WaitOptions {
                want: self.channel.in_flight(),
                linger: Duration::from_millis(1),
                timeout: Some(Duration::from_secs(1)),
            };
            let before = self.completions.len();
            let count = self.channel.wait(&mut self.completions, options);
            ensure(self.completions.len() - before == count, || {
                format!("wait said {count} and appended {}", self.completions.len() - before)
            })?;
            check_timeout(start, "a completion")?;
        }
        Ok(())
    }

    pub(crate) fn run(&mut self, request: Request) -> Result<Completion, String> {
        let (op, tag, has_buffer) = (request.op, request.tag, request.buffer.is_some());
        self.submit(request)?;
        self.drain()?;
        let count = self.completions.len();
        let completion = self.completions.pop().ok_or("no completion")?;
        ensure(count == 1, || format!("{count} completions of one request"))?;
        ensure(completion.tag == tag && completion.op == op, || {
            format!("{op:?} {tag} came back as {:?} {}", completion.op, completion.tag)
        })?;
        ensure(completion.buffer.is_some() == has_buffer, || format!("{op:?} lost its buffer"))?;
        Ok(completion)
    }

    /// Runs a request that must succeed.
    pub(crate) fn succeed(&mut self, request: Request) -> Result<Completion, String> {
        let what = describe(&request);
        let completion = self.run(request)?;
        completion.result.map_err(|e| format!("{what}: {e}"))?;
        Ok(completion)
    }

    pub(crate) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), String> {
        let mut buffer = self.lease()?;
        buffer.copy_from(0, bytes);
        let request = Request::write(offset_bytes, bytes.len() as u32, buffer, 7);
        let completion = self.succeed(request)?;
        let unchanged = completion.buffer.is_some_and(|b| b.as_slice().starts_with(bytes));
        ensure(unchanged, || "a write changed its buffer".into())
    }

    pub(crate) fn read(&mut self, offset_bytes: u64, len_bytes: u32) -> Result<Vec<u8>, String> {
        let mut buffer = self.lease()?;
        // Old bytes must not be taken for bytes that were read.
        buffer.bytes_mut().copy_from(0, &vec![0xA5; len_bytes as usize]);
        let completion = self.succeed(Request::read(offset_bytes, len_bytes, buffer, 8))?;
        let buffer = completion.buffer.ok_or("a read without its buffer")?;
        Ok(buffer.as_slice()[..len_bytes as usize].to_vec())
    }

    pub(crate) fn expect(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), String> {
        let found = self.read(offset_bytes, bytes.len() as u32)?;
        same(offset_bytes, &found, bytes)
    }
}

fn describe(request: &Request) -> String {
    format!("{:?} of {} bytes at {}", request.op, request.len_bytes, request.offset_bytes)
}

pub(crate) fn same(offset_bytes: u64, found: &[u8], wanted: &[u8]) -> Result<(), String> {
    match found.iter().zip(wanted).position(|(a, b)| a != b) {
        None if found.len() == wanted.len() => Ok(()),
        None => Err(format!("{} bytes instead of {}", found.len(), wanted.len())),
        Some(at) => Err(format!(
            "byte {} (of {} from {offset_bytes}) is {:#04x}, not {:#04x}",
            offset_bytes + at as u64,
            wanted.len(),
            found[at],
            wanted[at]
        )),
    }
}

pub(crate) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

pub(crate) fn check_timeout(start: Instant, what: &str) -> Result<(), String> {
    ensure(start.elapsed() < TIMEOUT, || format!("waited {TIMEOUT:?} for {what}"))
}
