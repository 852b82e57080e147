//! Settles the mode from `ioengine` and its switches, or from `interface`.

use qpair_block::{Error, ErrorKind, Result};
use qpair_kernel::{Interface, Mode, Polling, SubmissionThread};

use super::reader::Reader;
use crate::options::name::nearest;
use crate::options::section::Given;

pub(super) struct Way {
    pub(super) mode: Mode,
    /// The number of blocks of a vectored request; 0: each request is one block and not vectored.
    pub(super) blocks: u16,
    /// The interface's name, as the user gave it.
    pub(super) name: String,
    /// Whether there is no file, and requests are answered at once.
    pub(super) is_null: bool,
    pub(super) is_synchronous: bool,
}

impl Way {
    /// Linux asynchronous I/O has no command for trims. As in fio, each trim is a separate call.
    pub(super) fn trims_by_calls(&mut self, reader: &Reader<'_>) {
        if self.mode.interface == Interface::Libaio {
            reader.note("libaio has no trims: each is a call of its own (fallocate), as in fio");
            self.mode = Mode::new(Interface::Posix);
            (self.mode.threads, self.is_synchronous) = (0, true);
        }
    }

    /// Rejects an interface without trims for a job that also writes, because its writes would have
    /// to change their interface too.
    pub(super) fn check_trims(&self, reader: &Reader<'_>) -> Result<()> {
        if self.mode.interface != Interface::Libaio {
            return Ok(());
        }
        let what = "libaio has no trims, and the job has trims among other requests";
        let error = reader.contradiction("ioengine", what);
        Err(error
            .hint("choose ioengine=io_uring, posix or psync; replay_skip=trim leaves trims out"))
    }
}

/// The engines of fio that are not supported.
const OTHERS: &[&str] = &[
    "vsync",
    "posixaio",
    "solarisaio",
    "windowsaio",
    "mmap",
    "splice",
    "sg",
    "libzbc",
    "net",
    "netsplice",
    "cpuio",
    "rdma",
    "falloc",
    "ftruncate",
    "e4defrag",
    "rados",
    "rbd",
    "http",
    "gfapi",
    "gfapi_async",
    "libhdfs",
    "mtd",
    "filecreate",
    "filestat",
    "filedelete",
    "dircreate",
    "dirstat",
    "dirdelete",
    "libpmem",
    "pmemblk",
    "ime_psync",
    "ime_psyncv",
    "ime_aio",
    "libiscsi",
    "nbd",
    "libcufile",
    "dfs",
    "nfs",
    "exec",
    "xnvme",
    "libblkio",
    "dev-dax",
    "external",
    "cpp_null",
    "librpma_apm_server",
    "librpma_apm_client",
    "librpma_gpspm_server",
    "librpma_gpspm_client",
    "guasi",
    "binject",
];

const KNOWN: &[&str] =
    &["sync", "psync", "pvsync", "pvsync2", "libaio", "io_uring", "io_uring_cmd", "null", "posix"];

pub(super) fn way(reader: &Reader<'_>) -> Result<Way> {
    let given = reader.last(&["ioengine", "interface"]);
    let mut way = match given {
        Some(given) if given.option.name == "interface" => switched(reader, given)?,
        _ => engine(reader, given)?,
    };
    if let Some(blocks) = reader.number("vsize", 1, 1024)? {
        way.mode.segments = blocks as u16;
        way.blocks = blocks as u16;
    }
    way.mode.check().map_err(|error| {
        let (error, hint) = error.take_way_out();
        let error = reader.contradiction(given.map_or("vsize", |given| given.option.name), error);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    })?;
    Ok(way)
}

/// Parses `interface=MODE`.
fn switched(reader: &Reader<'_>, given: &Given) -> Result<Way> {
    let text = given.value.as_deref().unwrap_or_default();
    let mode: Mode = text.parse().map_err(|error: Error| {
        let (error, hint) = error.take_way_out();
        let wrong = reader.contradiction("interface", format!("interface={text}: {error}"));
        match hint {
            Some(hint) => wrong.hint(hint),
            None => wrong,
        }
    })?;
    let is_synchronous = mode.interface == Interface::Posix && mode.threads == 0;
    Ok(Way { mode, blocks: 0, name: mode.short_name(), is_null: false, is_synchronous })
}

/// Parses `ioengine=NAME`, and the switches of that engine.
fn engine(reader: &Reader<'_>, given: Option<&Given>) -> Result<Way> {
    let name = given.and_then(|given| given.value.as_deref()).unwrap_or("psync");
    let synchronous = |segments| {
        let mut mode = Mode::new(Interface::Posix);
        (mode.threads, mode.segments) = (0, segments);
        mode
    };
    let mode = match name {
        "psync" => synchronous(0),
        "sync" => {
            reader.note("ioengine=sync makes the calls of psync: pread and pwrite, without lseek");
            synchronous(0)
        }
        "pvsync" | "pvsync2" => {
            if reader
                .section
                .own
                .iter()
                .chain(&reader.section.global)
                .any(|given| given.option.name == "hipri")
            {
                return Err(reader.contradiction("hipri", format!("hipri is not supported with ioengine={name}"))
                    .hint("the kernel has not polled for preadv2 since Linux 5.16; ioengine=io_uring with hipri polls"));
            }
            synchronous(1)
        }
        "libaio" => {
            let mut mode = Mode::new(Interface::Libaio);
            mode.mapped_ring = reader.flag("userspace_reap")?.unwrap_or(true);
            mode
        }
        "io_uring" | "io_uring_cmd" => rings(reader, name)?,
        // The threads of `posix` ignore the mode's other switches.
        "posix" => Mode::new(Interface::Posix),
        "null" => Mode::default(),
        _ => return Err(unknown(reader, name)),
    };
    let is_synchronous = mode.interface == Interface::Posix && mode.threads == 0;
    Ok(Way { mode, blocks: 0, name: name.to_owned(), is_null: name == "null", is_synchronous })
}

/// Parses the switches of `io_uring` and `io_uring_cmd`, with fio's defaults.
fn rings(reader: &Reader<'_>, name: &str) -> Result<Mode> {
    let is_command = name == "io_uring_cmd";
    let mut mode = Mode::new(if is_command { Interface::Passthrough } else { Interface::IoUring });
    mode.registered_buffers = reader.is_set("fixedbufs")?;
    mode.registered_file = reader.is_set("registerfiles")?;
    if reader.is_set("hipri")? {
        mode.polling = Polling::Poll;
    }
    if reader.is_set("sqthread_poll")? {
        // As in fio, which registers the files by itself in this mode.
        mode.registered_file = true;
        let cpu = reader.number("sqthread_poll_cpu", 0, 4095)?.map(|cpu| cpu as u16);
        mode.submission_thread = Some(SubmissionThread { cpu, ..SubmissionThread::default() });
    }
    if is_command {
        reader.word("cmd_type")?;
        reader.allow(&["nonvectored"]);
    } else if reader.number("nonvectored", 0, 1)? == Some(0) {
        mode.segments = 1;
    }
    Ok(mode)
}

fn unknown(reader: &Reader<'_>, name: &str) -> Error {
    let place = reader.last(&["ioengine"]).map_or(&reader.section.place, |given| &given.place);
    let head = format!("{place}job {}: ioengine={name}", reader.section.name);
    if OTHERS.contains(&name) {
        let error =
            Error::new(ErrorKind::Invalid, format!("{head}: fio's engine {name} is not supported"));
        return match name {
            "posixaio" => {
                error.hint("--ioengine=posix works in the same way, by a pool of threads")
            }
            "vsync" => error.hint("pvsync makes one vectored call for each request"),
            _ => error.hint(format!("the engines are {}", KNOWN.join(", "))),
        };
    }
    let error = Error::new(ErrorKind::Invalid, format!("{head}: the engine is not known"));
    match nearest(name, KNOWN.iter().copied()) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(format!("the engines are {}", KNOWN.join(", "))),
    }
}
