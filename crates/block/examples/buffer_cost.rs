//! Compares the cost of requests that name their memory by one buffer with that of requests with a
//! list of one segment. The two take turns: `cargo run --release -p qpair-block --example
//! buffer_cost`. To see what a change costs the single buffer, compare the first column of two
//! builds.

#![allow(clippy::print_stdout, reason = "a report")]

use std::sync::Arc;
use std::time::Instant;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, Error, IoChannel, Mapping,
    NullDevice, NullOptions, RamDevice, RamOptions, Request, Result, Segment,
};

const DEPTH: u32 = 32;
const BYTES: u32 = 4096;
const REQUESTS: u32 = 100_000;
const ROUNDS: usize = 60;

/// Returns the nanoseconds of a request, with `DEPTH` in flight.
fn time(
    channel: &mut dyn IoChannel,
    request: fn(u64, u32, Buffer, u64) -> Request,
    buffers: &mut Vec<Buffer>,
) -> f64 {
    let mut completions = Vec::with_capacity(DEPTH as usize);
    let start = Instant::now();
    for number in 0..REQUESTS / DEPTH {
        for _ in 0..DEPTH {
            let Some(buffer) = buffers.pop() else { break };
            // A refused request would show as a hang below.
            let _ = channel.submit(request(u64::from(number % 1024) << 12, BYTES, buffer, 0));
        }
        channel.kick();
        while buffers.len() < DEPTH as usize {
            channel.poll(&mut completions);
            buffers.extend(completions.drain(..).filter_map(|completion| completion.buffer));
        }
    }
    start.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<()> {
    let memory = |cause| Error::os(cause, "memory");
    let null = NullDevice::new(NullOptions::default())?;
    let ram = RamDevice::new(RamOptions { size_bytes: 64 << 20, ..RamOptions::default() })?;
    let blocks =
        Arena::new(BYTES as usize, DEPTH, ArenaOptions::ordinary_pages()).map_err(memory)?;
    let region: Arc<Mapping> = Mapping::new_file((DEPTH * BYTES) as usize).map_err(memory)?.0;
    let lists = Arena::foreign(vec![region], DEPTH, 1);
    let mut singles: Vec<Buffer> = (0..DEPTH).filter_map(|_| blocks.lease()).collect();
    let mut of_one: Vec<Buffer> = (0..DEPTH).filter_map(|_| lists.lease()).collect();
    for (number, list) in (0..).zip(&mut of_one) {
        let offset_bytes = u64::from(BYTES) * number;
        let segment = Segment { region: 0, offset_bytes, len_bytes: BYTES };
        list.fill([segment]).map_err(memory)?;
    }
    let options = ChannelOptions { depth: DEPTH, arenas: vec![blocks, lists], wake: None };
    for (name, device) in [("null", &null as &dyn BlockDevice), ("ram", &ram)] {
        let mut channel = device.open_channel(&options)?;
        for (verb, request) in
            [("writes", Request::write as fn(_, _, _, _) -> _), ("reads", Request::read)]
        {
            let (mut ours, mut more) = (Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                // The two also take turns at going first.
                let first = (round % 2 == 0).then(|| time(channel.as_mut(), request, &mut singles));
                let list = time(channel.as_mut(), request, &mut of_one);
                let single = first.unwrap_or_else(|| time(channel.as_mut(), request, &mut singles));
                ours.push(single);
                more.push(list - single);
            }
            println!(
                "{name} {verb:<7} {:7.1} ns by one buffer, {:+6.1} by a list of one segment",
                median(ours),
                median(more)
            );
        }
    }
    Ok(())
}
