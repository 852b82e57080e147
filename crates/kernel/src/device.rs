//! The control plane: [`open`] and [`KernelDevice`].

use std::sync::Arc;

use qpair_block::{
    BlockDevice, ByteLocks, ChannelOptions, DeviceInfo, Error, ErrorKind, Extent, IoChannel, Result,
};

use crate::adapt::adaptation::Adaptation;
use crate::adapt::ways::Ways;
use crate::file::{File, FileOptions, Kind};
use crate::interface::{Choice, Interface};
use crate::io_uring::encode::Encoder as Operations;
use crate::mode::{Mode, Polling, TaskRun};
use crate::passthrough::{Namespace, is_namespace};
use crate::{io_uring, libaio, passthrough, posix};

/// A file, block device or NVMe namespace on one of the kernel's interfaces.
#[derive(Debug)]
pub struct KernelDevice {
    target: Target,
    info: DeviceInfo,
    choice: Choice,
    /// The ways among which channels change; `None` if a mode was asked for, or there is one way.
    ways: Option<Arc<Ways>>,
}

/// The open file or namespace that requests go to. Each channel is built for one of them, so no
/// request has to check.
#[derive(Clone, Debug)]
enum Target {
    File(Arc<File>),
    Namespace(Arc<Namespace>),
}

/// Opens a file, a block device, or the character device of an NVMe namespace.
///
/// If an interface is asked for by name, that interface runs. [`Interface::Auto`] uses the first
/// one on which a channel can really be opened here. For a character device that is NVMe
/// passthrough, which runs elsewhere only if asked for.
///
/// # Errors
/// `NotFound`, `Exists`, `Denied`, `Busy` (locked, mounted), `Invalid` (a directory, say),
/// `NoSpace` (creating) about the file; `Unsupported`, `Denied` or `Limit` about the interface or
/// direct I/O, with a hint.
pub fn open(options: &FileOptions, mode: impl Into<Mode>) -> Result<KernelDevice> {
    let mode = mode.into();
    mode.check()?;
    if mode.interface == Interface::Passthrough || is_namespace(&options.path) {
        return open_namespace(options, mode);
    }
    let file = Arc::new(File::open(options)?);
    on_interface(file, mode).inspect_err(|_| {
        if options.create.is_some() {
            let _ = std::fs::remove_file(&options.path);
        }
    })
}

fn open_namespace(options: &FileOptions, asked: Mode) -> Result<KernelDevice> {
    let mode = Mode { interface: Interface::Passthrough, ..asked };
    let name = options.path.display();
    let only_commands = || {
        let what = format!("{name} is a character device that takes NVMe commands only");
        Error::new(ErrorKind::Invalid, what)
    };
    let mut reasons = Vec::new();
    match asked.interface {
        Interface::Passthrough => {}
        Interface::Auto => {
            mode.check()?;
            reasons = Interface::CONCRETE.map(|passed| (passed, only_commands())).into();
        }
        Interface::IoUring | Interface::Libaio | Interface::Posix => {
            return Err(only_commands().hint(format!(
                "take io_uring_cmd, or for {} the block device beside it, /dev/nvmeXnY",
                asked.interface
            )));
        }
    }
    let (namespace, words) = passthrough::open(options, &mode)?;
    let info = DeviceInfo {
        interface: mode.short_name(),
        mode: format!("{words}; {}", namespace.drive),
        ..namespace.limits.clone()
    };
    let choice = Choice { interface: Interface::Passthrough, mode, reasons, why: None };
    Ok(KernelDevice { target: Target::Namespace(namespace), info, choice, ways: None })
}

fn on_interface(file: Arc<File>, asked: Mode) -> Result<KernelDevice> {
    let mut reasons = Vec::new();
    let interface = asked.interface;
    let candidates = match interface {
        Interface::Auto => &Interface::CONCRETE[..],
        Interface::IoUring => &[Interface::IoUring],
        Interface::Libaio => &[Interface::Libaio],
        Interface::Posix => &[Interface::Posix],
        Interface::Passthrough => &[Interface::Passthrough],
    };
    for &candidate in candidates {
        let asked = Mode { interface: candidate, ..asked };
        match try_best(&file, asked) {
            Ok((mode, words)) => {
                let info = info(&file, &mode, &words);
                let may_change = interface == Interface::Auto && is_plain(&mode);
                let ways = if may_change { Ways::of(&file, mode) } else { None };
                if let Some(ways) = &ways {
                    ways.adaptation.list(file.name());
                }
                let why = ways.as_ref().map(|ways| ways.why.clone());
                return Ok(KernelDevice {
                    target: Target::File(file),
                    info,
                    choice: Choice { interface: candidate, mode, reasons, why },
                    ways: ways.map(Arc::new),
                });
            }
            Err(error) if interface == candidate => return Err(error),
            Err(error) => reasons.push((candidate, error)),
        }
    }
    let told: Vec<String> =
        reasons.iter().map(|(name, error)| format!("{name}: {error}")).collect();
    Err(Error::new(ErrorKind::Unsupported, format!("no interface works here; {}", told.join("; "))))
}

/// Whether a mode is `io_uring` with no switch but where completions are finished.
fn is_plain(mode: &Mode) -> bool {
    Mode { task_run: TaskRun::Best, ..*mode } == Mode::new(Interface::IoUring)
}

/// Calls [`try_mode`] with the switches that suit the device, where the mode names none. Returns
/// the resulting mode, and its description.
fn try_best(file: &Arc<File>, mode: Mode) -> Result<(Mode, String)> {
    let is_open = mode.interface == Interface::IoUring
        && mode.task_run == TaskRun::Best
        && mode.polling == Polling::Interrupt
        && mode.submission_thread.is_none();
    if is_open && file.needs_threads() {
        let mode = Mode { task_run: TaskRun::Coop, ..mode };
        // Kernels before 5.19 do not have this switch.
        if let Ok(words) = try_mode(file, mode) {
            return Ok((mode, words));
        }
    }
    Ok((mode, try_mode(file, mode)?))
}

/// Opens a channel and drops it. Returns a description of the mode.
pub(crate) fn try_mode(file: &Arc<File>, mode: Mode) -> Result<String> {
    let options = ChannelOptions { depth: 1, ..ChannelOptions::default() };
    match mode.interface {
        Interface::IoUring | Interface::Auto => {
            io_uring::try_open::<Operations>(file, &mode, &options)
        }
        Interface::Libaio => libaio::try_open(file.clone(), &mode, &options),
        Interface::Posix => posix::try_open(file.clone(), &mode, &options),
        Interface::Passthrough => Err(no_file(file)),
    }
}

pub(crate) fn open_channel(
    file: &Arc<File>,
    mode: Mode,
    options: &ChannelOptions,
) -> Result<Box<dyn IoChannel>> {
    file.limits.check_channel(options)?;
    match mode.interface {
        Interface::IoUring | Interface::Auto => {
            io_uring::open::<Operations>(file.clone(), &mode, options)
        }
        Interface::Libaio => libaio::open(file.clone(), &mode, options),
        Interface::Posix => posix::open(file.clone(), &mode, options),
        Interface::Passthrough => Err(no_file(file)),
    }
}

fn no_file(file: &File) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} takes no NVMe commands", file.name()))
}

fn info(file: &File, mode: &Mode, words: &str) -> DeviceInfo {
    let cache = if file.direct { "O_DIRECT" } else { "page cache" };
    // libaio has no command for these operations.
    let has_all_verbs = mode.interface != Interface::Libaio;
    DeviceInfo {
        interface: mode.short_name(),
        mode: format!("{words}, {cache}"),
        discards: has_all_verbs && file.limits.discards,
        writes_zeroes: has_all_verbs && file.limits.writes_zeroes,
        // The kernel executes an atomic write only in one piece.
        atomic_write_bytes: if mode.segments == 0 { file.limits.atomic_write_bytes } else { 0 },
        ..file.limits.clone()
    }
}

impl KernelDevice {
    #[must_use]
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Returns the present ways of the channels, for reports, if they may change: the device was
    /// opened with [`Interface::Auto`], and more than one way leads to it.
    #[must_use]
    pub fn adaptation(&self) -> Option<Arc<Adaptation>> {
        self.ways.as_ref().map(|ways| ways.adaptation())
    }

    #[must_use]
    pub fn with_name(mut self, specifier: impl Into<String>) -> Self {
        self.info.name = specifier.into();
        self
    }

    /// Whether this is a block device or a namespace, not a file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        match &self.target {
            Target::File(file) => file.kind == Kind::BlockDevice,
            Target::Namespace(_) => true,
        }
    }
}

impl BlockDevice for KernelDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        match &self.target {
            Target::File(file) => file.size_bytes(),
            Target::Namespace(namespace) => namespace.size_bytes,
        }
    }

    fn byte_locks(&self) -> Option<Arc<dyn ByteLocks>> {
        Some(match &self.target {
            Target::File(file) => file.clone(),
            Target::Namespace(namespace) => namespace.clone(),
        })
    }

    fn extent(&self, offset_bytes: u64, len_bytes: u64) -> Extent {
        match &self.target {
            Target::File(file) => file.extent(offset_bytes, len_bytes),
            Target::Namespace(_) => Extent { len_bytes, is_hole: false },
        }
    }

    fn removed(&self) -> Option<String> {
        match &self.target {
            Target::File(file) => file.is_removed().then(|| file.name().to_owned()),
            Target::Namespace(_) => None,
        }
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        match &self.target {
            Target::File(file) => file.grow(size_bytes),
            Target::Namespace(namespace) => namespace.grow(size_bytes),
        }
    }

    fn shrinks(&self) -> bool {
        self.info().growable
    }

    fn shrink(&self, size_bytes: u64) -> Result<()> {
        match &self.target {
            Target::File(file) => file.shrink(size_bytes),
            Target::Namespace(_) => Ok(()),
        }
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        match &self.target {
            Target::File(file) => match &self.ways {
                Some(ways) => ways.open_channel(options),
                None => open_channel(file, self.choice.mode, options),
            },
            Target::Namespace(namespace) => {
                passthrough::open_channel(namespace, &self.choice.mode, options)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Runs the conformance suite over channels as they are on older kernels.

    use std::time::Duration;

    use qpair_block::{Arena, IoError, Request, WaitOptions};

    use super::*;

    type OpenChannel =
        dyn Fn(Arc<File>, &ChannelOptions) -> Result<Box<dyn IoChannel>> + Send + Sync;

    struct With {
        device: KernelDevice,
        open_channel: Arc<OpenChannel>,
    }

    impl std::fmt::Debug for With {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.device.fmt(f)
        }
    }

    impl BlockDevice for With {
        fn info(&self) -> &DeviceInfo {
            self.device.info()
        }

        fn size_bytes(&self) -> u64 {
            self.device.size_bytes()
        }

        fn grow(&self, size_bytes: u64) -> Result<()> {
            self.device.grow(size_bytes)
        }

        fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
            self.info().check_channel(options)?;
            let Target::File(file) = &self.device.target else { panic!("not a file") };
            (self.open_channel)(file.clone(), options)
        }
    }

    fn write_atomically(file: File, mode: Mode) -> Option<std::result::Result<(), IoError>> {
        let device = match on_interface(Arc::new(file), mode) {
            Ok(device) => device,
            Err(error) => {
                eprintln!("skipped: {mode}: {error}");
                return None;
            }
        };
        let arena = Arena::new(4096, 1, device.info().arena_options()).unwrap();
        let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
        let mut channel = device.open_channel(&options).unwrap();
        let write = Request::write(4096, 4096, arena.lease().unwrap(), 1);
        channel.submit(Request { atomic: true, ..write }).unwrap();
        let mut done = Vec::new();
        while done.is_empty() {
            channel.wait(&mut done, WaitOptions { want: 1, linger: Duration::ZERO, timeout: None });
        }
        Some(done.remove(0).result)
    }

    /// Every interface passes the flag to the kernel, whose drive here supports atomic writes, or
    /// refuses them. Without the kernel's report of support, no request gets this far.
    #[test]
    fn atomic_writes_reach_the_kernel() {
        let program = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let path = directory.path().join("file");
        let options = FileOptions { create: Some(1 << 20), ..FileOptions::new(&path) };
        let known = open(&options, Interface::Posix).unwrap().info().atomic_write_bytes;
        std::fs::remove_file(&path).unwrap();
        for words in ["io_uring", "io_uring:buffers=off", "libaio", "posix", "posix:threads=0"] {
            let mode: Mode = words.parse().unwrap();
            let mut file = File::open(&options).unwrap();
            std::fs::remove_file(&path).unwrap();
            (file.limits.atomic_write_bytes_min, file.limits.atomic_write_bytes) = (512, 4096);
            let wanted = match known {
                0 => Err(IoError::UNSUPPORTED),
                _ => Ok(()),
            };
            if let Some(found) = write_atomically(file, mode) {
                assert_eq!(found, wanted, "{words}");
            }
        }
    }

    pub(crate) fn conform(
        open_channel: impl Fn(Arc<File>, &ChannelOptions) -> Result<Box<dyn IoChannel>>
        + Send
        + Sync
        + 'static,
    ) {
        // The build directory is on a file system with direct I/O, which /tmp may not be.
        let program = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let open_channel: Arc<OpenChannel> = Arc::new(open_channel);
        let make = || -> Arc<dyn BlockDevice> {
            let path = directory.path().join("file");
            let options = FileOptions { create: Some(4 << 20), ..FileOptions::new(&path) };
            let device = open(&options, Interface::Posix).unwrap();
            std::fs::remove_file(&path).unwrap();
            Arc::new(With { device, open_channel: open_channel.clone() })
        };
        qpair_conformance::run(make, qpair_conformance::Options::default()).assert_passed();
    }
}
