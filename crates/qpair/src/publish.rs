//! Publishes the statistics and the open transactions of a store to other processes, for `qpair
//! top`. A second socket beside this one takes requests for backups ([`crate::ask`]).
//!
//! A client that connects gets one line of JSON and nothing else. The client cannot change
//! anything, and blocks only the thread that serves it. The sockets are removed when the store is
//! closed, before the close returns; the serving thread ends soon after.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use qpair_engine::{Error, ErrorKind, Observer, Result, Store};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ask::{Answers, ask_path};
use crate::json::snapshot;

/// The interval at which the thread checks whether the store was closed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The time that a reader may take to read a line.
const READER_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the path of the socket that [`crate::Options::publish_beside`] uses for a store whose
/// first member is this file or device. For a file, the socket is beside it; for a device in /dev,
/// it is in the user's runtime directory, or in the folder for temporary files if there is none.
#[must_use]
pub fn publish_path(member: &Path) -> PathBuf {
    let mut name = member.as_os_str().to_owned();
    if let Ok(device) = member.strip_prefix("/dev") {
        let directory =
            std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        name = directory.join("qpair-").into_os_string();
        name.push(device.to_string_lossy().replace('/', "-"));
    }
    name.push(".top");
    name.into()
}

/// Publishes an open store at a socket of this path, for the owner of the process, until it is
/// closed.
///
/// # Errors
/// `Exists` if there is a file that is not a socket; `Busy` if another process publishes there; the
/// system's error.
pub(crate) fn publish(store: &Store, path: &Path) -> Result<()> {
    let ask_path = ask_path(path);
    for path in [path, &ask_path] {
        make_way(path)?;
    }
    let failed = |error: io::Error| {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        Error::new(kind, format!("publishing the store at {}: {error}", path.display()))
    };
    let listen = |path: &Path| -> io::Result<UnixListener> {
        let listener = UnixListener::bind(path)?;
        store.keep_until_closed(Socket(path.to_owned()));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    let publisher = Publisher {
        listener: listen(path).map_err(failed)?,
        asked: listen(&ask_path).map_err(failed)?,
        answers: Answers::new(store.downgrade()),
        name: store.device_info().name,
        observer: store.observer(),
        seen: BTreeMap::new(),
        begun: Instant::now(),
    };
    std::thread::Builder::new()
        .name("qpair-publish".to_owned())
        .spawn(move || publisher.run())
        .map_err(failed)?;
    Ok(())
}

/// Removes the socket of a process that was killed.
fn make_way(path: &Path) -> Result<()> {
    let Ok(there) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !there.file_type().is_socket() {
        return Err(Error::with_hint(
            ErrorKind::Exists,
            format!("{} exists and is not a socket", path.display()),
            "publish the store at another path",
        ));
    }
    if UnixStream::connect(path).is_ok() {
        let what = format!("another store is published at {}", path.display());
        return Err(Error::with_hint(ErrorKind::Busy, what, "publish the store at another path"));
    }
    // If that fails, so does the next step, which reports the reason.
    let _ = std::fs::remove_file(path);
    Ok(())
}

/// The path of a socket, which is removed on drop.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Publisher {
    listener: UnixListener,
    asked: UnixListener,
    answers: Answers,
    name: String,
    observer: Observer,
    /// The times at which open transactions were first seen.
    seen: BTreeMap<u64, Instant>,
    begun: Instant,
}

impl Publisher {
    fn run(mut self) {
        while self.observer.is_open() {
            let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
            let mut fds =
                [&self.listener, &self.asked].map(|listener| PollFd::new(listener, PollFlags::IN));
            // Whether the wait fails or not, accepting shows if there is a client.
            let _ = poll(&mut fds, Some(&timeout));
            self.look();
            if let Ok((stream, _)) = self.listener.accept() {
                // If a reader disconnects, only its own line is lost.
                let _ = self.tell(stream);
            }
            if let Ok((stream, _)) = self.asked.accept() {
                self.answers.begin(stream);
            }
        }
    }

    /// Notes the times at which new transactions are first seen.
    fn look(&mut self) {
        let Ok(open) = self.observer.transactions() else { return };
        let now = Instant::now();
        let known = std::mem::take(&mut self.seen);
        let since = |id: u64| known.get(&id).copied().unwrap_or(now);
        self.seen = open.iter().map(|info| (info.id, since(info.id))).collect();
    }

    fn tell(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(READER_TIMEOUT))?;
        let (Ok(metrics), Ok(open)) = (self.observer.metrics(), self.observer.transactions())
        else {
            return Ok(());
        };
        let ages: BTreeMap<u64, f64> =
            self.seen.iter().map(|(id, since)| (*id, since.elapsed().as_secs_f64())).collect();
        let uptime_s = self.begun.elapsed().as_secs_f64();
        let auto = qpair_kernel::adaptations();
        let line = snapshot(&self.name, uptime_s, &metrics, &open, &ages, &auto);
        stream.write_all(line.as_bytes())
    }
}
