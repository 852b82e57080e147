//! Advice of a study, kept for the next openings of a drive.
//!
//! ```text
//! DRIVE <tab> KERNEL <tab> CORES <tab> MODE <tab> REASON
//! vda:528482304 <tab> 6.18.44 <tab> 2 <tab> io_uring+k <tab> a study of 23 November 2026 measured 91,000 IOPS
//! ```
//!
//! A line counts for the same drive, kernel and number of cores only. The file is a user's own; a
//! line that is not understood is ignored, and at most [`READ_BYTES_MAX`] are read.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use qpair_block::{Error, ErrorKind, Result};

use super::way::Way;
use crate::file::{File, FileOptions};
use crate::mode::Mode;

const READ_BYTES_MAX: u64 = 256 << 10;

/// The circumstances under which advice holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The disk below, and its size in sectors: `vda:528482304`.
    drive: String,
    kernel: String,
    cores: usize,
}

impl Place {
    pub(super) fn of(file: &File) -> Option<Self> {
        let (major, minor) = file.drive();
        let node = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        // A partition is a folder of its disk.
        let disk = if node.join("partition").exists() { node.parent()? } else { &node };
        let sectors = fs::read_to_string(disk.join("size")).ok()?;
        let drive = format!("{}:{}", disk.file_name()?.to_str()?, sectors.trim());
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Some(Self { drive, kernel, cores })
    }

    fn is_in(&self, fields: &[&str]) -> bool {
        let cores = fields.get(2).and_then(|cores| cores.parse().ok());
        fields.first() == Some(&self.drive.as_str())
            && fields.get(1) == Some(&self.kernel.as_str())
            && cores == Some(self.cores)
    }

    /// Returns the way of the last line that counts here, with its reason.
    fn advice(&self, text: &str) -> Option<(Way, String)> {
        text.lines().rev().find_map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let mode: Mode = fields.get(3)?.parse().ok()?;
            let reason = fields.get(4)?.chars().filter(|c| !c.is_control()).take(200).collect();
            self.is_in(&fields).then_some((Way::of(&mode)?, reason))
        })
    }
}

/// Returns the file for advice: `QPAIR_ADVICE`, or `qpair/advice.tsv` in the user's folder for
/// state. Returns `None` for a user without one.
fn path() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = || {
        let home = || Some(PathBuf::from(from("HOME")?).join(".local/state"));
        Some(from("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?.join("qpair/advice.tsv"))
    };
    from("QPAIR_ADVICE").map(PathBuf::from).or_else(state)
}

fn read(path: &Path) -> String {
    let mut text = Vec::new();
    // Without the file there is no advice.
    let _ = fs::File::open(path).map(|file| file.take(READ_BYTES_MAX).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

pub(super) fn advice(file: &File) -> Option<(Way, String)> {
    let text = read(&path()?);
    if text.is_empty() { None } else { Place::of(file)?.advice(&text) }
}

/// Returns the place for which advice on a device counts.
fn place_of(device: &Path) -> Result<Place> {
    let options = FileOptions {
        read_only: true,
        exclusive_lock: false,
        direct: false,
        ..FileOptions::new(device)
    };
    Place::of(&File::open(&options)?).ok_or_else(|| {
        let what = format!("no drive is known below {}", device.display());
        Error::new(ErrorKind::Unsupported, what).hint("name a block device, or a file on one drive")
    })
}

/// Checks that advice can be kept for a device, for programs that measure before they keep it.
///
/// # Errors
/// Those of [`keep_advice`] for the device.
pub fn check_advice_device(device: &Path) -> Result<()> {
    place_of(device).map(drop)
}

/// Keeps advice for the drive below a file, and replaces earlier advice for it. From then on `auto`
/// begins with this mode there. Returns the file in which the advice is kept.
///
/// # Errors
/// `Invalid` for a mode that `auto` cannot take, or an error of the system.
pub fn keep_advice(device: &Path, mode: &Mode, reason: &str) -> Result<PathBuf> {
    let Some(way) = Way::of(mode) else {
        let what = format!("auto cannot begin with {mode}");
        return Err(Error::new(ErrorKind::Invalid, what).hint(
            "it begins with io_uring, io_uring+p, io_uring+k or libaio; name others by --interface",
        ));
    };
    let place = place_of(device)?;
    let path = path().ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "there is no folder for advice")
            .hint("set QPAIR_ADVICE to the path of a file")
    })?;
    let failed = |cause| Error::os(cause, format!("writing {}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let known = read(&path);
    let others = known.lines().filter(|line| !place.is_in(&line.split('\t').collect::<Vec<_>>()));
    let mut text: String = others.map(|line| format!("{line}\n")).collect();
    let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
    let Place { drive, kernel, cores } = place;
    text.push_str(&format!("{drive}\t{kernel}\t{cores}\t{way}\t{reason}\n"));
    // Others read the file at any time: they see the old one or the new one.
    let draft = path.with_extension("tsv.new");
    fs::File::create(&draft)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(failed)?;
    fs::rename(&draft, &path).map_err(failed)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_holds_in_its_place_only() {
        let place = |drive: &str, cores| Place {
            drive: drive.to_owned(),
            kernel: "6.18.44".to_owned(),
            cores,
        };
        let text = "\
vda:100\t6.18.44\t2\tlibaio\told
vda:100\t6.18.44\t2\tio_uring+k\ta study
vda:100\t6.1.0\t2\tio_uring+p\tanother kernel
vdb:100\t6.18.44\t2\tio_uring+p\tanother drive
vda:100\t6.18.44\t2\tposix\tno way of auto
vda:100\t6.18.44\t2\tnonsense\t
vda:100\t6.18.44
\t\t\t\t
";
        assert_eq!(place("vda:100", 2).advice(text), Some((Way::OwnThread, "a study".to_owned())));
        assert_eq!(place("vda:100", 4).advice(text), None);
        assert_eq!(place("vdb:100", 2).advice(text).map(|it| it.0), Some(Way::Polling));
        assert_eq!(place("vda:200", 2).advice(text), None);
    }
}
