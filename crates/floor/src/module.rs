//! Builds and loads the kernel module `hwperf`.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use qpair_block::{Error, ErrorKind, Result};
use qpair_drivers::Unit;
use qpair_pci::sysfs::PciAddress;

/// The name of the module in the kernel.
pub(crate) const HWPERF: &str = "hwperf";

macro_rules! sources {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../hwperf/", $name)))),*]
    };
}

/// The source files of the module, which are part of this program.
const SOURCES: [(&str, &str); 17] = sources![
    "Kbuild",
    "Makefile",
    "dkms.conf",
    "hwperf.h",
    "hwperf_mpi.h",
    "hwperf_nvme.h",
    "debugfs.c",
    "mpi.c",
    "mpi_drive.c",
    "mpi_queue.c",
    "nvme.c",
    "nvme_queue.c",
    "pci.c",
    "queue.c",
    "report.c",
    "run.c",
    "words.c"
];

/// Returns the path of the running kernel's headers.
fn headers_here() -> PathBuf {
    let version = rustix::system::uname().release().to_string_lossy().into_owned();
    Path::new("/lib/modules").join(version).join("build")
}

/// Builds the module in a folder and returns the file. `headers`: the kernel headers; `None`: those
/// of the running kernel.
///
/// # Errors
/// `Unsupported`: there are no headers or no `make`, or the build fails.
pub fn build(folder: &Path, headers: Option<&Path>) -> Result<PathBuf> {
    let headers = headers.map_or_else(headers_here, Path::to_owned);
    if !headers.join("Makefile").exists() {
        let context = format!(
            "{HWPERF} cannot be built: there are no kernel headers in {}",
            headers.display()
        );
        return Err(Error::new(ErrorKind::Unsupported, context).hint(
            "install them (Debian: apt-get install linux-headers-$(uname -r); Fedora: dnf install kernel-devel), or name them \
             (--headers), or a module that was built elsewhere (--module)",
        ));
    }
    let failed = |cause| Error::os(cause, format!("building {HWPERF} in {}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let folder = fs::canonicalize(folder).map_err(failed)?;
    for (name, text) in SOURCES {
        fs::write(folder.join(name), text).map_err(failed)?;
    }
    let log = folder.join("build.log");
    let (out, err) = (File::create(&log).map_err(failed)?, File::options().append(true).open(&log));
    let status = Command::new("make")
        .arg("-C")
        .arg(&headers)
        .arg(format!("M={}", folder.display()))
        // Type information would need pahole, and is not used.
        .args(["W=1", "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"])
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err.map_err(failed)?)
        .status();
    let unsupported = |what: String| {
        Error::new(ErrorKind::Unsupported, format!("building {HWPERF}: {what}")).hint(
            "it takes make and the compiler that built the kernel (Debian: apt-get install build-essential)",
        )
    };
    match status {
        Ok(status) if status.success() => Ok(folder.join("hwperf.ko")),
        Ok(_) => {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let mut last: Vec<&str> = said.lines().rev().take(5).collect();
            last.reverse();
            Err(unsupported(last.join("; ")))
        }
        Err(cause) => Err(unsupported(format!("make: {cause}"))),
    }
}

/// A folder to which only root can write, since the file in it is loaded into the kernel.
pub(crate) struct Private(PathBuf);

impl Private {
    /// Creates the folder for a drive that this program has on loan.
    pub(crate) fn make(address: PciAddress) -> Result<Self> {
        let path = Path::new("/run/qpair").join(format!("floor.{address}"));
        let failed = |cause| Error::os(cause, format!("creating {}", path.display()));
        fs::create_dir_all("/run/qpair").map_err(failed)?;
        // The folder may be left from a process that was killed.
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Loads the module for a drive of a controller; returns `false` if it is already loaded for this
/// drive.
///
/// # Errors
/// `Busy` if it is loaded for another drive; errors of the kernel.
pub(crate) fn load(file: &Path, unit: Unit) -> Result<bool> {
    let (name, value) = match unit {
        Unit::Namespace(nsid) => ("nsid", u64::from(nsid)),
        Unit::Sas(address) => ("sas_address", address),
    };
    if let Ok(text) = fs::read_to_string(format!("/sys/module/hwperf/parameters/{name}")) {
        if text.trim() == value.to_string() {
            return Ok(false);
        }
        let context = format!("{HWPERF} is loaded for another drive, with {name}={}", text.trim());
        return Err(Error::new(ErrorKind::Busy, context).hint("sudo rmmod hwperf"));
    }
    let opened = File::open(file).map_err(|cause| Error::os(cause, file.display().to_string()))?;
    let parameters = CString::new(format!("{name}={value}")).unwrap_or_default();
    rustix::system::finit_module(&opened, &parameters, 0).map_err(|cause| {
        Error::os(cause.into(), format!("loading {}", file.display())).hint(
            "the kernel says why: dmesg | tail; one that takes signed modules only (Secure Boot) needs it signed",
        )
    })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_source_is_missing() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hwperf");
        let mut there: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| {
                let has = |end: &str| name.ends_with(end) && !name.ends_with(".mod.c");
                has(".c")
                    || has(".h")
                    || ["Kbuild", "Makefile", "dkms.conf"].contains(&name.as_str())
            })
            .collect();
        there.sort();
        let mut own: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        own.sort_unstable();
        assert_eq!(own, there);
    }

    #[test]
    fn no_headers() {
        let folder = std::env::temp_dir();
        let error = build(&folder.join("never-made"), Some(&folder)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.way_out().unwrap().contains("linux-headers"), "{error}");
        assert!(!folder.join("never-made").exists());
    }
}
