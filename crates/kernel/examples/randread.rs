//! Random 4 KiB reads: the throughput of an interface, and the processor time of a read.

#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, Completion, Request, WaitOptions,
};
use qpair_kernel::{FileOptions, Mode, open};

const USAGE: &str = "usage: randread PATH MODE DEPTH WANT LINGER_US SECONDS";
const READ_BYTES: u32 = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, interface, depth, want, linger_us, seconds] = &arguments[..] else {
        return Err(USAGE.into());
    };
    let depth: u32 = depth.parse()?;
    let options = FileOptions { read_only: true, ..FileOptions::new(path) };
    let device = open(&options, interface.parse::<Mode>()?)?;
    println!("{}: {}", device.choice(), device.info().mode);
    let arena = Arena::new(READ_BYTES as usize, depth, ArenaOptions::default())?;
    let mut channel = device.open_channel(&ChannelOptions {
        depth,
        arenas: vec![arena.clone()],
        ..ChannelOptions::default()
    })?;
    let pages = device.size_bytes() / u64::from(READ_BYTES);
    let wait = WaitOptions {
        want: want.parse()?,
        linger: Duration::from_micros(linger_us.parse()?),
        timeout: None,
    };
    // Use a new order in each run, because blocks that were read before are cached somewhere.
    let mut random = Xorshift(RandomState::new().hash_one(depth) | 1);
    let mut read = |buffer| {
        Request::read(random.next() % pages * u64::from(READ_BYTES), READ_BYTES, buffer, 0)
    };
    while let Some(buffer) = arena.lease() {
        if channel.submit(read(buffer)).is_err() {
            return Err("the channel is smaller than its depth".into());
        }
    }
    let mut completions: Vec<Completion> = Vec::with_capacity(depth as usize);
    let (started, used) = (Instant::now(), usage()?);
    let end = started + Duration::from_secs(seconds.parse()?);
    let (mut done, mut waits) = (0u64, 0u64);
    while Instant::now() < end {
        done += channel.wait(&mut completions, wait) as u64;
        waits += 1;
        for completion in completions.drain(..) {
            completion.result?;
            let Some(buffer) = completion.buffer else { continue };
            let _ = channel.submit(read(buffer));
        }
    }
    let (elapsed, used) = (started.elapsed().as_secs_f64(), usage()? - used);
    let calls = channel.statistics().system_calls;
    let each = |total: f64| total * 1e6 / done as f64;
    println!(
        "{interface} depth {depth} want {want} linger {linger_us} us: {:.0} IOPS, CPU {:.2} us/read (user {:.2}, system {:.2}), {:.3} system calls/read, {:.1} reads/wait, CPU {:.0} %",
        done as f64 / elapsed,
        each(used.user + used.system),
        each(used.user),
        each(used.system),
        calls as f64 / done as f64,
        done as f64 / waits as f64,
        (used.user + used.system) / elapsed * 100.0,
    );
    if let Some(adaptation) = device.adaptation() {
        println!("{}", adaptation.state());
    }
    Ok(())
}

struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The processor time of this process, in seconds.
struct Usage {
    user: f64,
    system: f64,
}

impl std::ops::Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { user: self.user - earlier.user, system: self.system - earlier.system }
    }
}

fn usage() -> std::io::Result<Usage> {
    // SAFETY: all-zero is a valid value of this plain structure, and getrusage fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Usage { user: seconds(usage.ru_utime), system: seconds(usage.ru_stime) })
}
