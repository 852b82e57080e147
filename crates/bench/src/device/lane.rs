//! A device whose clients have a thread and a channel each.

use std::future::Future;
use std::sync::Arc;

use qpair::{Error, ErrorKind, Result};
use qpair_block::{
    Arena, BlockDevice, Buffer, ChannelOptions, Completion, IoChannel, Request, WaitOptions,
};

use crate::kv::{Clients, KvStatistics, System, start_threads};

/// The context of errors.
pub(super) const DOING: &str = "measuring the device";

/// An open device.
#[derive(Clone)]
pub(super) struct Lanes {
    device: Arc<dyn BlockDevice>,
    block_bytes: u32,
    depth: u32,
}

/// A channel with buffers of its own.
pub(super) struct Lane {
    channel: Box<dyn IoChannel>,
    completions: Vec<Completion>,
    free: Vec<Buffer>,
    random: fastrand::Rng,
    blocks: u64,
    block_bytes: u32,
}

impl Lanes {
    /// Creates lanes. `depth`: the number of requests that a lane can have in flight.
    pub(super) fn new(device: Arc<dyn BlockDevice>, block_bytes: u32, depth: u32) -> Result<Self> {
        if device.size_bytes() < block_bytes.into() {
            return Err(Error::new(ErrorKind::Invalid, format!("{DOING}: it is empty")));
        }
        Ok(Self { device, block_bytes, depth })
    }

    fn open(&self) -> Result<Lane> {
        let Self { device, block_bytes, depth } = self;
        let arena = Arena::new(*block_bytes as usize, *depth, device.info().arena_options());
        let context = |error| format!("mapping memory to read into: {error}");
        let arena = arena.map_err(|error| Error::new(ErrorKind::NoMemory, context(error)))?;
        let options = ChannelOptions { depth: *depth, arenas: vec![arena.clone()], wake: None };
        let channel = device.open_channel(&options).map_err(|error| Error::block(error, DOING))?;
        Ok(Lane {
            channel,
            completions: Vec::with_capacity(*depth as usize),
            free: std::iter::from_fn(|| arena.lease()).collect(),
            random: fastrand::Rng::new(),
            blocks: device.size_bytes() / u64::from(*block_bytes),
            block_bytes: *block_bytes,
        })
    }
}

impl System for Lanes {
    type Session = Lane;

    fn start<F, Fut, T>(&self, clients: usize, client: F) -> Result<Clients<T>>
    where
        F: Fn(usize, Lane) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T>> + 'static,
        T: Send + 'static,
    {
        let lanes = self.clone();
        start_threads(clients, move || lanes.open(), client)
    }

    fn statistics(&self) -> Result<KvStatistics> {
        Ok(KvStatistics::default())
    }
}

impl Lane {
    /// Returns the offset of a random block.
    #[inline]
    pub(super) fn offset(&mut self) -> u64 {
        self.random.u64(0..self.blocks) * u64::from(self.block_bytes)
    }

    /// Reads a random block into each free buffer, as far as the channel takes requests.
    #[inline]
    pub(super) fn read_all(&mut self) {
        while let Some(buffer) = self.free.pop() {
            let request = Request::read(self.offset(), self.block_bytes, buffer, 0);
            if let Err(request) = self.channel.submit(request) {
                self.free.extend(request.buffer);
                break;
            }
        }
    }

    /// Waits for completions, and returns their number.
    #[inline]
    pub(super) fn wait(&mut self, wait: WaitOptions) -> Result<u32> {
        self.channel.wait(&mut self.completions, wait);
        let count = self.completions.len() as u32;
        for completion in self.completions.drain(..) {
            completion.result.map_err(|error| Error::io(error, DOING))?;
            self.free.extend(completion.buffer);
        }
        Ok(count)
    }

    /// Takes a free buffer.
    pub(super) fn buffer(&mut self) -> Result<Buffer> {
        let lost = || Error::new(ErrorKind::NoMemory, format!("{DOING}: a buffer is missing"));
        self.free.pop().ok_or_else(lost)
    }

    /// Runs one request, with no other in flight.
    pub(super) fn run(&mut self, request: Request) -> Result<()> {
        let refused = |_| Error::new(ErrorKind::Io, "the channel refused a single request");
        self.channel.submit(request).map_err(refused)?;
        let wait = WaitOptions { want: 1, linger: std::time::Duration::ZERO, timeout: None };
        while self.wait(wait)? == 0 {}
        Ok(())
    }
}
