//! Compares random reads of a RAM device with the copies alone, which are the least that such a
//! device can cost: from a mapping of the same size on huge pages, into as many blocks. The two
//! take turns: `cargo run --release -p qpair-block --example ram_cost`.

#![allow(clippy::print_stdout, reason = "a report")]

use std::time::Instant;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, Error, IoChannel, Mapping, RamDevice,
    RamOptions, Request, Result,
};
use qpair_memory::SharedBytes;

const BYTES: usize = 4096;
const AREA_BYTES: usize = 512 << 20;
const READS: u32 = 100_000;
const ROUNDS: usize = 9;

/// Offsets of blocks in no order.
struct Offsets(u64);

impl Offsets {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (self.0 >> 33) as usize % (AREA_BYTES / BYTES) * BYTES
    }
}

fn copies_ns(source: SharedBytes<'_>, blocks: &mut [Buffer], offsets: &mut Offsets) -> f64 {
    let start = Instant::now();
    for number in 0..READS as usize {
        let at = number % blocks.len();
        SharedBytes::copy_between(source, offsets.next(), blocks[at].shared(), 0, BYTES);
    }
    start.elapsed().as_nanos() as f64 / f64::from(READS)
}

fn reads_ns(channel: &mut dyn IoChannel, blocks: &mut Vec<Buffer>, offsets: &mut Offsets) -> f64 {
    let depth = blocks.len();
    let mut completions = Vec::with_capacity(depth);
    let start = Instant::now();
    for _ in 0..READS as usize / depth {
        while let Some(buffer) = blocks.pop() {
            let request = Request::read(offsets.next() as u64, BYTES as u32, buffer, 0);
            // A refused request would show as a hang below.
            let _ = channel.submit(request);
        }
        channel.kick();
        while blocks.len() < depth {
            channel.poll(&mut completions);
            blocks.extend(completions.drain(..).filter_map(|completion| completion.buffer));
        }
    }
    start.elapsed().as_nanos() as f64 / f64::from(READS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<()> {
    let memory = |cause| Error::os(cause, "memory");
    let size_bytes = AREA_BYTES as u64;
    let device = RamDevice::new(RamOptions { size_bytes, ..RamOptions::default() })?;
    let area = Mapping::new_anonymous(AREA_BYTES).map_err(memory)?;
    let filler = vec![0x5A; BYTES];
    for at in (0..AREA_BYTES).step_by(BYTES) {
        area.bytes().copy_from(at, &filler);
    }
    for depth in [1, 4, 16, 32, 128] {
        let arena = Arena::new(BYTES, depth, ArenaOptions::ordinary_pages()).map_err(memory)?;
        let mut channel = device.open_channel(&ChannelOptions {
            depth,
            arenas: vec![arena.clone()],
            wake: None,
        })?;
        let mut blocks: Vec<Buffer> = (0..depth).filter_map(|_| arena.lease()).collect();
        if depth == 1 {
            let mut completions = Vec::new();
            for at in (0..AREA_BYTES).step_by(BYTES) {
                blocks[0].copy_from(0, &filler);
                let Some(buffer) = blocks.pop() else { break };
                let _ = channel.submit(Request::write(at as u64, BYTES as u32, buffer, 0));
                channel.poll(&mut completions);
                blocks.extend(completions.drain(..).filter_map(|completion| completion.buffer));
            }
        }
        let (mut floor, mut ram, mut share) = (Vec::new(), Vec::new(), Vec::new());
        let mut offsets = Offsets(1);
        for _ in 0..ROUNDS {
            let copies = copies_ns(area.bytes(), &mut blocks, &mut offsets);
            let reads = reads_ns(channel.as_mut(), &mut blocks, &mut offsets);
            floor.push(copies);
            ram.push(reads);
            share.push(copies / reads);
        }
        println!(
            "QD {depth:<3}  {:6.0} ns a read, the copy alone {:6.0} ns, {:3.0} % of it",
            median(ram),
            median(floor),
            100.0 * median(share)
        );
    }
    Ok(())
}
