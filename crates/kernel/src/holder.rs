//! Finds the process that has a file locked, by /proc/locks.

use std::os::fd::AsFd;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    pub process_id: u32,
    /// The process name; `None` once the process has ended. The kernel releases a killed program's
    /// rings in the background, and they keep its files open for a while.
    pub name: Option<String>,
}

impl LockHolder {
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        Self::of_open(&std::fs::File::open(path).ok()?)
    }

    pub(crate) fn of_open(file: &impl AsFd) -> Option<Self> {
        let stat = rustix::fs::fstat(file).ok()?;
        let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        let place = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let process_id = holder_in(&locks, &place)?;
        Some(Self { process_id, name: name_of(process_id) })
    }
}

/// Returns the process in the first line of /proc/locks about a lock on the whole file `place`.
fn holder_in(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        // The words are: number, kind, ADVISORY, READ or WRITE, process, place, range. A process
        // after "->" waits for the lock.
        let mut words = line.split_whitespace().skip(1);
        (words.next() == Some("FLOCK")).then_some(())?;
        let process_id = words.nth(2)?;
        (words.next() == Some(place)).then_some(())?;
        process_id.parse().ok().filter(|id| *id > 0)
    })
}

fn name_of(process_id: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process_id}/stat")).ok()?;
    // The name is in brackets, and may contain some. The state follows it.
    let (name, rest) = (stat.split_once('(')?.1).rsplit_once(')')?;
    (!matches!(rest.trim_start().chars().next(), Some('Z' | 'X'))).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

    use super::*;

    #[test]
    fn who_has_a_file() {
        let path = std::env::temp_dir().join(format!("qpair-holder-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        assert_eq!(LockHolder::of(&path), None);
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let holder = LockHolder::of(&path).unwrap();
        assert_eq!(holder.process_id, std::process::id());
        assert!(holder.name.is_some());
        std::fs::remove_file(&path).unwrap();
        let told = "1: POSIX  ADVISORY  WRITE 12 fe:00:77 0 EOF\n2: -> FLOCK  ADVISORY  WRITE 13 fe:00:77 0 EOF\n\
                    3: FLOCK  ADVISORY  READ 0 fe:00:77 0 EOF\n4: FLOCK  ADVISORY  READ 14 fe:00:77 0 EOF\n";
        assert_eq!(holder_in(told, "fe:00:77"), Some(14));
        assert_eq!(holder_in(told, "fe:00:78"), None);
        // No process has this number.
        assert_eq!(name_of(u32::MAX), None);
    }
}
