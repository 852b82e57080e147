//! Sets up a ring: finds the best flags for a mode that the kernel supports, and the reason for a
//! refusal.

use std::any::Any;
use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, Parameters, cqueue, squeue};
use qpair_block::{Error, ErrorKind, Result};

use super::shared::SharedThread;
use crate::mode::{Mode, Polling, SubmissionThread, TaskRun};

/// Flags of linux/io_uring.h.
const SETUP_IOPOLL: u32 = 1 << 0;
const SETUP_SQPOLL: u32 = 1 << 1;
const SETUP_SQ_AFF: u32 = 1 << 2;
const SETUP_ATTACH_WQ: u32 = 1 << 5;
const SETUP_SUBMIT_ALL: u32 = 1 << 7;
const SETUP_COOP_TASKRUN: u32 = 1 << 8;
const SETUP_TASKRUN_FLAG: u32 = 1 << 9;
const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
const SETUP_NO_SQARRAY: u32 = 1 << 16;
const SETUP_HYBRID_IOPOLL: u32 = 1 << 17;

/// `struct io_uring_params`, linux/io_uring.h: ten words, and two tables of offsets of ten words
/// each.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
struct RawParameters {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    offsets: [[u32; 10]; 2],
}

const _: () = assert!(size_of::<RawParameters>() == 120);
const _: () = assert!(size_of::<Parameters>() == size_of::<RawParameters>());

/// A set of set-up flags that depend on the kernel version: where completions are finished, and how
/// the kernel finds entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetUp {
    words: &'static str,
    task_run: TaskRun,
    /// Whether the kernel takes entries in order, without a table of their indices (`NO_SQARRAY`).
    no_array: bool,
}

impl SetUp {
    /// All sets, the one for the newest kernels first.
    pub(crate) const ALL: &'static [Self] = &[
        Self {
            words: "SINGLE_ISSUER|DEFER_TASKRUN|NO_SQARRAY",
            task_run: TaskRun::Defer,
            no_array: true,
        },
        Self { words: "SINGLE_ISSUER|DEFER_TASKRUN", task_run: TaskRun::Defer, no_array: false },
        Self { words: "COOP_TASKRUN", task_run: TaskRun::Coop, no_array: false },
        Self { words: "interrupting task work", task_run: TaskRun::Interrupt, no_array: false },
    ];

    /// The sets for rings with a submission thread, which finishes completions itself.
    const BESIDE_THREAD: &'static [Self] = &[
        Self { words: "NO_SQARRAY", task_run: TaskRun::Interrupt, no_array: true },
        Self { words: "", task_run: TaskRun::Interrupt, no_array: false },
    ];

    /// Returns the sets that `mode` allows, the best first.
    fn candidates(mode: &Mode) -> &'static [Self] {
        match (mode.submission_thread, mode.task_run) {
            (Some(_), _) => Self::BESIDE_THREAD,
            (None, TaskRun::Best) => Self::ALL,
            (None, TaskRun::Defer) => &Self::ALL[..2],
            (None, TaskRun::Coop) => &Self::ALL[2..3],
            (None, TaskRun::Interrupt) => &Self::ALL[3..],
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    polling: Polling,
    thread: Option<SubmissionThread>,
    /// The descriptor of a ring whose submission thread should be used.
    attach: Option<RawFd>,
}

impl Asked {
    const PLAIN: Self = Self { polling: Polling::Interrupt, thread: None, attach: None };
}

pub(super) struct Built<S: squeue::EntryMarker, C: cqueue::EntryMarker> {
    pub(super) ring: IoUring<S, C>,
    pub(super) words: String,
    pub(super) shared: Option<std::sync::Arc<SharedThread>>,
}

pub(super) fn set_up<S: squeue::EntryMarker + 'static, C: cqueue::EntryMarker + 'static>(
    entries: u32,
    mode: &Mode,
) -> Result<Built<S, C>> {
    set_up_with(entries, mode, SetUp::candidates(mode))
}

pub(super) fn set_up_with<S: squeue::EntryMarker + 'static, C: cqueue::EntryMarker + 'static>(
    entries: u32,
    mode: &Mode,
    candidates: &[SetUp],
) -> Result<Built<S, C>> {
    let shared = match mode.submission_thread {
        Some(thread) if thread.shared => Some(SharedThread::get(thread)?),
        _ => None,
    };
    let asked = Asked {
        polling: mode.polling,
        thread: mode.submission_thread,
        attach: shared.as_ref().map(|shared| shared.raw_fd()),
    };
    match first(entries, &asked, candidates) {
        Ok((ring, set_up)) => Ok(Built { ring, words: words(&asked, set_up), shared }),
        Err(cause) => Err(refused(cause, &asked, mode.task_run)),
    }
}

pub(super) fn set_up_thread(thread: SubmissionThread) -> Result<IoUring> {
    let asked = Asked { thread: Some(thread), ..Asked::PLAIN };
    match first(1, &asked, SetUp::BESIDE_THREAD) {
        Ok((ring, _)) => Ok(ring),
        Err(cause) => Err(refused(cause, &asked, TaskRun::Best)),
    }
}

fn words(asked: &Asked, set_up: SetUp) -> String {
    let mut words = Vec::new();
    match asked.polling {
        Polling::Interrupt => {}
        Polling::Poll => words.push("IOPOLL".to_owned()),
        Polling::Hybrid => words.push("IOPOLL, hybrid".to_owned()),
    }
    if let Some(thread) = asked.thread {
        let cpu = thread.cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
        let shared = if asked.attach.is_some() { ", shared" } else { "" };
        words.push(format!("SQPOLL idle {} ms{cpu}{shared}", thread.idle_ms));
    }
    if !set_up.words.is_empty() {
        words.push(set_up.words.to_owned());
    }
    words.join(", ")
}

/// Makes a ring with the first of `candidates` that the kernel accepts.
fn first<S: squeue::EntryMarker + 'static, C: cqueue::EntryMarker + 'static>(
    entries: u32,
    asked: &Asked,
    candidates: &[SetUp],
) -> io::Result<(IoUring<S, C>, SetUp)> {
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for &set_up in candidates {
        match build(entries, asked, set_up) {
            Ok(ring) => return Ok((ring, set_up)),
            Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) => refused = cause,
            Err(cause) => return Err(cause),
        }
    }
    Err(refused)
}

fn build<S: squeue::EntryMarker + 'static, C: cqueue::EntryMarker + 'static>(
    entries: u32,
    asked: &Asked,
    set_up: SetUp,
) -> io::Result<IoUring<S, C>> {
    if asked.polling == Polling::Hybrid {
        // The library does not know this flag, and accepts rings from outside only with one type of
        // entries.
        let ring: Box<dyn Any> = Box::new(build_by_hand(entries, asked, set_up)?);
        return match ring.downcast() {
            Ok(ring) => Ok(*ring),
            Err(_) => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        };
    }
    let mut builder = IoUring::<S, C>::builder();
    if asked.polling != Polling::Interrupt {
        builder.setup_iopoll();
    }
    if let Some(thread) = asked.thread {
        builder.setup_sqpoll(thread.idle_ms);
        if let Some(cpu) = thread.cpu {
            builder.setup_sqpoll_cpu(cpu.into());
        }
    }
    if let Some(fd) = asked.attach {
        builder.setup_attach_wq(fd);
    }
    match set_up.task_run {
        TaskRun::Defer => {
            // The kernel finishes completions when this thread asks for them, not in an interrupt.
            builder.setup_single_issuer().setup_defer_taskrun();
            builder.setup_taskrun_flag().setup_submit_all();
        }
        TaskRun::Coop => {
            builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
        }
        TaskRun::Best | TaskRun::Interrupt => {}
    }
    if set_up.no_array {
        builder.setup_no_sqarray();
    }
    // A forked child must not touch the queues.
    builder.dontfork().build(entries)
}

/// Sets up a ring without the library, for flags that the library does not know. A forked child
/// shares its queues.
fn build_by_hand(entries: u32, asked: &Asked, set_up: SetUp) -> io::Result<IoUring> {
    let mut flags = match asked.polling {
        Polling::Interrupt => 0,
        Polling::Poll => SETUP_IOPOLL,
        Polling::Hybrid => SETUP_IOPOLL | SETUP_HYBRID_IOPOLL,
    };
    let mut raw = RawParameters::default();
    if let Some(thread) = asked.thread {
        flags |= SETUP_SQPOLL;
        raw.sq_thread_idle = thread.idle_ms;
        if let Some(cpu) = thread.cpu {
            flags |= SETUP_SQ_AFF;
            raw.sq_thread_cpu = cpu.into();
        }
    }
    if let Some(fd) = asked.attach {
        flags |= SETUP_ATTACH_WQ;
        raw.wq_fd = fd as u32;
    }
    flags |= match set_up.task_run {
        TaskRun::Defer => {
            SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN | SETUP_TASKRUN_FLAG | SETUP_SUBMIT_ALL
        }
        TaskRun::Coop => SETUP_COOP_TASKRUN | SETUP_TASKRUN_FLAG | SETUP_SUBMIT_ALL,
        TaskRun::Best | TaskRun::Interrupt => 0,
    };
    if set_up.no_array {
        flags |= SETUP_NO_SQARRAY;
    }
    raw.flags = flags;
    // SAFETY: the structure has the kernel's layout and outlives the call, which fills it.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &raw mut raw) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: both have the same size and layout: the library's type wraps the kernel's structure.
    let parameters = unsafe { std::mem::transmute::<RawParameters, Parameters>(raw) };
    // SAFETY: the descriptor is a ring that nothing else owns, and the kernel filled in the
    // parameters for it.
    unsafe { IoUring::from_fd(fd, parameters) }
}

/// Finds out why the kernel refuses the ring, by leaving out the properties one after the other.
fn refused(cause: io::Error, asked: &Asked, task_run: TaskRun) -> Error {
    let works = |asked: &Asked| {
        let set_ups = if asked.thread.is_some() { SetUp::BESIDE_THREAD } else { SetUp::ALL };
        first::<squeue::Entry, cqueue::Entry>(1, asked, set_ups).is_ok()
    };
    if !works(&Asked::PLAIN) {
        return unavailable(cause);
    }
    if let Some(thread) = asked.thread {
        let anywhere = Asked { thread: Some(SubmissionThread { cpu: None, ..thread }), ..*asked };
        if let Some(cpu) = thread.cpu
            && works(&anywhere)
        {
            return no_such_cpu(cause, cpu);
        }
        if asked.attach.is_some() && works(&Asked { attach: None, ..*asked }) {
            let what = "the kernel lets rings of this process share no submission thread";
            return Error::new(ErrorKind::Unsupported, what)
                .caused_by(cause)
                .hint("leave shared=on out: each channel then has a thread of its own");
        }
        let only_thread = Asked { thread: anywhere.thread, ..Asked::PLAIN };
        if !works(&only_thread) {
            return no_thread(cause);
        }
    }
    if asked.polling == Polling::Hybrid && works(&Asked { polling: Polling::Poll, ..*asked }) {
        let what = "hybrid polling (IORING_SETUP_HYBRID_IOPOLL) is not available";
        return Error::new(ErrorKind::Unsupported, what)
            .caused_by(cause)
            .hint("Linux 6.13 or later has it, not for io_uring_cmd; leave hybrid out");
    }
    if cause.raw_os_error() == Some(libc::EINVAL) && task_run != TaskRun::Best {
        let (name, since) = match task_run {
            TaskRun::Defer => ("defer", "6.1"),
            _ => ("coop", "5.19"),
        };
        return Error::new(ErrorKind::Unsupported, format!("this kernel has no task_run={name}"))
            .caused_by(cause)
            .hint(format!("Linux {since} or later has it; task_run=best takes what there is"));
    }
    unavailable(cause)
}

fn no_such_cpu(cause: io::Error, cpu: u16) -> Error {
    let read = |path: &str| {
        std::fs::read_to_string(path).map_or("unknown".to_owned(), |text| text.trim().to_owned())
    };
    let online = read("/sys/devices/system/cpu/online");
    let what = format!("no submission thread can stay on processor {cpu}");
    Error::new(ErrorKind::Invalid, what).caused_by(cause).hint(format!(
        "processors online are {online}, and a container's cpuset may allow fewer (cpuset.cpus.effective); choose cpu= among them"
    ))
}

fn no_thread(cause: io::Error) -> Error {
    match cause.raw_os_error() {
        Some(libc::EPERM) => {
            let what = "this kernel gives submission threads (SQPOLL) to privileged users only";
            Error::new(ErrorKind::Denied, what)
                .caused_by(cause)
                .hint("Linux 5.13 or later gives them to all; before, CAP_SYS_NICE is needed; or leave +k out")
        }
        Some(libc::EAGAIN | libc::ENOMEM) => Error::new(
            ErrorKind::Limit,
            "the process may not start another submission thread (SQPOLL)",
        )
        .caused_by(cause)
        .hint("raise ulimit -u, or share one thread: io_uring+k:shared=on"),
        _ => Error::os(cause, "starting a submission thread (SQPOLL)").hint("leave +k out"),
    }
}

pub(super) fn unavailable(cause: io::Error) -> Error {
    let errno = cause.raw_os_error();
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let disabled = matches!(setting.as_deref().map(str::trim), Ok("1" | "2"));
    match errno {
        Some(libc::EPERM) if disabled => {
            Error::new(ErrorKind::Denied, "io_uring is switched off on this machine")
                .caused_by(cause)
                .hint("sysctl kernel.io_uring_disabled=0 switches it on; libaio does without")
        }
        Some(libc::EPERM | libc::EACCES) => {
            Error::new(ErrorKind::Denied, "io_uring is forbidden to this process")
                .caused_by(cause)
                .hint("a container's seccomp profile does that: allow io_uring_setup, io_uring_enter and io_uring_register there, or use libaio")
        }
        Some(libc::ENOSYS) => Error::new(ErrorKind::Unsupported, "this kernel offers no io_uring")
            .caused_by(cause)
            .hint("it is not built in, or a container hides it; use libaio"),
        Some(libc::ENOMEM) => Error::new(ErrorKind::Limit, "the process may lock no more memory for an io_uring")
            .caused_by(cause)
            .hint(format!("{}, or use libaio", crate::limits::raise_memlock())),
        Some(libc::EMFILE | libc::ENFILE) => {
            Error::os(cause, "the process has no descriptor left for an io_uring").hint("raise ulimit -n")
        }
        _ => Error::os(cause, "setting up an io_uring"),
    }
}
