//! The mode in which a file is used: an interface, and its switches.
//!
//! ```text
//! io_uring                      interrupts: S1's "iou"
//! io_uring+p                    IOPOLL: completions are polled for in the driver; "iou+p"
//! io_uring+p:hybrid=on          sleep a little before polling (Linux 6.13)
//! io_uring+k:idle_ms=50,cpu=1   SQPOLL: a kernel thread submits; "iou+k"; shared=on: one thread for all rings of the process
//! io_uring:buffers=off,file=off,ring=off,task_run=coop
//! io_uring_cmd, io_uring_cmd+p  NVMe passthrough over /dev/ngXnY
//! libaio:mapped=off             completions by io_getevents only
//! posix:threads=16              a pool of threads; threads=0: calls are made by the submitter, as fio's psync does
//! any:segments=4                each transfer as a vector of 4 equal pieces (preadv2, READV)
//! ```

use std::fmt;
use std::str::FromStr;

use qpair_block::{Error, ErrorKind, Result};

use crate::interface::Interface;

/// The way in which completions are noticed.
///
/// ```
/// use qpair_kernel::{Mode, Polling};
///
/// assert_eq!("io_uring".parse::<Mode>()?.polling, Polling::Interrupt);
/// assert_eq!("io_uring+p".parse::<Mode>()?.polling, Polling::Poll);
/// # Ok::<(), qpair_block::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Polling {
    #[default]
    Interrupt,
    /// The driver's poll queue is polled (`IORING_SETUP_IOPOLL`).
    Poll,
    /// As [`Polling::Poll`], after a sleep of about half the usual time
    /// (`IORING_SETUP_HYBRID_IOPOLL`, Linux 6.13).
    Hybrid,
}

/// The kernel thread that takes submissions (`IORING_SETUP_SQPOLL`).
///
/// ```
/// use qpair_kernel::Mode;
///
/// let thread = "io_uring+k:idle_ms=20,cpu=1".parse::<Mode>()?.submission_thread;
/// assert_eq!(thread.and_then(|thread| thread.cpu), Some(1));
/// # Ok::<(), qpair_block::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubmissionThread {
    /// The time without work after which the thread sleeps, in milliseconds. The next submission
    /// then costs a system call. Default: 1000.
    pub idle_ms: u32,
    /// The processor that the thread stays on; `None`, the default: any.
    pub cpu: Option<u16>,
    /// Whether all rings of this process with this setting share one thread
    /// (`IORING_SETUP_ATTACH_WQ`). Default: false.
    pub shared: bool,
}

impl Default for SubmissionThread {
    fn default() -> Self {
        Self { idle_ms: 1000, cpu: None, shared: false }
    }
}

/// The time at which the kernel runs the end of a completion in the submitter's context.
///
/// ```
/// use qpair_kernel::{Mode, TaskRun};
///
/// assert_eq!("io_uring:task_run=defer".parse::<Mode>()?.task_run, TaskRun::Defer);
/// # Ok::<(), qpair_block::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TaskRun {
    /// The first of the other variants that the kernel accepts.
    #[default]
    Best,
    /// When the submitter asks for completions (`IORING_SETUP_DEFER_TASKRUN`).
    Defer,
    /// At the submitter's next system call (`IORING_SETUP_COOP_TASKRUN`).
    Coop,
    /// At once, by an interrupt of the submitter's thread.
    Interrupt,
}

/// The mode in which a file is used: an interface, and its switches.
///
/// ```
/// use qpair_kernel::{Interface, Mode};
///
/// let mode: Mode = "io_uring+k:idle_ms=50".parse()?;
/// assert_eq!(mode.interface, Interface::IoUring);
/// assert_eq!(mode.submission_thread.map(|thread| thread.idle_ms), Some(50));
/// # Ok::<(), qpair_block::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    /// The interface. Switches below that the interface does not have must keep their defaults.
    pub interface: Interface,
    /// The way in which completions are noticed: `io_uring` and `io_uring_cmd` only.
    pub polling: Polling,
    /// The submitter: a kernel thread, or `None` for the caller. `io_uring` only.
    pub submission_thread: Option<SubmissionThread>,
    /// The time at which the kernel finishes completions. `io_uring` only.
    pub task_run: TaskRun,
    /// Whether memory is registered once, instead of pinned on every transfer.
    pub registered_buffers: bool,
    /// Whether the file is registered, instead of looked up on every request.
    pub registered_file: bool,
    /// Whether the ring is registered, instead of looked up on every system call.
    pub registered_ring: bool,
    /// Whether completions are taken from the ring that the kernel maps into the process. `libaio`
    /// only.
    pub mapped_ring: bool,
    /// The number of equal pieces of a transfer, which the kernel gets as a vector; 0: a plain
    /// transfer.
    pub segments: u16,
    /// The number of threads of `posix`; 0: the submitter itself makes the calls.
    pub threads: u16,
}

pub(crate) const THREADS_DEFAULT: u16 = 16;

/// The maximum number of pieces in one vector: `IOV_MAX`.
const SEGMENTS_MAX: u16 = 1024;

impl Mode {
    /// Returns the mode of an interface with the switches that are best on most machines.
    #[must_use]
    pub const fn new(interface: Interface) -> Self {
        Self {
            interface,
            polling: Polling::Interrupt,
            submission_thread: None,
            task_run: TaskRun::Best,
            registered_buffers: true,
            registered_file: true,
            registered_ring: true,
            mapped_ring: true,
            segments: 0,
            threads: THREADS_DEFAULT,
        }
    }

    /// Returns the interface and the main switches, such as `io_uring+k`.
    #[must_use]
    pub fn short_name(&self) -> String {
        let suffix = match (self.submission_thread, self.polling) {
            (Some(_), Polling::Interrupt) => "+k",
            (Some(_), _) => "+k+p",
            (None, Polling::Interrupt) => "",
            (None, _) => "+p",
        };
        format!("{}{suffix}", self.interface)
    }

    /// Checks that the switches fit the interface and each other.
    ///
    /// # Errors
    /// `Invalid`, with the contradiction and a hint.
    pub fn check(&self) -> Result<()> {
        let plain = Self::new(self.interface);
        let only = |differs: bool, switch: &str, interfaces: &str| {
            if differs {
                let what = format!("{} has no switch {switch}", self.interface);
                return Err(Error::new(ErrorKind::Invalid, what)
                    .hint(format!("{switch} belongs to {interfaces}")));
            }
            Ok(())
        };
        let is = |interfaces: &[Interface]| interfaces.contains(&self.interface);
        let uring = is(&[Interface::IoUring]);
        let rings = uring || is(&[Interface::Passthrough]);
        only(!rings && self.polling != Polling::Interrupt, "+p", "io_uring and io_uring_cmd")?;
        only(!rings && self.submission_thread.is_some(), "+k", "io_uring and io_uring_cmd")?;
        only(!rings && self.task_run != TaskRun::Best, "task_run", "io_uring and io_uring_cmd")?;
        let registered =
            |mode: &Self| (mode.registered_buffers, mode.registered_file, mode.registered_ring);
        only(
            !rings && registered(self) != registered(&plain),
            "buffers, file or ring",
            "io_uring and io_uring_cmd",
        )?;
        only(!is(&[Interface::Libaio]) && !self.mapped_ring, "mapped", "libaio")?;
        only(!is(&[Interface::Posix]) && self.threads != THREADS_DEFAULT, "threads", "posix")?;
        only(is(&[Interface::Passthrough]) && self.segments > 0, "segments", "the others")?;
        if self.segments > SEGMENTS_MAX {
            let what = format!(
                "segments={} exceeds the {SEGMENTS_MAX} segments of a vector",
                self.segments
            );
            return Err(
                Error::new(ErrorKind::Invalid, what).hint("Linux takes at most 1024 (IOV_MAX)")
            );
        }
        if self.submission_thread.is_some() && self.task_run == TaskRun::Defer {
            let what = "a submission thread (+k) cannot be combined with task_run=defer";
            return Err(Error::new(ErrorKind::Invalid, what)
                .hint("the kernel's thread finishes completions by itself: leave task_run out"));
        }
        if self.submission_thread.is_some() && self.task_run == TaskRun::Coop {
            let what = "a submission thread (+k) cannot be combined with task_run=coop";
            return Err(Error::new(ErrorKind::Invalid, what)
                .hint("the kernel's thread finishes completions by itself: leave task_run out"));
        }
        Ok(())
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self::new(Interface::Auto)
    }
}

impl From<Interface> for Mode {
    fn from(interface: Interface) -> Self {
        Self::new(interface)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Self::new(self.interface);
        let mut switches: Vec<String> = Vec::new();
        let mut say = |differs: bool, text: String| {
            if differs {
                switches.push(text);
            }
        };
        say(self.polling == Polling::Hybrid, "hybrid=on".to_owned());
        if let Some(thread) = self.submission_thread {
            let usual = SubmissionThread::default();
            say(thread.idle_ms != usual.idle_ms, format!("idle_ms={}", thread.idle_ms));
            say(thread.cpu.is_some(), format!("cpu={}", thread.cpu.unwrap_or(0)));
            say(thread.shared, "shared=on".to_owned());
        }
        let task_run = match self.task_run {
            TaskRun::Best => "best",
            TaskRun::Defer => "defer",
            TaskRun::Coop => "coop",
            TaskRun::Interrupt => "interrupt",
        };
        say(self.task_run != TaskRun::Best, format!("task_run={task_run}"));
        say(!self.registered_buffers, "buffers=off".to_owned());
        say(!self.registered_file, "file=off".to_owned());
        say(!self.registered_ring, "ring=off".to_owned());
        say(!self.mapped_ring, "mapped=off".to_owned());
        say(self.segments != plain.segments, format!("segments={}", self.segments));
        say(self.threads != plain.threads, format!("threads={}", self.threads));
        let colon = if switches.is_empty() { "" } else { ":" };
        f.pad(&format!("{}{colon}{}", self.short_name(), switches.join(",")))
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = |what: String| Error::new(ErrorKind::Invalid, what);
        let (head, switches) = text.split_once(':').unwrap_or((text, ""));
        let mut words = head.split('+');
        let mut mode = Self::new(words.next().unwrap_or_default().parse()?);
        for word in words {
            match word {
                "p" => mode.polling = Polling::Poll,
                "k" => mode.submission_thread = Some(SubmissionThread::default()),
                _ => {
                    return Err(invalid(format!("\"{text}\": no mode is called \"+{word}\""))
                        .hint("the modes are +p (IOPOLL) and +k (SQPOLL)"));
                }
            }
        }
        for switch in switches.split(',').filter(|switch| !switch.is_empty()) {
            let (name, value) = switch.split_once('=').ok_or_else(|| {
                invalid(format!("\"{text}\": \"{switch}\" is not a switch"))
                    .hint("write name=value")
            })?;
            mode.set(name, value)
                .map_err(|error| invalid(format!("\"{text}\" is not valid")).caused_by(error))?;
        }
        mode.check()?;
        Ok(mode)
    }
}

impl Mode {
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let expected = |known: &str| {
            Error::new(ErrorKind::Invalid, format!("{name}={value} is not valid"))
                .hint(format!("{name} takes {known}"))
        };
        let on = || match value {
            "on" | "1" => Ok(true),
            "off" | "0" => Ok(false),
            _ => Err(expected("on or off")),
        };
        let number = |known: &str| value.parse::<u16>().map_err(|_| expected(known));
        let no_thread = || {
            Error::new(ErrorKind::Invalid, format!("{name} needs a submission thread"))
                .hint("write io_uring+k")
        };
        match name {
            "hybrid" => match (on()?, self.polling) {
                (_, Polling::Interrupt) => {
                    return Err(Error::new(ErrorKind::Invalid, "hybrid=on needs polling")
                        .hint("write io_uring+p:hybrid=on"));
                }
                (true, _) => self.polling = Polling::Hybrid,
                (false, _) => self.polling = Polling::Poll,
            },
            "idle_ms" => {
                let idle_ms = value.parse().map_err(|_| expected("milliseconds"))?;
                self.submission_thread.as_mut().ok_or_else(no_thread)?.idle_ms = idle_ms;
            }
            "cpu" => {
                let cpu = number("the number of a processor")?;
                self.submission_thread.as_mut().ok_or_else(no_thread)?.cpu = Some(cpu);
            }
            "shared" => {
                let shared = on()?;
                self.submission_thread.as_mut().ok_or_else(no_thread)?.shared = shared;
            }
            "task_run" => {
                self.task_run = match value {
                    "best" => TaskRun::Best,
                    "defer" => TaskRun::Defer,
                    "coop" => TaskRun::Coop,
                    "interrupt" => TaskRun::Interrupt,
                    _ => return Err(expected("best, defer, coop or interrupt")),
                }
            }
            "buffers" => self.registered_buffers = on()?,
            "file" => self.registered_file = on()?,
            "ring" => self.registered_ring = on()?,
            "mapped" => self.mapped_ring = on()?,
            "segments" => self.segments = number("a number of pieces")?,
            "threads" => self.threads = number("a number of threads")?,
            _ => {
                return Err(Error::new(ErrorKind::Invalid, format!("there is no switch {name}")).hint(
                    "the switches are hybrid, idle_ms, cpu, shared, task_run, buffers, file, ring, mapped, segments and threads",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in [
            "auto",
            "io_uring",
            "io_uring+p",
            "io_uring+p:hybrid=on",
            "io_uring+k:idle_ms=50,cpu=1,shared=on",
            "io_uring+k+p",
            "io_uring:task_run=coop,buffers=off,file=off,ring=off",
            "io_uring_cmd+p",
            "libaio:mapped=off,segments=4",
            "posix:threads=0",
        ] {
            let mode: Mode = text.parse().unwrap();
            let again = mode.to_string();
            assert_eq!(again, text, "{mode:?}");
        }
        assert_eq!("iou+k".parse::<Mode>().unwrap().to_string(), "io_uring+k");
    }

    #[test]
    fn refuses_what_contradicts_itself() {
        for (text, what) in [
            ("io_uring+k:task_run=defer", "cannot be combined"),
            ("posix+p", "has no switch +p"),
            ("libaio:threads=3", "has no switch threads"),
            ("io_uring:hybrid=on", "hybrid=on needs polling"),
            ("io_uring:idle_ms=3", "needs a submission thread"),
            ("io_uring+x", "no mode is called"),
            ("io_uring:buffers", "is not a switch"),
            ("io_uring:buffers=perhaps", "on or off"),
            ("nvme9", "there is no interface"),
            ("posix:segments=1025", "exceeds the 1024"),
        ] {
            let error = text.parse::<Mode>().unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
