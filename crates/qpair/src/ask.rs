//! Backups of an open store at the request of other processes: `qpair backup` of a store that is in
//! use. Requests for continuous backups are in `crate::shipping`.
//!
//! Only the owner of the process and root can connect. A backup is made with the rights of the
//! process that has the store open. One backup runs at a time, and it is stopped if the client that
//! asked for it disconnects.
//!
//! The socket is beside the one at which the store is published. Lines of text, in this order:
//!
//! ```text
//! backup new|force TARGET           to the store; TARGET is a device specifier with absolute paths
//! progress DONE ALL                 back, pages, some times a second
//! done TIMESTAMP PAGES PAGE_SIZE ID     back, at the end; or
//! failed KIND MESSAGE
//! ```

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qpair_block::DeviceSpec;
use qpair_engine::{BackupReport, Error, ErrorKind, Result, WeakStore};

use crate::options::Options;
#[cfg(feature = "continuous-backup")]
use crate::shipping::follow;

/// The maximum number of bytes of a line.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// The time that a client may take to send its request.
const ASKER_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval at which progress is reported. A client that receives no report also calls its
/// callback at this interval.
pub(crate) const TELL_EVERY: Duration = Duration::from_millis(200);

/// Returns the path of the socket that takes requests for backups of the store published at
/// `published`.
pub(crate) fn ask_path(published: &Path) -> PathBuf {
    let mut name = published.as_os_str().to_owned();
    name.push(".ask");
    name.into()
}

/// The kinds of errors that clients distinguish, by name.
const KINDS: [(ErrorKind, &str); 9] = [
    (ErrorKind::Exists, "exists"),
    (ErrorKind::Busy, "busy"),
    (ErrorKind::Denied, "denied"),
    (ErrorKind::Corrupt, "corrupt"),
    (ErrorKind::NoSpace, "no-space"),
    (ErrorKind::Closed, "closed"),
    (ErrorKind::Invalid, "invalid"),
    (ErrorKind::Interrupted, "interrupted"),
    (ErrorKind::Unsupported, "unsupported"),
];

/// The store's side: answers requests.
pub(crate) struct Answers {
    store: WeakStore,
    busy: Arc<AtomicBool>,
}

impl Answers {
    pub(crate) fn new(store: WeakStore) -> Self {
        Self { store, busy: Arc::default() }
    }

    /// Answers a client on a separate thread.
    pub(crate) fn begin(&self, stream: UnixStream) {
        let (store, busy) = (self.store.clone(), self.busy.clone());
        // Without a thread the connection is closed, and the client reports that the store has
        // gone.
        let _ = std::thread::Builder::new().name("qpair-backup".to_owned()).spawn(move || {
            let told = read_line(&stream).and_then(|line| {
                if let Some(request) = line.strip_prefix("follow ") {
                    return follow(&stream, &store, request);
                }
                let (target, force) = parse_request(&line)?;
                if busy.swap(true, Ordering::AcqRel) {
                    let what = "another backup of the store is running";
                    return Err(Error::with_hint(ErrorKind::Busy, what, "wait for its end"));
                }
                let told = back_up(&stream, &store, target, force);
                busy.store(false, Ordering::Release);
                let BackupReport { timestamp, pages, page_size, id } = told?;
                Ok(format!("done {timestamp} {pages} {page_size} {id}\n"))
            });
            let line = match told {
                Ok(line) => line,
                Err(error) => {
                    let known = KINDS.iter().find(|(kind, _)| *kind == error.kind());
                    let message = error.to_string().replace('\n', " ");
                    format!("failed {} {message}\n", known.map_or("other", |(_, name)| name))
                }
            };
            // A client that has gone needs no answer.
            let _ = (&stream).write_all(line.as_bytes());
        });
    }
}

#[cfg(not(feature = "continuous-backup"))]
fn follow(_: &UnixStream, _: &WeakStore, _: &str) -> Result<String> {
    Err(Error::with_hint(
        ErrorKind::Unsupported,
        "the process that has the store open was built without continuous backups",
        "build it with the feature continuous-backup of qpair",
    ))
}

fn read_line(stream: &UnixStream) -> Result<String> {
    let failed =
        |error: io::Error| Error::new(ErrorKind::Io, format!("reading a request: {error}"));
    stream.set_nonblocking(false).map_err(failed)?;
    stream.set_read_timeout(Some(ASKER_TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(ASKER_TIMEOUT)).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line).map_err(failed)?;
    Ok(line)
}

fn back_up(
    stream: &UnixStream,
    store: &WeakStore,
    target: PathBuf,
    force: bool,
) -> Result<BackupReport> {
    let store = store.upgrade().ok_or_else(|| Error::new(ErrorKind::Closed, "it is closed"))?;
    let told_at = Cell::new(None::<Instant>);
    Options::new(target).force(force).backup_of(&store, &|done, all| {
        if told_at.get().is_some_and(|at| at.elapsed() < TELL_EVERY) {
            return ControlFlow::Continue(());
        }
        told_at.set(Some(Instant::now()));
        let mut stream = stream;
        match stream.write_all(format!("progress {done} {all}\n").as_bytes()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })
}

/// Parses the target, and whether its content may be overwritten.
fn parse_request(line: &str) -> Result<(PathBuf, bool)> {
    let wrong = || Error::new(ErrorKind::Invalid, "the request cannot be decoded");
    let words = line.strip_suffix('\n').and_then(|line| line.strip_prefix("backup "));
    let (how, target) = words.and_then(|words| words.split_once(' ')).ok_or_else(wrong)?;
    let force = match how {
        "new" => false,
        "force" => true,
        _ => return Err(wrong()),
    };
    let spec: DeviceSpec =
        target.parse().map_err(|error| Error::block(error, "reading the target of a backup"))?;
    match is_of_files(&spec) && spec.paths().iter().all(|path| path.is_absolute()) {
        true => Ok((target.into(), force)),
        false => Err(wrong()),
    }
}

/// Whether a device consists only of files, block devices and stripes of these, which another
/// process can open as well.
fn is_of_files(spec: &DeviceSpec) -> bool {
    match spec {
        DeviceSpec::File(_) => true,
        DeviceSpec::Stripe { members, .. } => members.iter().all(is_of_files),
        _ => false,
    }
}

/// Returns the same device with absolute paths.
fn absolute(spec: DeviceSpec) -> io::Result<DeviceSpec> {
    Ok(match spec {
        DeviceSpec::File(path) => DeviceSpec::File(std::path::absolute(path)?),
        DeviceSpec::Stripe { unit_bytes, members } => DeviceSpec::Stripe {
            unit_bytes,
            members: members.into_iter().map(absolute).collect::<io::Result<_>>()?,
        },
        other => other,
    })
}

/// Asks the process that publishes its open store at `published` to make a backup. Returns `None`
/// if no process does. `progress` is called with the number of pages copied and of all pages, and
/// may stop the backup. While the process is silent, `progress` is called again with the last
/// numbers, which are 0 at first.
///
/// # Errors
/// The errors of [`Options::backup_of`] in the other process; `Invalid` if that process could not
/// open the target, which must consist of files, block devices and stripes of these; `Closed` if
/// that process closes the store or does not answer.
pub fn ask_for_backup(
    published: &Path,
    target: &Path,
    force: bool,
    progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
) -> Result<Option<BackupReport>> {
    let Ok(mut stream) = UnixStream::connect(ask_path(published)) else { return Ok(None) };
    let asking = |error: io::Error| {
        Error::new(ErrorKind::Io, format!("asking the process that has the store open: {error}"))
    };
    let invalid =
        |what: &str| Error::new(ErrorKind::Invalid, format!("{}: {what}", target.display()));
    let text = target.to_str().ok_or_else(|| invalid("its name is not UTF-8"))?;
    let spec: DeviceSpec =
        text.parse().map_err(|error| Error::block(error, "reading the target of a backup"))?;
    if !is_of_files(&spec) {
        return Err(invalid(
            "the process that has the store open makes the backup, onto files, block devices and stripes of these",
        ));
    }
    let spec = absolute(spec).map_err(asking)?.to_string();
    if spec.contains('\n') {
        return Err(invalid("its name has a line break"));
    }
    let how = if force { "force" } else { "new" };
    stream.write_all(format!("backup {how} {spec}\n").as_bytes()).map_err(asking)?;
    stream.set_read_timeout(Some(TELL_EVERY)).map_err(asking)?;
    let mut lines = BufReader::new(stream);
    let (mut line, mut known) = (String::new(), (0, 0));
    // The task that makes the backup notices that the client has gone.
    let broken_off = || Error::new(ErrorKind::Interrupted, "the backup was interrupted");
    loop {
        line.clear();
        while let Err(error) = lines.read_line(&mut line) {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(asking(error));
            }
            if progress(known.0, known.1).is_break() {
                return Err(broken_off());
            }
        }
        let Some(line) = line.strip_suffix('\n') else { break };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "progress" => {
                if let [done, all] = numbers(rest)[..] {
                    known = (done, all);
                    if progress(done, all).is_break() {
                        return Err(broken_off());
                    }
                }
            }
            "done" => {
                let (counts, id) = rest.rsplit_once(' ').unwrap_or_default();
                let [timestamp, pages, page_size] = numbers(counts)[..] else { break };
                let page_size = page_size as usize;
                return Ok(Some(BackupReport { timestamp, pages, page_size, id: id.to_owned() }));
            }
            "failed" => return Err(failed_there(rest)),
            _ => break,
        }
    }
    Err(gone())
}

/// Returns the error that the other process reported.
pub(crate) fn failed_there(report: &str) -> Error {
    let (name, message) = report.split_once(' ').unwrap_or((report, ""));
    let known = KINDS.iter().find(|(_, known)| *known == name);
    Error::new(known.map_or(ErrorKind::Io, |(kind, _)| *kind), message)
}

pub(crate) fn gone() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the process that has the store open closed it, or does not answer",
    )
}

pub(crate) fn numbers(text: &str) -> Vec<u64> {
    text.split(' ').filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_silent_answerer_is_asked_on() {
        let directory = tempfile::tempdir().unwrap();
        let published = directory.path().join("s.top");
        let listener = UnixListener::bind(ask_path(&published)).unwrap();
        let answerer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let silent = || std::thread::sleep(3 * TELL_EVERY);
            silent();
            stream.write_all(b"progress 1").unwrap();
            silent();
            stream.write_all(b"0 20\nfailed busy no\n").unwrap();
            // A client without an answer stops when its callback says so.
            let (stream, _) = listener.accept().unwrap();
            let _ = stream.take(LINE_BYTES_MAX).read_to_end(&mut Vec::new());
        });
        let told = Cell::new(Vec::new());
        let go_on = |done, all| {
            let mut all_told = told.take();
            all_told.push((done, all));
            told.set(all_told);
            ControlFlow::Continue(())
        };
        let error = ask_for_backup(&published, Path::new("/t"), false, &go_on).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        let told = told.take();
        assert!(told[0] == (0, 0) && told.last() == Some(&(10, 20)), "{told:?}");
        let give_up = |_, _| ControlFlow::Break(());
        let error = ask_for_backup(&published, Path::new("/t"), false, &give_up).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        answerer.join().unwrap();
    }

    #[test]
    fn requests_are_understood_or_refused() {
        let target = PathBuf::from("/a b/c");
        assert_eq!(parse_request("backup new /a b/c\n").unwrap(), (target, false));
        assert!(parse_request("backup force stripe:unit=64KiB:/a+/b\n").unwrap().1);
        for line in [
            "",
            "\n",
            "backup",
            "backup new /a",
            "backup old /a\n",
            "backup new a\n",
            "backup new ram:size=1GiB\n",
            "backup new stripe:/a+b\n",
            "restore new /a\n",
            "backup new \n",
        ] {
            assert_eq!(parse_request(line).unwrap_err().kind(), ErrorKind::Invalid, "{line:?}");
        }
    }
}
