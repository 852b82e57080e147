//! Mounted file systems: `/proc/self/mountinfo`.

use std::path::Path;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use qpair_sysfs::Root;

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Mount {
    pub point: String,
    /// The type of the file system: `ext4`.
    pub file_system: String,
    /// Options of the mount and of the file system, each once.
    pub options: Vec<String>,
    /// The source of the mount: the path of the device, if it has one.
    pub source: String,
    /// The mounted directory of the file system; `/` except for bind mounts.
    pub(crate) root: String,
    /// The major and minor number of the device.
    pub(crate) number: (u32, u32),
}

impl Mount {
    /// Returns all mounts that this process sees, in the order of mounting.
    pub(crate) fn all(root: &Root) -> Vec<Self> {
        let text = root.text("/proc/self/mountinfo").unwrap_or_default();
        text.lines().filter_map(Self::parse).collect()
    }

    /// Returns the mount of `path`, which must be absolute and without links.
    pub(crate) fn of_path<'a>(mounts: &'a [Self], path: &Path) -> Option<&'a Self> {
        // The last of several mounts on the same point hides the others.
        mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.point))
            .max_by_key(|mount| mount.point.len())
    }

    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(2);
        let number = parse_number(fields.next()?)?;
        let (root, point, flags) = (fields.next()?, fields.next()?, fields.next()?);
        let mut fields = after.split(' ');
        let (file_system, source, more) = (fields.next()?, fields.next()?, fields.next()?);
        let mut options: Vec<String> = Vec::new();
        for option in flags.split(',').chain(more.split(',')) {
            if !options.iter().any(|known| known == option) {
                options.push(option.to_owned());
            }
        }
        Some(Self {
            point: unescape(point),
            file_system: file_system.to_owned(),
            options,
            source: unescape(source),
            root: unescape(root),
            number,
        })
    }
}

/// Parses a device number such as "254:0".
pub(crate) fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Decodes escapes in names, such as `\040` for a blank.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) if byte == b'\\' => {
                out.push(escaped);
                rest = &tail[3..];
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_line() {
        let line =
            r"36 35 98:0 /mnt1 /mnt\040two rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.point, "/mnt two");
        assert_eq!((mount.file_system.as_str(), mount.number), ("ext3", (98, 0)));
        assert_eq!(mount.options, ["rw", "noatime", "errors=continue"]);
        assert_eq!(Mount::parse("1 2 3"), None);
    }

    #[test]
    fn finds_the_nearest() {
        let mounts: Vec<Mount> = [
            "1 0 8:1 / / rw - ext4 /dev/sda1 rw",
            "2 1 8:2 / /data rw - xfs /dev/sda2 rw",
            "3 1 8:3 / /data rw - xfs /dev/sda3 rw",
        ]
        .iter()
        .filter_map(|line| Mount::parse(line))
        .collect();
        let source = |path| Mount::of_path(&mounts, Path::new(path)).unwrap().source.clone();
        assert_eq!(source("/data/x"), "/dev/sda3");
        assert_eq!(source("/database"), "/dev/sda1");
    }
}
