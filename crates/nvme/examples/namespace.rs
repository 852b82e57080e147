//! Runs the NVMe driver on a namespace of a drive of this machine: the conformance suite, or moving
//! the bytes of a file to or from the namespace, so that another program can compare them.
//!
//! ```text
//! namespace conform ADDRESS        the first 2 MiB are overwritten, and the last block; nothing of a guest's memory may be copied
//! namespace write ADDRESS FILE     the file's bytes to its start, and a flush
//! namespace read ADDRESS FILE      as many bytes as the file has from its start, compared
//! namespace hold ADDRESS           waits, with the drive in use, for the end of standard input
//! ```
//!
//! ADDRESS has the form of a device name after `nvme:`, such as `wait=sleep:0000:3b:00.0/ns1`.

#![allow(clippy::print_stdout, reason = "a program that reports")]
#![allow(clippy::print_stderr, reason = "a program that reports")]

use std::error::Error;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    Arena, BlockDevice, Buffer, ChannelOptions, Completion, IoChannel, Mapping, Request, Segment,
    WaitOptions,
};
use qpair_conformance::{Options, copied_lists, run};
use qpair_nvme::{Controller, NvmeAddress, NvmeDevice, NvmeTarget};
use qpair_pci::vfio;

const USAGE: &str = "usage: namespace conform|write|read|hold ADDRESS [FILE]";
/// The maximum number of bytes of one request: on some drives, more than one command moves.
const PIECE_BYTES: usize = 1 << 20;
const DEPTH: u32 = 8;

type Anything<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match try_it() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("namespace: {error}");
            ExitCode::FAILURE
        }
    }
}

fn try_it() -> Anything<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let address = NvmeAddress::parse(words.get(1).ok_or(USAGE)?)?;
    let NvmeTarget::Pci(place) = &address.target else { return Err(USAGE.into()) };
    let controller = Controller::open(vfio::open(place)?, address.options())?;
    let device = controller.open_default_namespace(address.nsid)?;
    println!("{}: {}", device.info().interface, device.info().mode);
    match words[..] {
        ["conform", _] => conform(&controller, address.nsid),
        ["write", _, file] => Line::new(&device)?.write(&std::fs::read(file)?),
        ["read", _, file] => Line::new(&device)?.read(&std::fs::read(file)?),
        ["hold", _] => Ok(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).map(drop)?),
        _ => Err(USAGE.into()),
    }
}

fn conform(controller: &Arc<Controller>, nsid: Option<u32>) -> Anything<()> {
    let make = || -> Arc<dyn BlockDevice> {
        match controller.open_default_namespace(nsid) {
            Ok(device) => Arc::new(device),
            // The suite counts a panic as the check's failure.
            Err(error) => panic!("opening it again: {error}"),
        }
    };
    let report = run(make, Options::default());
    println!("{report}");
    if report.failed().next().is_some() {
        return Err("it does not conform".into());
    }
    // Foreign memory that the IOMMU opens, page by page.
    let (_, file) = Mapping::new_file(1 << 20)?;
    let region = Mapping::of_lasting_file(file.as_fd(), 0, 1 << 20)?;
    let segments = [7, 2, 5, 4].map(|page| Segment {
        region: 0,
        offset_bytes: page << 12,
        len_bytes: 1 << 12,
    });
    match copied_lists(&make(), &region, &segments, true)? {
        0 => Ok(()),
        copied => Err(format!("{copied} requests with memory of others were copied").into()),
    }
}

struct Line {
    channel: Box<dyn IoChannel>,
    free: Vec<Buffer>,
}

impl Line {
    fn new(device: &NvmeDevice) -> Anything<Self> {
        let arena = Arena::new(PIECE_BYTES, DEPTH, device.info().arena_options())?;
        let options = ChannelOptions {
            depth: DEPTH,
            arenas: vec![arena.clone()],
            ..ChannelOptions::default()
        };
        let free = std::iter::from_fn(|| arena.lease()).collect();
        Ok(Self { channel: device.open_channel(&options)?, free })
    }

    fn write(mut self, content: &[u8]) -> Anything<()> {
        for (number, piece) in content.chunks(PIECE_BYTES).enumerate() {
            let mut buffer = self.buffer(content)?;
            buffer.copy_from(0, piece);
            let at = number as u64 * PIECE_BYTES as u64;
            self.submit(Request::write(at, piece.len() as u32, buffer, 0))?;
        }
        self.drain(content)?;
        self.submit(Request::flush(0))?;
        self.drain(content)
    }

    fn read(mut self, content: &[u8]) -> Anything<()> {
        for (number, piece) in content.chunks(PIECE_BYTES).enumerate() {
            let buffer = self.buffer(content)?;
            let at = number as u64 * PIECE_BYTES as u64;
            // The tag is the position of the file's bytes plus one; 0 means that there is nothing
            // to compare.
            self.submit(Request::read(at, piece.len() as u32, buffer, at + 1))?;
        }
        self.drain(content)
    }

    fn submit(&mut self, request: Request) -> Anything<()> {
        self.channel.submit(request).map_err(|_| "the channel takes no request".into())
    }

    fn buffer(&mut self, content: &[u8]) -> Anything<Buffer> {
        loop {
            if let Some(buffer) = self.free.pop() {
                return Ok(buffer);
            }
            self.take(content)?;
        }
    }

    fn drain(&mut self, content: &[u8]) -> Anything<()> {
        while self.channel.in_flight() > 0 {
            self.take(content)?;
        }
        Ok(())
    }

    fn take(&mut self, content: &[u8]) -> Anything<()> {
        let mut completions: Vec<Completion> = Vec::new();
        let options =
            WaitOptions { want: 1, linger: Duration::ZERO, timeout: Some(Duration::from_secs(30)) };
        self.channel.wait(&mut completions, options);
        if completions.is_empty() {
            return Err("nothing came for 30 s".into());
        }
        for completion in completions {
            completion.result.map_err(|error| format!("{:?}: {error}", completion.op))?;
            let Some(buffer) = completion.buffer else { continue };
            if let Some(at) = completion.tag.checked_sub(1) {
                let wanted = &content[at as usize..];
                let wanted = &wanted[..wanted.len().min(PIECE_BYTES)];
                if buffer.as_slice()[..wanted.len()] != *wanted {
                    return Err(format!("the bytes at {at} are not the file's").into());
                }
            }
            self.free.push(buffer);
        }
        Ok(())
    }
}
