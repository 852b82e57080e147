//! Continuous backups of an open store at the request of other processes: `qpair backup --follow`.
//!
//! The process that has the store open makes the backup, with its own rights and its own access to
//! the place, until the client asks it to end or has gone. Lines of text, over the socket of
//! [`crate::ask`]:
//!
//! ```text
//! follow EVERY_MS KEEP_MS KEEP_ALL_MS URL     to the store
//! shipped TIMESTAMP TIME_MS RESTORABLE REQUESTS SENT_BYTES STORED_BYTES BREAKS
//!                                             back, some times a second
//! repeated MESSAGE                            back: the place does not answer, and is asked again
//! done                                        back, once all commits are shipped, after the client
//!                                             has closed its side and there is a point to restore
//!                                             to; or
//! failed KIND MESSAGE
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::Path;

use qpair_backup::{BackupOptions, BackupStatus, Follower, open_place};
use qpair_engine::{Error, ErrorKind, Result, WeakStore};

use crate::ask::{TELL_EVERY, ask_path, failed_there, gone, numbers};

/// The state of a continuous backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Following {
    /// The newest commit that a restore would have; 0 before the first full part.
    pub shipped: u64,
    /// The time of that point, in milliseconds since 1970.
    pub time_ms: u64,
    /// Whether there is a point to restore to.
    pub is_restorable: bool,
    /// Requests sent so far.
    pub requests: u64,
    /// Bytes sent so far.
    pub sent_bytes: u64,
    /// Bytes of all parts that lie there.
    pub stored_bytes: u64,
    /// How often the backup began anew.
    pub breaks: u64,
    /// The failure of the last attempt, which is repeated.
    pub failure: Option<String>,
}

/// Answers a request, to its end; returns the last line.
pub(crate) fn follow(stream: &UnixStream, store: &WeakStore, request: &str) -> Result<String> {
    let (url, options) = parse_request(request)?;
    let open = store.upgrade().ok_or_else(Error::closed)?;
    let follower = Follower::begin(&open, open_place(url)?, options)?;
    drop(open);
    let failed = |error: io::Error| Error::new(ErrorKind::Io, format!("telling of it: {error}"));
    stream.set_read_timeout(Some(TELL_EVERY)).map_err(failed)?;
    let now = || Following::of(&follower.status(), follower.failure().as_ref());
    loop {
        let mut stream = stream;
        let told = stream.write_all(report(&now()).as_bytes());
        if told.is_err() || matches!(stream.read(&mut [0]), Ok(0)) {
            if !now().is_restorable {
                return Err(follower.abandon());
            }
            // With the last commits.
            let status = follower.stop()?;
            return Ok(format!("{}done\n", report(&Following::of(&status, None))));
        }
        if let Some(ended) = follower.ended() {
            return Err(ended);
        }
    }
}

impl Following {
    /// Returns the state of a backup that this process makes.
    #[must_use]
    pub fn of(status: &BackupStatus, failure: Option<&Error>) -> Self {
        Self {
            shipped: status.shipped,
            time_ms: status.shipped_ms,
            is_restorable: status.is_restorable,
            requests: status.costs.requests(),
            sent_bytes: status.costs.sent_bytes,
            stored_bytes: status.stored_bytes,
            breaks: status.breaks,
            failure: failure.map(Error::to_string),
        }
    }
}

fn report(now: &Following) -> String {
    let mut lines = format!(
        "shipped {} {} {} {} {} {} {}\n",
        now.shipped,
        now.time_ms,
        u8::from(now.is_restorable),
        now.requests,
        now.sent_bytes,
        now.stored_bytes,
        now.breaks,
    );
    if let Some(failure) = &now.failure {
        lines += &format!("repeated {}\n", failure.replace('\n', " "));
    }
    lines
}

/// Parses the place and the options.
fn parse_request(request: &str) -> Result<(&str, BackupOptions)> {
    let wrong = || Error::new(ErrorKind::Invalid, "the request cannot be decoded");
    let words: Vec<&str> = request.strip_suffix('\n').ok_or_else(wrong)?.splitn(4, ' ').collect();
    let [every, keep, keep_all, url] = words[..] else { return Err(wrong()) };
    let number = |text: &str| text.parse().map_err(|_| wrong());
    let mut options = BackupOptions::default();
    options.every_ms = number(every)?;
    options.keep_ms = number(keep)?;
    options.keep_all_ms = number(keep_all)?;
    Ok((url, options))
}

/// Returns the URL with an absolute path, which means the same in another process.
fn absolute(url: &str) -> Result<String> {
    let failed =
        |error: io::Error| Error::new(ErrorKind::Io, format!("finding the folder {url}: {error}"));
    let url = match url.contains("://") {
        true => url.to_owned(),
        false => format!("file://{}", std::path::absolute(url).map_err(failed)?.display()),
    };
    match url.contains('\n') {
        true => Err(Error::new(ErrorKind::Invalid, "the name of the place has a line break")),
        false => Ok(url),
    }
}

/// Asks the process that publishes its open store at `published` to back it up to a place until
/// `progress` breaks it off; all commits are shipped then. Returns `None` if no process publishes
/// there. Of the options the times count.
///
/// # Errors
/// The errors that end a [`Follower`](qpair_backup::Follower) in the other process; `Unsupported`
/// if that process cannot make such backups; `Closed` if it closes the store or does not answer.
pub fn ask_to_follow(
    published: &Path,
    url: &str,
    options: &BackupOptions,
    progress: &dyn Fn(&Following) -> ControlFlow<()>,
) -> Result<Option<Following>> {
    let Ok(mut stream) = UnixStream::connect(ask_path(published)) else { return Ok(None) };
    let asking = |error: io::Error| {
        Error::new(ErrorKind::Io, format!("asking the process that has the store open: {error}"))
    };
    let BackupOptions { every_ms, keep_ms, keep_all_ms, .. } = options;
    let request = format!("follow {every_ms} {keep_ms} {keep_all_ms} {}\n", absolute(url)?);
    stream.write_all(request.as_bytes()).map_err(asking)?;
    stream.set_read_timeout(Some(TELL_EVERY)).map_err(asking)?;
    let mut lines = BufReader::new(stream.try_clone().map_err(asking)?);
    let (mut line, mut known, mut is_ending) = (String::new(), Following::default(), false);
    loop {
        line.clear();
        loop {
            let read = lines.read_line(&mut line);
            if !is_ending && progress(&known).is_break() {
                is_ending = true;
                stream.shutdown(Shutdown::Write).map_err(asking)?;
            }
            match read {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(asking(error)),
            }
        }
        let Some(line) = line.strip_suffix('\n') else { return Err(gone()) };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "shipped" => {
                let [shipped, time_ms, restorable, requests, sent_bytes, stored_bytes, breaks] =
                    numbers(rest)[..]
                else {
                    return Err(gone());
                };
                let (is_restorable, failure) = (restorable != 0, None);
                known = Following {
                    shipped,
                    time_ms,
                    is_restorable,
                    requests,
                    sent_bytes,
                    stored_bytes,
                    breaks,
                    failure,
                };
            }
            "repeated" => known.failure = Some(rest.to_owned()),
            "done" => return Ok(Some(known)),
            "failed" => return Err(failed_there(rest)),
            _ => return Err(gone()),
        }
    }
}
