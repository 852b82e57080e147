//! Tests a SCSI unit of this machine with the drivers here: the conformance suite, resets and task
//! management during I/O, and units that are added or removed behind the host.
//!
//! ```text
//! unit write NAME FILE       the file's bytes to its start, and a flush
//! unit read NAME FILE        as many bytes as the file has from its start, compared
//! unit conform NAME          the first 2 MiB are overwritten, and the last block
//! unit resets NAME           the first 256 KiB are written over and over, while the unit and the host are reset
//! unit changes HOST FILE     makes FILE, and waits until a unit has come, was read, and has gone
//! ```
//!
//! NAME has the form of a device name after `scsi:`, such as `0000:00:05.0/0`. HOST is its first
//! part. The first two also take a disk that a target serves, `vhost-user:PATH`.

#![allow(clippy::print_stdout, reason = "a program that reports")]
#![allow(clippy::print_stderr, reason = "a program that reports")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, BlockDevice, ChannelOptions, Completion, IoChannel, Op, Request, WaitOptions,
};
use qpair_conformance::{Options, run};
use qpair_drivers::Drivers;
use qpair_scsi::host::{Change, Data, Host, HostQueue, QueueOptions, Report, Task, Unit};
use qpair_scsi::{ScsiDisk, ScsiOptions};
use qpair_scsi_wire::Command;

const USAGE: &str =
    "usage: unit write NAME FILE | read NAME FILE | conform NAME | resets NAME | changes HOST FILE";
const DEPTH: u32 = 16;
const REQUEST_BYTES: usize = 16 << 10;
const TIMEOUT: Duration = Duration::from_secs(60);

type Anything<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match try_it() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unit: {error}");
            ExitCode::FAILURE
        }
    }
}

fn try_it() -> Anything<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let drivers = &Drivers::new();
    match words[..] {
        [word @ ("write" | "read"), name, file] => {
            transfer(drivers, name, &std::fs::read(file)?, word == "write")
        }
        ["conform", name] => conform(drivers, name),
        ["resets", name] => resets(drivers, name),
        ["changes", host, file] => changes(drivers, host, file),
        _ => Err(USAGE.into()),
    }
}

/// Moves the bytes of a file, in pieces of different lengths, one after the other.
fn transfer(drivers: &Drivers, name: &str, content: &[u8], is_write: bool) -> Anything<()> {
    const BLOCK: usize = 4096;
    let disk: Arc<dyn BlockDevice> = match name.split_once(':') {
        Some((driver @ "vhost-user", name)) => drivers.open(driver, name)?,
        _ => drivers.scsi_disk(name)?,
    };
    let arena = Arena::new(2 << 20, 1, disk.info().arena_options())?;
    let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
    let mut channel = disk.open_channel(&options)?;
    let mut buffer = arena.lease().ok_or("no buffer")?;
    let mut completions = Vec::new();
    let mut one = |request| -> Anything<Completion> {
        channel.submit(request).map_err(|_| "the channel takes no request")?;
        let options = WaitOptions { want: 1, linger: Duration::ZERO, timeout: Some(TIMEOUT) };
        channel.wait(&mut completions, options);
        let done = completions.pop().ok_or("nothing came")?;
        done.result.map_err(|error| format!("{:?} at {}: {error}", done.op, done.tag))?;
        Ok(done)
    };
    let len_max = (2 << 20).min(disk.info().transfer_bytes_max as usize / BLOCK * BLOCK);
    let (mut at, mut len) = (0, BLOCK);
    while at < content.len() {
        let piece = &content[at..][..len.min(content.len() - at)];
        let (offset, bytes) = (at as u64, piece.len() as u32);
        let request = if is_write {
            buffer.copy_from(0, piece);
            Request::write(offset, bytes, buffer, offset)
        } else {
            Request::read(offset, bytes, buffer, offset)
        };
        buffer = one(request)?.buffer.ok_or("the buffer is lost")?;
        if buffer.as_slice()[..piece.len()] != *piece {
            return Err(format!("the bytes at {at} are not the file's").into());
        }
        at += piece.len();
        len = (2 * len + BLOCK).min(len_max);
    }
    if is_write {
        one(Request::flush(0))?;
    }
    Ok(())
}

fn conform(drivers: &Drivers, name: &str) -> Anything<()> {
    println!("{}", drivers.scsi_disk(name)?.info().mode);
    let make = || -> Arc<dyn BlockDevice> {
        match drivers.scsi_disk(name) {
            Ok(device) => device,
            // The suite counts a panic as the check's failure.
            Err(error) => panic!("opening it again: {error}"),
        }
    };
    let report = run(make, Options::default());
    println!("{report}");
    match report.failed().next() {
        None => Ok(()),
        Some(_) => Err("it does not conform".into()),
    }
}

/// A channel, and the data that it has written.
struct Writer {
    channel: Box<dyn IoChannel>,
    arena: Arc<Arena>,
    completions: Vec<Completion>,
}

impl Writer {
    fn new(disk: &ScsiDisk) -> Anything<Self> {
        let arena = Arena::new(REQUEST_BYTES, DEPTH, disk.info().arena_options())?;
        let options = ChannelOptions { depth: DEPTH, arenas: vec![arena.clone()], wake: None };
        Ok(Self { channel: disk.open_channel(&options)?, arena, completions: Vec::new() })
    }

    /// Sends one request to each position, all at once. `fill_of` returns the byte that is written
    /// or expected there.
    fn round(&mut self, op: Op, fill_of: impl Fn(u64) -> u8) -> Anything<()> {
        for number in 0..u64::from(DEPTH) {
            let mut buffer = self.arena.lease().ok_or("a buffer did not come back")?;
            let at = number * REQUEST_BYTES as u64;
            let fill = if op == Op::Write { fill_of(number) } else { !fill_of(number) };
            buffer.copy_from(0, &[fill; REQUEST_BYTES]);
            let request = match op {
                Op::Write => Request::write(at, REQUEST_BYTES as u32, buffer, number),
                _ => Request::read(at, REQUEST_BYTES as u32, buffer, number),
            };
            self.channel.submit(request).map_err(|_| "the channel takes no request")?;
        }
        while self.channel.in_flight() > 0 {
            let options =
                WaitOptions { want: DEPTH, linger: Duration::MAX, timeout: Some(TIMEOUT) };
            self.channel.wait(&mut self.completions, options);
        }
        let count = self.completions.len();
        for done in self.completions.drain(..) {
            done.result.map_err(|error| format!("{op:?} {}: {error}", done.tag))?;
            let buffer = done.buffer.ok_or("a buffer is lost")?;
            let fill = fill_of(done.tag);
            if buffer.as_slice().iter().any(|byte| *byte != fill) {
                return Err(format!("piece {} has other bytes than were written", done.tag).into());
            }
        }
        if count != DEPTH as usize { Err("not each request was ended once".into()) } else { Ok(()) }
    }
}

fn resets(drivers: &Drivers, name: &str) -> Anything<()> {
    let disk = drivers.scsi_disk(name)?;
    let (host, unit) = (disk.host().clone(), disk.unit());
    // Each reset costs a command a retry, and the report of the reset another one.
    let options = ScsiOptions { retries_max: 255, ..ScsiOptions::default() };
    let disk = ScsiDisk::open(host.clone(), unit, name, options)?;
    let mut writer = Writer::new(&disk)?;
    let is_over = AtomicBool::new(false);
    let mut rounds = 0u64;
    let outcome = std::thread::scope(|scope| -> Anything<(u32, u32)> {
        let disturbing = scope.spawn(|| {
            let done = disturb(&*host, unit).map_err(|error| error.to_string());
            is_over.store(true, Ordering::Release);
            done
        });
        while !is_over.load(Ordering::Acquire) {
            writer.round(Op::Write, |number| (rounds + number) as u8)?;
            writer.round(Op::Read, |number| (rounds + number) as u8)?;
            rounds += 1;
        }
        Ok(disturbing.join().map_err(|_| "the other thread panicked")??)
    });
    let (lun_resets, aborts) = outcome?;
    writer.round(Op::Write, |number| number as u8)?;
    writer.round(Op::Read, |number| number as u8)?;
    println!(
        "{rounds} rounds of writes and reads, all as written, over {lun_resets} resets of the unit, 2 of its target, 3 of the host, \
         and {aborts} aborts"
    );
    if rounds < 3 { Err("too few rounds to prove anything".into()) } else { Ok(()) }
}

/// Resets the unit and the host, and aborts reads, while another thread uses the unit.
fn disturb(host: &dyn Host, unit: Unit) -> Anything<(u32, u32)> {
    let arena = Arena::new(4096, 8, qpair_block::ArenaOptions::ordinary_pages())?;
    let mut buffers: Vec<_> = std::iter::from_fn(|| arena.lease()).collect();
    let mut queue =
        host.open_queue(unit, &QueueOptions { depth: 8, arenas: &[arena], sleeps: false })?;
    for number in 0..10 {
        run_task(&mut *queue, Task::LunReset, 0)?;
        if number % 5 == 0 {
            run_task(&mut *queue, Task::TargetReset, 0)?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..3 {
        host.reset()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    // Receive the report of the resets.
    queue.poll(&mut Vec::new());
    let cdb = Command::Inquiry { page: None, allocation: 96 }.encode();
    let mut aborts = 0;
    for _ in 0..10 {
        for (tag, buffer) in (0u16..).zip(&mut buffers) {
            let data = Data { is_out: false, buffer, offset: 0, len: 96 };
            queue.queue(tag, &cdb, Some(data)).map_err(|why| format!("{why:?}"))?;
        }
        queue.kick();
        run_task(&mut *queue, Task::Abort(7), 8)?;
        aborts += 1;
    }
    Ok((10, aborts))
}

/// Runs a task to its end, and until `commands` have been reported.
fn run_task(queue: &mut dyn HostQueue, task: Task, commands: usize) -> Anything<()> {
    let start = Instant::now();
    while queue.begin_task(task).is_err() {
        queue.poll(&mut Vec::new());
        if start.elapsed() > TIMEOUT {
            return Err(format!("{task:?} cannot be begun").into());
        }
    }
    let (mut ended, mut is_done) = (0, None);
    while ended < commands || is_done.is_none() {
        let mut reports = Vec::new();
        queue.poll(&mut reports);
        for report in reports {
            match report {
                Report::Ended(_, _) => ended += 1,
                Report::Task(done) => is_done = Some(done),
            }
        }
        if start.elapsed() > TIMEOUT {
            return Err(format!("{task:?}: nothing comes any more").into());
        }
    }
    match (is_done, ended == commands) {
        (Some(true), true) => Ok(()),
        _ => Err(format!("{task:?}: done {is_done:?}, {ended} of {commands} commands").into()),
    }
}

fn changes(drivers: &Drivers, name: &str, file: &str) -> Anything<()> {
    let host = drivers.scsi_host(name)?;
    let before: Vec<u32> = host.scan()?.iter().map(|target| target.number).collect();
    std::fs::write(file, "")?;
    let start = Instant::now();
    let next = |wanted: &dyn Fn(&Change) -> Option<u32>| -> Anything<u32> {
        loop {
            if let Some(number) = host.changes().iter().find_map(wanted) {
                return Ok(number);
            }
            if start.elapsed() > TIMEOUT {
                return Err("nothing changes".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let new = next(&|change| match change {
        Change::Added(number) => Some(*number),
        _ => None,
    })?;
    let targets =
        || -> Anything<Vec<u32>> { Ok(host.scan()?.iter().map(|target| target.number).collect()) };
    if before.contains(&new) || !targets()?.contains(&new) {
        return Err(format!("target {new} is not new: {before:?}").into());
    }
    let disk = drivers.scsi_disk(&format!("{name}/{new}"))?;
    let mut writer = Writer::new(&disk)?;
    writer.round(Op::Write, |number| number as u8)?;
    writer.round(Op::Read, |number| number as u8)?;
    println!("target {new} came: {}", disk.facts().name);
    std::fs::write(format!("{file}.used"), "")?;
    let gone = next(&|change| match change {
        Change::Removed(number) => Some(*number),
        _ => None,
    })?;
    let failed = writer.round(Op::Read, |number| number as u8);
    let said = failed.err().map(|error| error.to_string()).unwrap_or_default();
    if gone != new || targets()? != before || !said.contains("Gone") {
        return Err(format!("target {gone} has gone, and reading {new} says: {said}").into());
    }
    println!("target {gone} went: {said}");
    Ok(())
}
