//! Settles dependencies between jobs: jobs that wait for others, jobs that end others, and errors
//! that do not end a job.

use qpair_block::{Error, ErrorKind, Result};
use rustix::io::Errno;

use super::reader::Reader;
use crate::job::{EndsWith, Tolerance};
use crate::options::section::Section;
use crate::options::value::Read;

/// Settles `exitall` and `exit_what`.
pub(super) fn ends(reader: &Reader<'_>) -> Result<Option<EndsWith>> {
    if !reader.is_set("exitall")? {
        return Ok(None);
    }
    Ok(Some(match reader.word("exit_what")? {
        Some("all") => EndsWith::All,
        Some("stonewall") => EndsWith::Stage,
        _ => EndsWith::Group,
    }))
}

pub(super) fn check_waits(sections: &[Section]) -> Result<()> {
    for (at, section) in sections.iter().enumerate() {
        let given = section.global.iter().chain(&section.own);
        let Some(given) = given.rev().find(|given| given.option.name == "wait_for") else {
            continue;
        };
        let name = given.value.as_deref().unwrap_or_default();
        if !sections[..at].iter().any(|before| before.name == name) {
            let what = format!(
                "{}job {}: wait_for={name} names a job that does not come before it",
                given.place, section.name
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
    }
    Ok(())
}

/// Settles `continue_on_error` and `ignore_error`.
pub(super) fn tolerance(reader: &Reader<'_>) -> Result<Tolerance> {
    // The errors that fio considers transient.
    let passing = || vec![Errno::IO.raw_os_error(), Errno::ILSEQ.raw_os_error()];
    let mut tolerance = Tolerance::default();
    let word = reader.word("continue_on_error")?.unwrap_or("none");
    if matches!(word, "read" | "io" | "all" | "1") {
        tolerance.read = passing();
    }
    if matches!(word, "write" | "io" | "all" | "1") {
        tolerance.write = passing();
    }
    tolerance.wrong_blocks = matches!(word, "verify" | "all" | "1");
    reader.flag("error_dump")?;
    if matches!(word, "none" | "0") {
        return Ok(tolerance);
    }
    let [read, write, verify] = reader.with("ignore_error", lists)?.unwrap_or_default();
    // As in fio, a list replaces the transient errors.
    for (errnos, list) in [(&mut tolerance.read, read), (&mut tolerance.write, write)] {
        if !list.is_empty() {
            *errnos = list;
        }
    }
    tolerance.wrong_blocks |= verify.contains(&Errno::ILSEQ.raw_os_error());
    Ok(tolerance)
}

/// Parses the errors of reads, writes and verification: `EIO:ENOSPC,122`.
fn lists(text: &str) -> Read<[Vec<i32>; 3]> {
    let mut lists = [const { Vec::new() }; 3];
    let mut parts = text.split(',');
    for list in &mut lists {
        let part = parts.next().unwrap_or_default();
        *list = part
            .split(':')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(errno)
            .collect::<Read<Vec<i32>>>()?;
    }
    match parts.next() {
        Some(_) => Err("has more than three lists: reads, writes, verification".to_owned()),
        None => Ok(lists),
    }
}

fn errno(name: &str) -> Read<i32> {
    const NAMES: [(&str, Errno); 14] = [
        ("EPERM", Errno::PERM),
        ("EIO", Errno::IO),
        ("EAGAIN", Errno::AGAIN),
        ("ENOMEM", Errno::NOMEM),
        ("EBUSY", Errno::BUSY),
        ("ENODEV", Errno::NODEV),
        ("EINVAL", Errno::INVAL),
        ("EFBIG", Errno::FBIG),
        ("ENOSPC", Errno::NOSPC),
        ("EROFS", Errno::ROFS),
        ("EILSEQ", Errno::ILSEQ),
        ("ETIMEDOUT", Errno::TIMEDOUT),
        ("EREMOTEIO", Errno::REMOTEIO),
        ("EDQUOT", Errno::DQUOT),
    ];
    if let Some((_, errno)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(errno.raw_os_error());
    }
    match name.parse::<i32>() {
        Ok(number @ 1..4096) => Ok(number),
        _ => Err(format!(
            "has \"{name}\", which is not the number or name of an error (ENOSPC, EIO)"
        )),
    }
}
