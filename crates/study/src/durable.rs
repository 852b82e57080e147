//! Durable writes through a file system, and to the block device below it.
//!
//! Invariants:
//! - The block device is a loop device over a file that the study makes in its folder, so no device
//!   of the user is formatted.
//! - What was mounted, attached and made is unmounted, detached and removed when the study ends.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use qpair_block::{Error, ErrorKind, Result};

use crate::lab::{DURABLE, DURABLE_RAW};
use crate::measure::{Measure, digits};

/// The size of the image: the smallest that all file systems accept.
const IMAGE_BYTES: u64 = 256 << 20;

/// The bytes of the file or the device that are written.
const WRITTEN_BYTES: u64 = 32 << 20;

const BLOCK: usize = 4096;

/// The file systems of a study, each made when it is first used.
#[derive(Debug, Default)]
pub(crate) struct FileSystems(HashMap<String, Made>);

#[derive(Debug)]
struct Made {
    image: PathBuf,
    /// The loop device, once it is attached.
    attached: Option<String>,
    mounted: Option<PathBuf>,
}

impl FileSystems {
    /// Writes blocks of 4 KiB at random places for a time, each made durable by `fsync`.
    ///
    /// # Errors
    /// `Io` if a file system cannot be made or written.
    pub(crate) fn run(
        &mut self,
        interface: &str,
        folder: &Path,
        round: u32,
        run_s: f64,
    ) -> Result<Measure> {
        let name = interface.trim_start_matches(DURABLE);
        if !self.0.contains_key(name) {
            let number = self.0.len();
            let file = format!("qpair-study-{}-{number}.image", std::process::id());
            let mut made = Made { image: folder.join(file), attached: None, mounted: None };
            made.make((interface != DURABLE_RAW).then_some(name))?;
            self.0.insert(name.to_owned(), made);
        }
        let written = self.0[name].written();
        let file =
            OpenOptions::new().write(true).open(&written).map_err(at("opening", &written))?;
        let mut random = fastrand::Rng::with_seed(u64::from(round));
        let block = [0x5a; BLOCK];
        let mut latencies = Vec::new();
        let clock = Instant::now();
        while clock.elapsed().as_secs_f64() < run_s {
            let place = random.u64(..WRITTEN_BYTES / BLOCK as u64) * BLOCK as u64;
            let begun = Instant::now();
            file.write_all_at(&block, place)
                .and_then(|()| file.sync_all())
                .map_err(at("writing", &written))?;
            latencies.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        let (seconds, writes) = (clock.elapsed().as_secs_f64(), latencies.len() as f64);
        latencies.sort_by(f64::total_cmp);
        let quantile = |share: f64| {
            let at = (share * (writes - 1.0)).round().max(0.0) as usize;
            latencies.get(at).copied().map_or(0.0, digits)
        };
        Ok(Measure {
            round,
            seconds: digits(seconds),
            ios_per_s: digits(writes / seconds),
            bytes_per_s: digits(writes * BLOCK as f64 / seconds),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            ..Measure::default()
        })
    }
}

impl Made {
    /// Makes the image and a loop device over it, with a file system if one is named.
    fn make(&mut self, file_system: Option<&str>) -> Result<()> {
        fill(&self.image, IMAGE_BYTES)?;
        let device = said_by(Command::new("losetup").args(["--find", "--show"]).arg(&self.image))?;
        let device = device.trim().to_owned();
        self.attached = Some(device.clone());
        let Some(name) = file_system else { return Ok(()) };
        let force = if name == "ext4" { "-F" } else { "-f" };
        said_by(Command::new(format!("mkfs.{name}")).args(["-q", force, &device]))?;
        let folder = self.image.with_extension("mounted");
        std::fs::create_dir(&folder).map_err(at("creating", &folder))?;
        let mounted = said_by(Command::new("mount").args(["-t", name, &device]).arg(&folder));
        if let Err(error) = mounted {
            let _ = std::fs::remove_dir(&folder);
            return Err(error);
        }
        self.mounted = Some(folder);
        // Overwriting needs no new space, in file systems that overwrite.
        fill(&self.written(), WRITTEN_BYTES)
    }

    /// Returns the path that is written: a file of the file system, or the loop device.
    fn written(&self) -> PathBuf {
        match (&self.mounted, &self.attached) {
            (Some(folder), _) => folder.join("written"),
            (None, device) => PathBuf::from(device.as_deref().unwrap_or_default()),
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Errors are ignored: the file's name says which process made it.
        if let Some(folder) = &self.mounted {
            let _ = said_by(Command::new("umount").arg(folder));
            let _ = std::fs::remove_dir(folder);
        }
        if let Some(device) = &self.attached {
            let _ = said_by(Command::new("losetup").args(["--detach", device]));
        }
        let _ = std::fs::remove_file(&self.image);
    }
}

/// Makes a file of this size, with all its blocks written.
fn fill(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create_new(path).map_err(at("creating", path))?;
    let piece = vec![0xa5; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&piece).map_err(at("writing", path))?;
    }
    file.sync_all().map_err(at("writing", path))
}

/// Runs a command and returns what it writes to its standard output.
fn said_by(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|cause| Error::os(cause, format!("running {name}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::new(ErrorKind::Io, format!("{name} failed: {said}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn at<'a>(doing: &'a str, path: &'a Path) -> impl Fn(std::io::Error) -> Error + 'a {
    move |cause| Error::os(cause, format!("{doing} {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::means::{FILE_SYSTEMS, Means};

    #[test]
    fn file_systems_are_made_and_removed() {
        let build = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let means = Means::probe(&[]);
        let usable = means.file_systems.iter().filter(|one| one.unavailable.is_none());
        let usable: Vec<String> = usable.map(|one| format!("{DURABLE}{}", one.name)).collect();
        if usable.is_empty() {
            eprintln!("skipped: {:?}", means.file_systems);
            return;
        }
        assert!(usable.len() <= FILE_SYSTEMS.len());
        let mut all = FileSystems::default();
        for interface in usable.iter().map(String::as_str).chain([DURABLE_RAW]) {
            let found = all.run(interface, folder.path(), 1, 0.05).unwrap();
            assert!(found.ios_per_s > 0.0 && found.p50_us > 0.0, "{interface}: {found:?}");
        }
        assert!(std::fs::read_dir(folder.path()).unwrap().count() > usable.len());
        drop(all);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        assert!(!mounts.contains(&folder.path().display().to_string()), "{mounts}");
    }
}
