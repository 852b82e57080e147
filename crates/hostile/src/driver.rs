//! A well-behaved driver, which writes blocks and reads them again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    Arena, BlockDevice, Buffer, ChannelOptions, Completion, ErrorKind, IoChannel, IoError, Request,
    WaitOptions,
};
use qpair_nvme::{Controller, ControllerOptions, NvmeDevice, WaitMode};
use qpair_vfio_user::{Client, ClientOptions};

use crate::served::said;

const BLOCK: u32 = 512;

/// A queue of a device.
pub(super) struct Driver {
    channel: Box<dyn IoChannel>,
    buffer: Option<Buffer>,
    pub(super) blocks: u64,
    /// Whether a buffer was left to a controller that could not be stopped.
    pub(super) is_buffer_lost: bool,
    // Must be dropped after the channel.
    device: Box<dyn BlockDevice>,
}

impl Driver {
    pub(super) fn open(client: Client, options: ControllerOptions) -> qpair_block::Result<Self> {
        let controller = Controller::open(Arc::new(client), options)?;
        let nsid = controller.namespaces().first().map(|namespace| namespace.nsid);
        let device: NvmeDevice = controller.open_default_namespace(nsid)?;
        Self::over(Box::new(device))
    }

    pub(super) fn over(device: Box<dyn BlockDevice>) -> qpair_block::Result<Self> {
        let arena = Arena::new(4096, 2, device.info().arena_options())
            .map_err(|cause| qpair_block::Error::os(cause, "an arena"))?;
        let buffer = arena.lease();
        let channel = ChannelOptions { depth: 2, arenas: vec![arena], wake: None };
        let channel = device.open_channel(&channel)?;
        let blocks = device.size_bytes() / u64::from(BLOCK);
        Ok(Self { channel, buffer, blocks, is_buffer_lost: false, device })
    }

    /// Returns how often the device had to connect again.
    pub(super) fn resets(&self) -> u64 {
        self.device.resets()
    }

    fn run(&mut self, request: Request) -> Result<(), IoError> {
        if let Err(request) = self.channel.submit(request) {
            self.buffer = request.buffer;
            return Err(IoError::GONE);
        }
        self.channel.kick();
        let mut done: Vec<Completion> = Vec::new();
        let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
        while done.is_empty() {
            self.channel.wait(&mut done, one);
        }
        let done = done.remove(0);
        self.buffer = done.buffer;
        self.is_buffer_lost |= self.buffer.is_none();
        done.result.map(|_| ())
    }

    pub(super) fn write(&mut self, block: u64, timestamp: u64) -> Result<(), IoError> {
        let Some(mut buffer) = self.buffer.take() else { return Err(IoError::GONE) };
        let bytes = timestamp.to_le_bytes().repeat(BLOCK as usize / 8);
        buffer.part_mut(0, BLOCK as usize).copy_from(0, &bytes);
        self.run(Request::write(block * u64::from(BLOCK), BLOCK, buffer, 0))
    }

    /// Returns the timestamp in a block; `None` if the block is not filled with one timestamp.
    pub(super) fn read(&mut self, block: u64) -> Result<Option<u64>, IoError> {
        let Some(buffer) = self.buffer.take() else { return Err(IoError::GONE) };
        self.run(Request::read(block * u64::from(BLOCK), BLOCK, buffer, 0))?;
        let Some(buffer) = &self.buffer else { return Err(IoError::GONE) };
        let words = buffer.as_slice()[..BLOCK as usize].chunks_exact(8);
        let mut words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let first = words.next();
        Ok(first.filter(|first| words.all(|word| word == *first)))
    }
}

/// The known contents of a drive's blocks.
pub(super) struct Blocks {
    random: fastrand::Rng,
    known: std::collections::HashMap<u64, u64>,
}

impl Blocks {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), known: Default::default() }
    }

    /// Connects to a drive, verifies the known blocks, writes `count` blocks and verifies them.
    /// Returns the number of verified blocks.
    pub(super) fn visit(&mut self, path: &Path, count: u64) -> Result<u64, String> {
        let client = connect(path)?;
        let mut driver = Driver::open(client, options()).map_err(said)?;
        self.visit_with(&mut driver, &path.display().to_string(), count)
    }

    /// Does what [`Blocks::visit`] does, with a driver that is connected.
    pub(super) fn visit_with(
        &mut self,
        driver: &mut Driver,
        name: &str,
        count: u64,
    ) -> Result<u64, String> {
        let mut verified = 0;
        for turn in 0..2 {
            for _ in 0..count {
                let known: Vec<u64> = self.known.keys().copied().collect();
                let Some(&block) = known.get(self.random.usize(0..known.len().max(1))) else {
                    break;
                };
                match driver.read(block) {
                    Ok(timestamp) if timestamp == self.known.get(&block).copied() => verified += 1,
                    other => {
                        let wanted = self.known.get(&block);
                        return Err(format!(
                            "block {block} of {name} reads as {other:?}, and {wanted:?} was written"
                        ));
                    }
                }
            }
            for _ in 0..if turn == 0 { count } else { 0 } {
                let block = self.random.u64(0..driver.blocks);
                let timestamp = self.random.u64(..);
                driver
                    .write(block, timestamp)
                    .map_err(|error| format!("writing block {block} of {name}: {error}"))?;
                self.known.insert(block, timestamp);
            }
        }
        Ok(verified)
    }
}

/// Returns options of a driver that yields the processor to the server.
pub(super) fn options() -> ControllerOptions {
    ControllerOptions { wait: WaitMode::Sleep, ..ControllerOptions::default() }
}

/// Connects as a client, and waits for the previous client to disconnect.
pub(super) fn connect(path: &Path) -> Result<Client, String> {
    let mut last = String::new();
    for _ in 0..5000 {
        match Client::connect(path, &ClientOptions::default()) {
            Ok(client) => return Ok(client),
            Err(error) if error.kind() == ErrorKind::Busy => last = error.to_string(),
            Err(error) => return Err(format!("a well-behaved driver: {error}")),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("a well-behaved driver is kept out: {last}"))
}
