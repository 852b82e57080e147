//! Measures the cost of a slice and of a limit on a device that does nothing, in pairs that take
//! turns: `cargo run --release -p qpair-block --example layer_cost`.

#![allow(clippy::print_stdout, reason = "a report")]

use std::sync::Arc;
use std::time::Instant;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, IoChannel, LimitDevice, Limits,
    NullDevice, NullOptions, Request, Result, SliceDevice,
};

const DEPTH: u32 = 32;
const READS: u32 = 200_000;
const ROUNDS: usize = 60;

/// Returns the nanoseconds of a read, with `DEPTH` in flight.
fn time(channel: &mut dyn IoChannel, buffers: &mut Vec<Buffer>) -> f64 {
    let mut completions = Vec::with_capacity(DEPTH as usize);
    let start = Instant::now();
    for read in 0..READS / DEPTH {
        for _ in 0..DEPTH {
            let Some(buffer) = buffers.pop() else { break };
            // A refused request would show as a hang below.
            let _ = channel.submit(Request::read(u64::from(read) << 12, 4096, buffer, 0));
        }
        channel.kick();
        while buffers.len() < DEPTH as usize {
            channel.poll(&mut completions);
            buffers.extend(completions.drain(..).filter_map(|completion| completion.buffer));
        }
    }
    start.elapsed().as_nanos() as f64 / f64::from(READS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<()> {
    let null: Arc<dyn BlockDevice> = Arc::new(NullDevice::new(NullOptions::default())?);
    let slice = Arc::new(SliceDevice::new(null.clone(), 1 << 30, 1 << 38)?);
    let (free, limited) = (LimitDevice::new(null.clone()), LimitDevice::new(null.clone()));
    let all = 1 << 40;
    limited.set(Limits {
        ios_per_s: all,
        bytes_per_s: all,
        read_bytes_per_s: all,
        written_bytes_per_s: 0,
    });
    let both = LimitDevice::new(slice.clone());
    both.set(Limits { ios_per_s: all, ..Limits::default() });
    let layers: [(&str, &dyn BlockDevice); 5] = [
        ("null again", null.as_ref()),
        ("a slice", slice.as_ref()),
        ("no limit set", &free),
        ("three limits set, none reached", &limited),
        ("a limit over a slice", &both),
    ];
    let arena = Arena::new(4096, DEPTH, ArenaOptions::ordinary_pages())
        .map_err(|cause| qpair_block::Error::os(cause, "memory"))?;
    let mut buffers: Vec<Buffer> = (0..DEPTH).filter_map(|_| arena.lease()).collect();
    let options = ChannelOptions { depth: DEPTH, arenas: vec![arena], wake: None };
    let mut below = null.open_channel(&options)?;
    for (name, device) in layers {
        let mut channel = device.open_channel(&options)?;
        let (mut ours, mut more) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            // The two also take turns at going first.
            let first = (round % 2 == 0).then(|| time(below.as_mut(), &mut buffers));
            let one = time(channel.as_mut(), &mut buffers);
            let base = first.unwrap_or_else(|| time(below.as_mut(), &mut buffers));
            ours.push(one);
            more.push(one - base);
        }
        println!("{name:<32} {:6.1} ns a read, {:+6.1} more than null", median(ours), median(more));
    }
    Ok(())
}
