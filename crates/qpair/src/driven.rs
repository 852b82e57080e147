//! Devices that bypass the kernel: `nvme:`, `softnvme:`, `scsi:`, `vhost-user:` and `nbd:`. The
//! feature `drivers` adds the crates with their drivers. A build without it refuses these names
//! before it accesses any device.

use qpair_block::DeviceSpec;
use qpair_engine::{Error, ErrorKind, Result};

#[cfg(feature = "drivers")]
pub(crate) use qpair_drivers::{Drivers, is_volatile};

#[cfg(not(feature = "drivers"))]
pub(crate) use without::{Drivers, is_volatile};

/// Checks that this build has the drivers for a device.
///
/// # Errors
/// `Unsupported` for a device that needs a driver, in a build without drivers.
pub(crate) fn check_is_built(spec: &DeviceSpec) -> Result<()> {
    match find(spec) {
        Some((driver, name)) if !cfg!(feature = "drivers") => Err(refusal(driver, name)),
        _ => Ok(()),
    }
}

/// Returns the first device in a specifier that needs a driver: the driver's name and the device's
/// name.
fn find(spec: &DeviceSpec) -> Option<(&str, &str)> {
    spec.lowest().into_iter().find_map(|device| match device {
        DeviceSpec::Driven { driver, name } => Some((*driver, name.as_str())),
        _ => None,
    })
}

fn refusal(driver: &str, name: &str) -> Error {
    let what = match driver {
        "nvme" => "an NVMe drive that the program drives itself, without the kernel",
        "softnvme" => "an NVMe drive made of software",
        "scsi" => "a SCSI disk whose controller the program drives itself, without the kernel",
        "vhost-user" => "a disk that another process serves by vhost-user-blk",
        "nbd" => "a disk that a server exports by NBD",
        _ => "a device of a driver in this program",
    };
    Error::with_hint(
        ErrorKind::Unsupported,
        format!("{driver}:{name} names {what}, but this program was built without qpair's drivers"),
        format!(
            "build it with features = [\"drivers\"] in its dependency on qpair; a file of that name is file:{driver}:{name}"
        ),
    )
}

/// Stubs in place of the drivers, for a build without them.
#[cfg(not(feature = "drivers"))]
mod without {
    use qpair_block::DeviceSpec;

    #[derive(Clone, Debug)]
    pub(crate) struct Drivers;

    impl Drivers {
        pub(crate) fn new() -> Self {
            Self
        }

        /// Always false: without drivers, there is no soft drive.
        pub(crate) fn is_lent(&self, _driver: &str, _name: &str) -> bool {
            false
        }

        /// Returns the specifier itself: without drivers, no lent drive can be used.
        #[expect(clippy::unnecessary_wraps, reason = "drivers may fail")]
        pub(crate) fn find_lent(
            &self,
            spec: &DeviceSpec,
        ) -> qpair_block::Result<(DeviceSpec, Vec<String>)> {
            Ok((spec.clone(), Vec::new()))
        }

        /// Returns `files`, an opener of files only.
        pub(crate) fn opening<F>(&self, files: F) -> F {
            files
        }
    }

    /// Always false: without drivers, no device with a driver can be open.
    pub(crate) fn is_volatile(_driver: &str, _name: &str) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use qpair_block::DRIVERS;

    use super::*;

    #[test]
    fn devices_that_take_drivers_are_found_and_named() {
        for driver in DRIVERS {
            for text in [
                format!("{driver}:a"),
                format!("delay:read_us=1:{driver}:a"),
                format!("stripe:/file+{driver}:a"),
            ] {
                let spec = DeviceSpec::parse(&text).unwrap();
                assert_eq!(find(&spec), Some((driver, "a")), "{text}");
            }
            let error = refusal(driver, "a").to_string();
            assert!(error.starts_with(&format!("{driver}:a names a")), "{error}");
            assert!(error.contains("features = [\"drivers\"]"), "{error}");
            assert!(!error.contains("a device of a driver"), "each is explained: {error}");
        }
        for text in ["/file", "ram:size=1MiB", "stripe:/a+/b", "file:nvme:a"] {
            assert_eq!(find(&DeviceSpec::parse(text).unwrap()), None, "{text}");
        }
    }
}
