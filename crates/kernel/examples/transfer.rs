//! Moves the bytes of a file to or from a device through one of its modes, so that another program
//! can compare them.
//!
//! ```text
//! transfer write FILE DEVICE MODE          the file's bytes to the device's start, and a flush
//! transfer read FILE DEVICE MODE           as many bytes as the file has from the device's start, compared
//! transfer random FILE DEVICE MODE COUNT   as many reads of 4 KiB at random places, compared
//! transfer flush FILE DEVICE MODE COUNT    as many writes of the file's first bytes, each followed by a flush
//! ```

#![allow(clippy::print_stdout, reason = "a program that reports")]
#![allow(clippy::print_stderr, reason = "a program that reports")]

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, Completion, IoChannel, Request,
    WaitOptions,
};
use qpair_kernel::{FileOptions, Mode, open};

const USAGE: &str = "usage: transfer write|read|random|flush FILE DEVICE MODE [COUNT]";
const DEPTH: u32 = 16;
const PIECE_BYTES: u32 = 64 << 10;
const READ_BYTES: u32 = 4096;
const WAIT: WaitOptions = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };

type Anything<T> = Result<T, Box<dyn Error>>;

/// A channel to the device, with the expected content of the device.
struct Line {
    channel: Box<dyn IoChannel>,
    arena: Arc<Arena>,
    content: Vec<u8>,
    completions: Vec<Completion>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("transfer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Anything<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (what, file, path, mode, count) = match &arguments[..] {
        [what, file, path, mode] => (what.as_str(), file, path, mode, 0),
        [what, file, path, mode, count] => (what.as_str(), file, path, mode, count.parse()?),
        _ => return Err(USAGE.into()),
    };
    let read_only = matches!(what, "read" | "random");
    let options = FileOptions { read_only, ..FileOptions::new(path) };
    let device = open(&options, mode.parse::<Mode>()?)?;
    let info = device.info();
    println!("{}: {}", info.interface, info.mode);
    let piece_bytes = PIECE_BYTES.min(info.transfer_bytes_max);
    let arena = Arena::new(PIECE_BYTES as usize, DEPTH, ArenaOptions::default())?;
    let mut line = Line {
        channel: device.open_channel(&ChannelOptions {
            depth: DEPTH,
            arenas: vec![arena.clone()],
            ..ChannelOptions::default()
        })?,
        arena,
        content: std::fs::read(file)?,
        completions: Vec::new(),
    };
    match what {
        "write" => line.write(piece_bytes)?,
        "read" => line.read(piece_bytes)?,
        "random" => line.random(count)?,
        "flush" => line.flush(count, info.logical_block_bytes)?,
        _ => return Err(USAGE.into()),
    }
    println!("{:?}", line.channel.statistics());
    Ok(())
}

impl Line {
    fn lease(&mut self) -> Anything<Buffer> {
        loop {
            if let Some(buffer) = self.arena.lease() {
                return Ok(buffer);
            }
            self.take()?;
        }
    }

    fn take(&mut self) -> Anything<()> {
        self.channel.wait(&mut self.completions, WAIT);
        for completion in self.completions.drain(..) {
            completion.result.map_err(|error| format!("{:?}: {error}", completion.op))?;
            let (at, len) =
                ((completion.tag >> 32) as usize, (completion.tag & 0xFFFF_FFFF) as usize);
            let Some(buffer) = completion.buffer else { continue };
            let at = at * 512;
            if buffer.as_slice()[..len] != self.content[at..at + len] {
                return Err(format!("the {len} bytes at {at} are not the file's").into());
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Anything<()> {
        while self.channel.in_flight() > 0 {
            self.take()?;
        }
        Ok(())
    }

    fn submit(&mut self, mut request: Request) -> Anything<()> {
        request.tag = ((request.offset_bytes / 512) << 32) | u64::from(request.len_bytes);
        while let Err(back) = self.channel.submit(request) {
            request = back;
            self.take()?;
        }
        Ok(())
    }

    fn write(&mut self, piece_bytes: u32) -> Anything<()> {
        for at in (0..self.content.len()).step_by(piece_bytes as usize) {
            let mut buffer = self.lease()?;
            let piece = &self.content[at..self.content.len().min(at + piece_bytes as usize)];
            buffer.copy_from(0, piece);
            let request = Request::write(at as u64, piece.len() as u32, buffer, 0);
            self.submit(request)?;
        }
        self.drain()?;
        self.submit(Request::flush(0))?;
        self.drain()
    }

    fn read(&mut self, piece_bytes: u32) -> Anything<()> {
        for at in (0..self.content.len()).step_by(piece_bytes as usize) {
            let len = (self.content.len() - at).min(piece_bytes as usize) as u32;
            let buffer = self.lease()?;
            self.submit(Request::read(at as u64, len, buffer, 0))?;
        }
        self.drain()
    }

    fn random(&mut self, count: u64) -> Anything<()> {
        let places = self.content.len() as u64 / u64::from(READ_BYTES);
        let seed = RandomState::new();
        for number in 0..count {
            let at = seed.hash_one(number) % places * u64::from(READ_BYTES);
            let buffer = self.lease()?;
            self.submit(Request::read(at, READ_BYTES, buffer, 0))?;
        }
        self.drain()
    }

    fn flush(&mut self, count: u64, block_bytes: u32) -> Anything<()> {
        for _ in 0..count {
            let mut buffer = self.lease()?;
            buffer.copy_from(0, &self.content[..block_bytes as usize]);
            self.submit(Request::write(0, block_bytes, buffer, 0))?;
            self.drain()?;
            self.submit(Request::flush(0))?;
            self.drain()?;
        }
        Ok(())
    }
}
