//! A soft drive with its driver, and a model of the possible content of its blocks.
//!
//! Invariants of the model: a block that was written without error holds the written value. A block
//! whose write failed or was aborted holds that value, or one that it may have held before. Two
//! requests in flight never share a block that one of them writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, Completion, IoChannel, IoError, Op,
    Request, WaitOptions,
};
use qpair_nvme::{Controller, ControllerOptions, NvmeDevice, WaitMode};
use qpair_pci::InProcess;
use qpair_softdev::{NamespaceOptions, SoftNvme, SoftNvmeOptions};

pub(crate) const BUFFER_BYTES: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns options for a drive of `size_bytes` with one namespace.
pub(crate) fn options(size_bytes: u64, block: u32) -> SoftNvmeOptions {
    let namespace =
        NamespaceOptions { size_bytes, logical_block_bytes: block, ..NamespaceOptions::default() };
    SoftNvmeOptions { namespaces: vec![namespace], ..SoftNvmeOptions::default() }
}

pub(crate) struct Drive {
    pub(crate) soft: Arc<SoftNvme>,
    pub(crate) controller: Arc<Controller>,
    pub(crate) device: Arc<NvmeDevice>,
}

impl Drive {
    pub(crate) fn new(soft: SoftNvmeOptions, timeout_ms: u32, wait: WaitMode) -> Self {
        let soft = SoftNvme::new(soft).unwrap();
        let function = Arc::new(InProcess::new("soft", soft.clone()));
        let options = ControllerOptions { timeout_ms, wait, ..ControllerOptions::default() };
        let controller = Controller::open(function, options).unwrap();
        let device = Arc::new(controller.open_default_namespace(None).unwrap());
        Self { soft, controller, device }
    }
}

struct Sent {
    op: Op,
    first: usize,
    count: usize,
    stamp: u64,
}

/// One worker's part of a drive, with its own channel.
pub(crate) struct Worker {
    pub(crate) channel: Box<dyn IoChannel>,
    pub(crate) rng: fastrand::Rng,
    pub(crate) errors: Vec<(Op, IoError)>,
    pub(crate) completed: u64,
    arena: Arc<Arena>,
    /// An arena that is not open to the controller.
    foreign: Arc<Arena>,
    depth: u32,
    block: usize,
    start_bytes: u64,
    /// The values that each block may hold; the last one was written last.
    blocks: Vec<Vec<u64>>,
    /// The requests in flight for each block: a writer, or a number of readers.
    busy: Vec<i32>,
    sent: HashMap<u64, Sent>,
    next_tag: u64,
    completions: Vec<Completion>,
    has_verbs: bool,
}

fn arena(blocks: u32) -> Arc<Arena> {
    Arena::new(BUFFER_BYTES, blocks, ArenaOptions::ordinary_pages()).unwrap()
}

impl Worker {
    /// Makes a worker on `blocks` blocks from `start_bytes` on, which hold zeroes.
    pub(crate) fn new(
        drive: &Drive,
        depth: u32,
        start_bytes: u64,
        blocks: usize,
        seed: u64,
    ) -> Self {
        let arena = arena(depth);
        let options = ChannelOptions { depth, arenas: vec![arena.clone()], wake: None };
        let channel = drive.device.open_channel(&options).unwrap();
        Self {
            channel,
            rng: fastrand::Rng::with_seed(seed),
            errors: Vec::new(),
            completed: 0,
            arena,
            foreign: self::arena(depth),
            depth,
            block: drive.device.info().logical_block_bytes as usize,
            start_bytes,
            blocks: vec![vec![0]; blocks],
            busy: vec![0; blocks],
            sent: HashMap::new(),
            next_tag: seed << 32,
            completions: Vec::new(),
            has_verbs: true,
        }
    }

    fn stamped(&self, buffer: &mut Buffer, offset: usize, count: usize, stamp: u64) {
        for block in 0..count {
            let at = offset + block * self.block;
            let mut part = buffer.part_mut(at, self.block);
            part.copy_from(0, &stamp.to_le_bytes().repeat(self.block / 8));
        }
    }

    pub(crate) fn send(&mut self) {
        if self.channel.in_flight() >= self.depth {
            return;
        }
        let most = (BUFFER_BYTES / self.block).min(self.blocks.len());
        let count = match self.rng.u32(0..8) {
            0 => self.rng.usize(1..=most),
            _ => self.rng.usize(1..=most.min(16)),
        };
        let first = self.rng.usize(0..=self.blocks.len() - count);
        let op = match self.rng.u32(0..32) {
            0 => Op::Flush,
            1 if self.has_verbs => Op::WriteZeroes,
            2..=15 => Op::Write,
            _ => Op::Read,
        };
        let writes = matches!(op, Op::Write | Op::WriteZeroes);
        let range = first..first + count;
        let blocked = |busy: &i32| if writes { *busy != 0 } else { *busy < 0 };
        if op != Op::Flush && self.busy[range.clone()].iter().any(blocked) {
            return;
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let stamp = if op == Op::Write { tag + 1 } else { 0 };
        let foreign = self.rng.u32(0..16) == 0;
        let offset_bytes = self.start_bytes + (first * self.block) as u64;
        let len = (count * self.block) as u32;
        let mut request = match op {
            Op::Flush => Request::flush(tag),
            Op::WriteZeroes => Request::write_zeroes(offset_bytes, len, tag),
            _ => {
                let from = if foreign { &self.foreign } else { &self.arena };
                let mut buffer = from.lease().unwrap();
                // Any dword alignment that leaves room; copies of the model need eight bytes.
                let room = (BUFFER_BYTES - len as usize) / 8;
                let at = 8 * self.rng.usize(0..=room.min(600));
                match op {
                    Op::Write => self.stamped(&mut buffer, at, count, stamp),
                    _ => buffer.part_mut(at, len as usize).copy_from(0, &vec![0xA5; len as usize]),
                }
                let mut request = match op {
                    Op::Write => Request::write(offset_bytes, len, buffer, tag),
                    _ => Request::read(offset_bytes, len, buffer, tag),
                };
                request.buffer_offset_bytes = at as u32;
                request
            }
        };
        request.force_unit_access = op == Op::Write && self.rng.u32(0..8) == 0;
        let at = request.buffer_offset_bytes as u64;
        self.channel.submit(request).map_err(|_| "busy below its depth").unwrap();
        if op != Op::Flush {
            for busy in &mut self.busy[range] {
                *busy += if writes { -1 } else { 1 };
            }
        }
        // A read has no stamp, so its stamp field carries the position of the data.
        let stamp = if op == Op::Read { at } else { stamp };
        self.sent.insert(tag, Sent { op, first, count, stamp });
    }

    /// Takes completions, and compares their data with the model.
    pub(crate) fn take(&mut self, wait: bool) {
        let mut completions = std::mem::take(&mut self.completions);
        if wait {
            let options = WaitOptions {
                want: self.rng.u32(1..4),
                linger: Duration::from_micros(50),
                timeout: Some(Duration::from_millis(5)),
            };
            self.channel.wait(&mut completions, options);
        } else {
            self.channel.kick();
            self.channel.poll(&mut completions);
        }
        for completion in completions.drain(..) {
            self.check(completion);
        }
        self.completions = completions;
    }

    fn check(&mut self, completion: Completion) {
        let sent = self.sent.remove(&completion.tag).expect("completed once, as it was asked for");
        assert_eq!(sent.op, completion.op);
        self.completed += 1;
        let range = sent.first..sent.first + sent.count;
        if let Err(error) = completion.result {
            self.errors.push((sent.op, error));
        }
        match sent.op {
            Op::Flush => return assert!(completion.buffer.is_none()),
            Op::Write | Op::WriteZeroes => {
                for block in &mut self.blocks[range.clone()] {
                    if completion.result.is_ok() {
                        block.clear();
                    }
                    block.push(sent.stamp);
                }
            }
            Op::Read if completion.result.is_ok() => {
                let buffer = completion.buffer.as_ref().expect("a read has its buffer");
                for (number, place) in range.clone().enumerate() {
                    let at = sent.stamp as usize + number * self.block;
                    let bytes = &buffer.as_slice()[at..at + self.block];
                    let stamp = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    assert!(bytes.chunks_exact(8).all(|it| it == &bytes[..8]), "a torn block");
                    let may = &mut self.blocks[place];
                    assert!(may.contains(&stamp), "block {place} holds {stamp:#x}, not {may:x?}");
                    *may = vec![stamp];
                }
            }
            _ => {}
        }
        assert_eq!(completion.buffer.is_some(), matches!(sent.op, Op::Read | Op::Write));
        for busy in &mut self.busy[range] {
            *busy += if matches!(sent.op, Op::Read) { -1 } else { 1 };
        }
    }

    pub(crate) fn drain(&mut self) {
        let start = Instant::now();
        while self.channel.in_flight() > 0 {
            self.take(true);
            assert!(start.elapsed() < TIMEOUT, "{} requests hang", self.channel.in_flight());
        }
        assert!(self.sent.is_empty());
    }

    pub(crate) fn run(&mut self, count: u32) {
        for _ in 0..count {
            self.send();
            match self.rng.u32(0..8) {
                0 => self.take(true),
                1..=3 => self.take(false),
                _ => {}
            }
        }
    }

    /// Ends the worker, and checks that all memory was returned.
    pub(crate) fn finish(self) -> Vec<(Op, IoError)> {
        let Self { channel, arena, foreign, depth, errors, .. } = self;
        drop(channel);
        for arena in [arena, foreign] {
            let free = std::iter::from_fn(|| arena.lease()).collect::<Vec<_>>().len();
            assert_eq!(free, depth as usize, "buffers are missing");
        }
        errors
    }
}
