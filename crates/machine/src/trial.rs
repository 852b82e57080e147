//! Tries which interfaces and modes work on a file or device, by opening it with each and reading
//! one block.
//!
//! Nothing is written and no lock is taken, so a store or device in use can be tried.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, Error, ErrorKind, Request, Result,
    WaitOptions,
};
use qpair_kernel::{FileOptions, Interface, Mode, Polling, SubmissionThread};
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::device::{Device, DeviceKind};
use crate::scratch::ScratchFile;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Outcome {
    Works,
    Fails,
    /// There was no file or device to try it on.
    NotTried,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Trial {
    /// The requested mode: `io_uring+p`.
    pub mode: String,
    pub outcome: Outcome,
    /// The mode that ran, or the reason why it failed.
    pub detail: String,
    pub way_out: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Trials {
    pub path: String,
    /// Whether the page cache was bypassed (O_DIRECT), as it should be.
    pub direct: bool,
    pub modes: Vec<Trial>,
}

impl Trials {
    /// Whether at least one mode was tried and all tried modes failed.
    #[must_use]
    pub fn all_failed(&self) -> bool {
        let tried = || self.modes.iter().filter(|trial| trial.outcome != Outcome::NotTried);
        tried().next().is_some() && tried().all(|trial| trial.outcome == Outcome::Fails)
    }
}

/// The time after which a read without an answer counts as failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Tries every interface, and the modes of S1, on a file or device.
#[must_use]
pub fn try_interfaces(device: &Device) -> Trials {
    let path = Path::new(&device.path);
    // Detect a file system without direct I/O separately from interfaces that do not work.
    let direct = device.kind != DeviceKind::File
        || !matches!(
            read_a_block(path, Mode::new(Interface::Posix), true),
            Err(error) if error.kind() == ErrorKind::Unsupported
        );
    let uring = Mode::new(Interface::IoUring);
    let polled = |interface| Mode { polling: Polling::Poll, ..Mode::new(interface) };
    let modes = [
        Mode::new(Interface::Posix),
        Mode::new(Interface::Libaio),
        uring,
        polled(Interface::IoUring),
        Mode { submission_thread: Some(SubmissionThread::default()), ..uring },
        Mode::new(Interface::Passthrough),
        polled(Interface::Passthrough),
    ];
    let modes = modes.into_iter().map(|mode| try_mode(device, mode, direct)).collect();
    Trials { path: device.path.clone(), direct, modes }
}

/// Tries all interfaces and modes on a small file that is created in a directory, and then removed.
///
/// # Errors
/// Errors of creating the file.
pub fn try_interfaces_in(directory: &Path) -> io::Result<Trials> {
    let scratch = ScratchFile::new(directory)?;
    let mut trials = try_interfaces(&Device::read(scratch.path())?);
    // The file no longer exists when its report is read.
    for trial in &mut trials.modes {
        trial.detail = trial.detail.replace(&trials.path, "a file here");
    }
    trials.path = directory.display().to_string();
    Ok(trials)
}

/// Asks the kernel for each interface, if there is no file to try it on.
#[must_use]
pub fn ask_for_interfaces() -> Trials {
    let asked = qpair_kernel::probe().into_iter().map(|(interface, answer)| {
        let works = answer.map(|()| "the kernel offers it; nothing was read".to_owned());
        trial(Mode::new(interface), works)
    });
    Trials { path: String::new(), direct: true, modes: asked.collect() }
}

fn try_mode(device: &Device, mode: Mode, direct: bool) -> Trial {
    let passthrough = mode.interface == Interface::Passthrough;
    let not_tried = |detail: String| Trial {
        mode: mode.to_string(),
        outcome: Outcome::NotTried,
        detail,
        way_out: None,
    };
    let path = match (passthrough, device.kind) {
        (true, _) => match character_device(device) {
            Ok(path) => path,
            Err(why) => return not_tried(why),
        },
        (false, DeviceKind::CharacterDevice) => {
            return not_tried("a character device takes commands only: io_uring_cmd".to_owned());
        }
        (false, DeviceKind::Directory) => {
            return not_tried("a directory; give a file in it".to_owned());
        }
        (false, _) => PathBuf::from(&device.path),
    };
    match read_a_block(&path, mode, direct) {
        Err(error) if error.kind() == ErrorKind::Busy => not_tried(error.to_string()),
        result => trial(mode, result),
    }
}

fn trial(mode: Mode, result: Result<String>) -> Trial {
    let (outcome, detail, way_out) = match result {
        Ok(detail) => (Outcome::Works, detail, None),
        Err(error) => {
            let (error, way_out) = error.take_way_out();
            (Outcome::Fails, error.to_string(), way_out)
        }
    };
    Trial { mode: mode.to_string(), outcome, detail, way_out }
}

fn character_device(device: &Device) -> std::result::Result<PathBuf, String> {
    match (device.kind, device.disks.first()) {
        (DeviceKind::CharacterDevice, _) => Ok(PathBuf::from(&device.path)),
        (DeviceKind::BlockDevice, Some(disk)) if disk.is_nvme() => {
            let whole = disk.name.strip_prefix("nvme").unwrap_or_default();
            match &device.partition {
                Some(partition) => Err(format!(
                    "commands go to the whole drive: /dev/ng{whole}, not to {partition} alone"
                )),
                None => Ok(PathBuf::from(format!("/dev/ng{whole}"))),
            }
        }
        (DeviceKind::BlockDevice, disk) => {
            let driver = disk.and_then(|disk| disk.driver.as_deref()).unwrap_or("unknown");
            Err(format!("commands of NVMe need an NVMe drive; this one's driver is {driver}"))
        }
        (DeviceKind::File | DeviceKind::Directory, _) => {
            Err("commands of NVMe go to a whole drive (/dev/ngXnY), not to a file".to_owned())
        }
    }
}

/// Opens a channel, reads the first block, and returns the mode that ran, in words.
fn read_a_block(path: &Path, mode: Mode, direct: bool) -> Result<String> {
    let options =
        FileOptions { read_only: true, exclusive_lock: false, direct, ..FileOptions::new(path) };
    let device = qpair_kernel::open(&options, mode)?;
    let info = device.info();
    let block_bytes = info.logical_block_bytes;
    if device.size_bytes() < u64::from(block_bytes) {
        return Ok(format!("{}; opened only, there is no block to read", info.mode));
    }
    let no_memory = |cause| Error::os(cause, "mapping memory for one block");
    let arena = Arena::new(block_bytes.max(4096) as usize, 1, ArenaOptions::ordinary_pages())
        .map_err(no_memory)?;
    let channel = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&channel)?;
    let failed =
        |kind, what: &str| Error::new(kind, format!("reading a block of {}: {what}", info.name));
    let buffer =
        arena.lease().ok_or_else(|| failed(ErrorKind::Limit, "the arena has no free buffer"))?;
    if channel.submit(Request::read(0, block_bytes, buffer, 0)).is_err() {
        return Err(failed(ErrorKind::Io, "the channel refused a request"));
    }
    let mut completions = Vec::new();
    let options = WaitOptions { want: 1, linger: Duration::ZERO, timeout: Some(TIMEOUT) };
    channel.wait(&mut completions, options);
    match completions.pop() {
        Some(completion) => match completion.result {
            Ok(()) => Ok(info.mode.clone()),
            Err(error) => {
                let cause = io::Error::from_raw_os_error(error.errno);
                Err(failed(error.kind, &cause.to_string()))
            }
        },
        None => Err(failed(ErrorKind::Io, "the device did not answer within 10 s")),
    }
}
