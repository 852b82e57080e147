//! Mappings of files that another process may truncate.
//!
//! Touching a mapped page that its file no longer has ends a process by SIGBUS. The first mapping
//! of such a file therefore installs a handler that replaces the whole mapping by zeroed memory and
//! records the fact, so that the process continues. This is the only signal handler of these
//! libraries. Faults elsewhere, and signals that were sent, go to the handler that was there
//! before.
//!
//! Invariant: a range in [`RANGES`] is that of a mapping whose owner holds its [`Cover`], and so is
//! mapped. A change of an entry makes its `version` odd first and even last.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use libc::{c_int, c_void, siginfo_t};
use rustix::mm::{MapFlags, ProtFlags};

use crate::locks::Mutex;

/// The maximum number of mappings covered at a time in this process.
const RANGES_MAX: usize = 16384;

static RANGES: [Range; RANGES_MAX] = [const { Range::new() }; RANGES_MAX];
/// The number of entries that have been used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The entries that are free again.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// The number of times that a mapping was replaced.
static HITS: AtomicU64 = AtomicU64::new(0);
/// The handler that was installed before; `None` stands for the default action.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

struct Range {
    version: AtomicUsize,
    start: AtomicUsize,
    len: AtomicUsize,
    is_hit: AtomicBool,
}

impl Range {
    const fn new() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            is_hit: AtomicBool::new(false),
        }
    }

    /// Changes the entry. One thread at a time may call this: under the lock of `FREE`, or as the
    /// owner of the entry.
    fn set(&self, start: usize, len: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Pairs with the fence in `get`: a reader that sees one of the stores below also sees the
        // odd version.
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.is_hit.store(false, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Returns the range, unless it is being changed.
    fn get(&self) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let range = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let same = self.version.load(Ordering::Relaxed) == version;
        (same && version.is_multiple_of(2)).then_some(range)
    }
}

/// Returns how often a mapping was truncated in this process and replaced. As long as the number
/// stays the same, no [`Mapping::is_cut`](crate::Mapping::is_cut) has changed.
#[must_use]
pub fn mappings_cut() -> u64 {
    HITS.load(Ordering::Acquire)
}

/// Protects one mapping against truncation of its file. Must be dropped before the mapping is
/// unmapped.
#[derive(Debug)]
pub(crate) struct Cover {
    entry: usize,
}

impl Cover {
    /// Covers the mapping of `len` bytes that begins at `start`. Takes over SIGBUS for this
    /// process, unless that was done before.
    pub(crate) fn new(start: usize, len: usize) -> io::Result<Self> {
        install()?;
        let entry = {
            let mut free = FREE.lock();
            match free.pop() {
                Some(entry) => entry,
                None => {
                    let entry = USED.load(Ordering::Relaxed);
                    if entry == RANGES_MAX {
                        let context = format!("{RANGES_MAX} files of others are mapped already");
                        return Err(io::Error::new(io::ErrorKind::OutOfMemory, context));
                    }
                    USED.store(entry + 1, Ordering::Release);
                    entry
                }
            }
        };
        RANGES[entry].set(start, len);
        Ok(Self { entry })
    }

    /// Whether the file was truncated. The mapping is then private memory, and no write reaches the
    /// file.
    pub(crate) fn is_hit(&self) -> bool {
        RANGES[self.entry].is_hit.load(Ordering::Acquire)
    }
}

impl Drop for Cover {
    fn drop(&mut self) {
        RANGES[self.entry].set(0, 0);
        FREE.lock().push(self.entry);
    }
}

fn install() -> io::Result<()> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock();
    if *installed {
        return Ok(());
    }
    // SAFETY: plain data, for which all zeroes is a valid value.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_bus_error;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: as above.
    let mut previous: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // The previous handler must be known before ours can run. SAFETY: the call only queries;
    // `previous` is valid for writes.
    checked(unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) })?;
    let _ = PREVIOUS.set(previous);
    // SAFETY: `on_bus_error` has the signature that SA_SIGINFO requires, and does only what a
    // handler may do (point 7 of the crate).
    checked(unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) })?;
    *installed = true;
    Ok(())
}

fn checked(status: c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The handler. It touches statics that are atomics or set once, and makes two system calls at
/// most.
extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the signal's data.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // A signal that a process sent has no address.
    if code > 0 && replace(address) {
        return;
    }
    pass_on(signal, info, context);
}

/// Replaces the covered mapping that `address` lies in by zeroed memory. Returns whether there is
/// one.
fn replace(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire).min(RANGES_MAX);
    for range in &RANGES[..used] {
        let Some((start, len)) = range.get() else { continue };
        if address.wrapping_sub(start) >= len {
            continue;
        }
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: this replaces the whole of an existing mapping of ours. The faulting thread is
        // accessing that mapping, so the mapping is held (point 8 of the crate).
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::with_exposed_provenance_mut(start),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        if mapped.is_err() {
            return false;
        }
        range.is_hit.store(true, Ordering::Release);
        HITS.fetch_add(1, Ordering::Release);
        return true;
    }
    false
}

/// Passes the signal to the previous handler.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    type WithInfo = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
    type Plain = extern "C" fn(c_int);
    let previous = PREVIOUS.get();
    let handler = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: plain data; all zeroes is the default action. On return the fault recurs and ends
        // the process. A signal that was sent is raised again for the same reason.
        unsafe {
            let action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            libc::sigaction(signal, &raw const action, ptr::null_mut());
            if (*info).si_code <= 0 {
                libc::raise(signal);
            }
        }
    } else if previous.is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0) {
        // SAFETY: the kernel would have called the handler with these arguments; the flag says
        // which kind of function it is.
        unsafe { std::mem::transmute::<usize, WithInfo>(handler)(signal, info, context) };
    } else {
        // SAFETY: as above.
        unsafe { std::mem::transmute::<usize, Plain>(handler)(signal) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_are_used_again() {
        let (mapping, _file) = crate::Mapping::new_file(4096).unwrap();
        let (start, len) = mapping.region();
        for _ in 0..RANGES_MAX + 10 {
            let cover = Cover::new(start, len).unwrap();
            assert_eq!(RANGES[cover.entry].get(), Some((start, len)));
            assert!(!cover.is_hit());
        }
    }
}
