//! Tests of failures to open a device, and of their errors.

use std::path::{Path, PathBuf};

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, ErrorKind, Request, Result, WaitOptions,
};
use qpair_kernel::{FileOptions, Interface, KernelDevice, Mode, open, probe};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self::at(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
    }

    fn at(directory: &Path, name: &str) -> Self {
        Self(directory.join(format!("qpair-opening-{name}-{}", std::process::id())))
    }

    fn options(&self) -> FileOptions {
        FileOptions::new(&self.0)
    }

    fn create(&self, bytes: u64) -> Result<KernelDevice> {
        open(&FileOptions { create: Some(bytes), ..self.options() }, Interface::Posix)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn refused(result: Result<KernelDevice>, kind: ErrorKind) -> String {
    let error = result.expect_err("opened what should be refused");
    assert_eq!(error.kind(), kind, "{error}");
    error.to_string()
}

#[test]
fn interfaces_have_names() {
    for interface in Interface::CONCRETE.into_iter().chain([Interface::Auto]) {
        assert_eq!(interface.to_string().parse::<Interface>().unwrap(), interface);
    }
    let error = "uring".parse::<Interface>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.way_out().unwrap().contains("io_uring_cmd"), "{error}");
}

#[test]
fn a_missing_file() {
    let scratch = Scratch::new("missing");
    refused(open(&scratch.options(), Interface::Auto), ErrorKind::NotFound);
    let nowhere = Scratch::at(Path::new("/nowhere"), "missing");
    refused(nowhere.create(4096), ErrorKind::NotFound);
}

#[test]
fn what_is_no_file() {
    refused(open(&FileOptions::new("/"), Interface::Auto), ErrorKind::Invalid);
    refused(open(&FileOptions::new("/dev/null"), Interface::Auto), ErrorKind::Invalid);
}

#[test]
fn a_file_that_is_there_is_not_created_again() {
    let scratch = Scratch::new("exists");
    drop(scratch.create(8192).unwrap());
    refused(scratch.create(4096), ErrorKind::Exists);
    assert_eq!(open(&scratch.options(), Interface::Auto).unwrap().size_bytes(), 8192);
}

#[test]
fn creating_what_cannot_be_written() {
    let scratch = Scratch::new("create-read-only");
    let options = FileOptions { create: Some(4096), read_only: true, ..scratch.options() };
    refused(open(&options, Interface::Auto), ErrorKind::Invalid);
}

#[test]
fn one_at_a_time() {
    let scratch = Scratch::new("locked");
    let first = scratch.create(4096).unwrap();
    let said = refused(open(&scratch.options(), Interface::Auto), ErrorKind::Busy);
    assert!(said.contains("already open elsewhere"), "{said}");
    let reader = FileOptions { read_only: true, ..scratch.options() };
    refused(open(&reader, Interface::Auto), ErrorKind::Busy);
    drop(first);
    let _readers =
        [open(&reader, Interface::Auto).unwrap(), open(&reader, Interface::Auto).unwrap()];
    refused(open(&scratch.options(), Interface::Auto), ErrorKind::Busy);
    let unlocked = FileOptions { exclusive_lock: false, ..scratch.options() };
    drop(open(&unlocked, Interface::Auto).unwrap());
}

/// The kernel destroys a closed ring, and releases its registered file, some time later. A
/// regression: a closed store could therefore not be reopened at once, because its lock was still
/// held.
#[test]
fn the_lock_goes_with_the_device() {
    let scratch = Scratch::new("reopened");
    drop(scratch.create(4096).unwrap());
    for interface in Interface::CONCRETE {
        for _ in 0..20 {
            let device = open(&scratch.options(), interface).unwrap();
            let channel = device.open_channel(&ChannelOptions::default()).unwrap();
            // The channel keeps the file open and locked.
            drop(device);
            refused(open(&scratch.options(), interface), ErrorKind::Busy);
            drop(channel);
        }
    }
}

#[test]
fn a_file_is_cut_off_and_grows_again() {
    let scratch = Scratch::new("shrink");
    let device = scratch.create(1 << 20).unwrap();
    let len = || std::fs::metadata(&scratch.0).unwrap().len();
    // The size is rounded up to whole blocks, and the file never grows.
    device.shrink(8192 - 1).unwrap();
    assert_eq!((device.size_bytes(), len()), (8192, 8192));
    device.shrink(1 << 20).unwrap();
    assert_eq!((device.size_bytes(), len()), (8192, 8192));
    device.grow(1 << 19).unwrap();
    assert_eq!((device.size_bytes(), len()), (1 << 19, 1 << 19));
    let read_only = FileOptions { read_only: true, ..scratch.options() };
    drop(device);
    open(&read_only, Interface::Posix).unwrap().shrink(4096).unwrap();
    assert_eq!(len(), 1 << 19);
}

#[test]
fn space_is_reserved_or_the_size_stays() {
    let scratch = Scratch::new("grow");
    let device = scratch.create(8192).unwrap();
    let allocated = |path| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).unwrap().blocks() * 512
    };
    device.grow(1 << 20).unwrap();
    assert!(allocated(&scratch.0) >= 1 << 20);
    // More bytes than any file system here has, and more than any can have.
    for bytes in [1 << 43, i64::MAX as u64, u64::MAX] {
        let error = device.grow(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert_eq!(device.size_bytes(), 1 << 20);
        assert_eq!(std::fs::metadata(&scratch.0).unwrap().len(), 1 << 20);
    }
    let too_large = Scratch::new("too-large");
    refused(too_large.create(1 << 43), ErrorKind::NoSpace);
    assert!(!too_large.0.exists(), "a file that could not be created is left behind");
}

#[test]
fn a_file_system_in_memory() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        println!("skipped: no {}", memory.display());
        return;
    }
    let scratch = Scratch::at(memory, "tmpfs");
    match scratch.create(4096) {
        Ok(device) => println!("tmpfs takes O_DIRECT here: {:?}", device.info()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.way_out().is_some());
            assert!(!scratch.0.exists(), "a file that could not be created is left behind");
        }
    }
}

#[test]
fn a_block_device_that_is_in_use() {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let mounted = mounts.lines().find_map(|line| line.strip_prefix("/dev/")?.split(' ').next());
    let Some(name) = mounted else {
        println!("skipped: no mounted block device");
        return;
    };
    let options = FileOptions { read_only: true, ..FileOptions::new(format!("/dev/{name}")) };
    match open(&options, Interface::Posix) {
        Err(error) if matches!(error.kind(), ErrorKind::Denied | ErrorKind::NotFound) => {
            println!("skipped: {error}");
        }
        result => {
            let said = refused(result, ErrorKind::Busy);
            assert!(said.contains("mounted"), "{said}");
        }
    }
}

/// A device without poll queues is refused: a kernel would use interrupts instead, or fail each
/// read.
#[test]
fn polling_needs_poll_queues_and_no_cache() {
    let scratch = Scratch::new("polled");
    drop(scratch.create(8192).unwrap());
    for mode in ["io_uring+p", "io_uring+p:hybrid=on", "io_uring+k+p"] {
        let mode: Mode = mode.parse().unwrap();
        let cached = FileOptions { direct: false, ..scratch.options() };
        let said = refused(open(&cached, mode), ErrorKind::Invalid);
        assert!(said.contains("page cache"), "{said}");
        match open(&scratch.options(), mode) {
            Ok(device) => println!("polls: {}", device.info().mode),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.way_out().is_some(), "{error}");
                println!("no polling here: {error}");
            }
        }
    }
}

#[test]
fn the_mode_in_words() {
    let scratch = Scratch::new("words");
    drop(scratch.create(8192).unwrap());
    for (mode, words) in [
        ("io_uring", "registered file, registered buffers"),
        ("io_uring:buffers=off,file=off", "file by number, buffers pinned by transfer"),
        ("io_uring:ring=off", "ring by number"),
        ("io_uring:task_run=interrupt", "interrupting task work"),
        ("io_uring:segments=3", "vectors of 3"),
        ("io_uring+k:idle_ms=7", "SQPOLL idle 7 ms"),
        ("io_uring+k:idle_ms=7,cpu=0,shared=on", "SQPOLL idle 7 ms on CPU 0, shared"),
        ("libaio:mapped=off", "by io_getevents"),
        ("posix:threads=3", "on up to 3 threads"),
        ("posix:threads=0,segments=2", "of 2 pieces by the submitter itself"),
    ] {
        match open(&scratch.options(), mode.parse::<Mode>().unwrap()) {
            Ok(device) => {
                let told = &device.info().mode;
                assert!(told.contains(words), "{mode}: {told}");
                let short = mode.split(':').next().unwrap();
                assert_eq!(device.info().interface, short);
            }
            Err(error) => println!("skipped: {mode}: {error}"),
        }
    }
}

#[test]
fn verbs_are_those_of_the_interface() {
    let scratch = Scratch::new("verbs");
    drop(scratch.create(8192).unwrap());
    for interface in [Interface::IoUring, Interface::Libaio, Interface::Posix] {
        match open(&scratch.options(), interface) {
            Ok(device) => {
                let info = device.info();
                let knows = interface != Interface::Libaio;
                assert_eq!((info.discards, info.writes_zeroes), (knows, knows), "{interface}");
            }
            Err(error) => println!("skipped: {interface}: {error}"),
        }
    }
}

/// A file that is truncated while it is open gives errors, not short reads.
#[test]
fn a_file_cut_from_outside() {
    let scratch = Scratch::new("cut");
    drop(scratch.create(8192).unwrap());
    for interface in Interface::CONCRETE {
        let device = open(&scratch.options(), interface).unwrap();
        std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(4096).unwrap();
        let arena = Arena::new(8192, 1, ArenaOptions::default()).unwrap();
        let mut channel = device.open_channel(&ChannelOptions::default()).unwrap();
        channel.submit(Request::read(0, 8192, arena.lease().unwrap(), 1)).unwrap();
        let mut completions = Vec::new();
        let options = WaitOptions { want: 1, linger: std::time::Duration::ZERO, timeout: None };
        while channel.in_flight() > 0 {
            channel.wait(&mut completions, options);
        }
        assert_eq!(completions[0].result.unwrap_err().kind, ErrorKind::Io, "{interface}");
        assert!(completions[0].buffer.is_some());
        std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(8192).unwrap();
    }
}

#[test]
fn probing_tells_of_each() {
    let outcomes = probe();
    assert_eq!(outcomes.len(), 3);
    for (interface, outcome) in outcomes {
        match outcome {
            Ok(()) => println!("{interface}: works"),
            Err(error) => println!("{interface}: {error}"),
        }
    }
}
