//! Reads fio's text logs, of versions 2 and 3.
//!
//! ```text
//! fio version 3 iolog                fio version 2 iolog
//! 27 data add                        data add
//! 186 data open                      data open
//! 190 data read 0 4096               data read 0 4096
//!                                    data wait 125 0
//! 125143 data write 4096 4096        data write 4096 4096
//! 125200 data sync 4096 0            data sync 4096 0
//! 125230 data close                  data close
//! ```
//!
//! Version 3 begins each line with a time in microseconds. Version 2 has waits instead. fio 3.33
//! takes their number as milliseconds since the beginning of the run, and so does this reader.

use std::path::Path;
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};

use super::{Action, Entry, Iolog};

pub(super) fn parse(text: &str, path: &Path) -> Result<Iolog> {
    let invalid = |line: usize, what: &str| {
        let what = format!("{}:{}: {what}", path.display(), line + 1);
        Error::new(ErrorKind::Invalid, what)
    };
    let mut lines = text.lines().enumerate();
    let head = lines.next().map(|(_, line)| line.trim()).unwrap_or_default();
    let has_times = match head {
        "fio version 3 iolog" => true,
        "fio version 2 iolog" => false,
        _ => {
            return Err(invalid(0, "this is not the first line of an I/O log")
                .hint("logs of versions 2 and 3 begin with \"fio version 3 iolog\""));
        }
    };
    let mut log = Iolog::default();
    let (mut first_us, mut last_us) = (None, 0_u64);
    for (number, line) in lines {
        let mut words = line.split_ascii_whitespace().peekable();
        if words.peek().is_none() {
            continue;
        }
        if has_times {
            let time = words.next().and_then(|word| word.parse::<u64>().ok());
            let time =
                time.ok_or_else(|| invalid(number, "the line does not begin with a time"))?;
            let since_us = time.saturating_sub(*first_us.get_or_insert(time));
            last_us = last_us.max(since_us);
        }
        let (Some(file), Some(word)) = (words.next(), words.next()) else {
            return Err(invalid(number, "the line has no file and action"));
        };
        let mut next = || words.next().map(str::parse::<u64>);
        let action = match word {
            "add" | "open" | "close" => {
                log.file(file);
                continue;
            }
            "wait" if !has_times => {
                let Some(Ok(until_ms)) = next() else {
                    return Err(invalid(number, "wait has no time"));
                };
                last_us = last_us.max(until_ms.saturating_mul(1000));
                continue;
            }
            "read" => Action::Read,
            "write" => Action::Write,
            "trim" => Action::Trim,
            "sync" | "datasync" => Action::Flush,
            other => {
                let what = format!("the action \"{other}\" is not known");
                return Err(invalid(number, &what).hint(
                    "the actions are add, open, close, read, write, trim, sync and datasync",
                ));
            }
        };
        let (offset, len) = match (action, next(), next()) {
            (Action::Flush, ..) => (0, 0),
            (_, Some(Ok(offset)), Some(Ok(len))) => (offset, len),
            _ => return Err(invalid(number, "the action has no offset and length")),
        };
        let len_bytes = u32::try_from(len).ok().filter(|len| *len <= 1 << 30);
        let Some(len_bytes) = len_bytes.filter(|_| offset.checked_add(len).is_some()) else {
            return Err(invalid(number, "the request is larger than 1 GiB, or its end overflows"));
        };
        if action != Action::Flush && len_bytes == 0 {
            return Err(invalid(number, "the request has no bytes"));
        }
        let (at, file) = (Duration::from_micros(last_us), log.file(file));
        log.entries.push(Entry { at, file, action, offset_bytes: offset, len_bytes });
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Iolog> {
        parse(text, Path::new("a.log"))
    }

    #[test]
    fn both_versions_say_the_same() {
        let three = "fio version 3 iolog\n27 data add\n100 data open\n127 data read 0 4096\n\
                     125027 other write 8192 512\n125027 data sync 0 0\n2125027 data trim 0 4096\n\
                     2126000 data close\n";
        let two = "fio version 2 iolog\ndata add\ndata open\ndata read 0 4096\ndata wait 125 0\n\
                   other write 8192 512\ndata datasync 0 0\ndata wait 2125\ndata trim 0 4096\n\
                   data close\n";
        let (three, two) = (read(three).unwrap(), read(two).unwrap());
        assert_eq!(three.files, ["data", "other"]);
        let times = |log: &Iolog| {
            log.entries.iter().map(|entry| entry.at.as_micros() as u64).collect::<Vec<_>>()
        };
        assert_eq!(times(&three), [100, 125_000, 125_000, 2_125_000]);
        assert_eq!(times(&two), [0, 125_000, 125_000, 2_125_000]);
        let what = |log: &Iolog| {
            let what = |e: &Entry| (e.action, e.file, e.offset_bytes, e.len_bytes);
            log.entries.iter().map(what).collect::<Vec<_>>()
        };
        assert_eq!(what(&three), what(&two));
        assert_eq!(what(&three)[1], (Action::Write, 1, 8192, 512));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, wanted) in [
            ("", "a.log:1: this is not the first line"),
            ("fio version 1 iolog\n", "a.log:1:"),
            ("fio version 3 iolog\nx data add\n", "a.log:2: the line does not begin with a time"),
            ("fio version 3 iolog\n\n1 data\n", "a.log:3: the line has no file and action"),
            ("fio version 3 iolog\n1 data wait 4 0\n", "a.log:2: the action \"wait\""),
            ("fio version 2 iolog\ndata jump 4 0\n", "a.log:2: the action \"jump\""),
            ("fio version 2 iolog\ndata read 4\n", "a.log:2: the action has no offset"),
            ("fio version 2 iolog\ndata read 4 0\n", "a.log:2: the request has no bytes"),
            ("fio version 2 iolog\ndata read 0 99999999999\n", "a.log:2: the request is larger"),
            ("fio version 2 iolog\ndata read 18446744073709551615 8\n", "a.log:2: the request"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text:?}: {error}");
        }
    }
}
