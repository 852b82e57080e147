//! Opens a controller to query it.

use std::sync::Arc;

use clap::Args;
use qpair_nvme::Controller;

use crate::failure::{Failure, Result};

/// A controller, as arguments name it.
#[derive(Args, Debug)]
pub(super) struct Opened {
    /// An address such as 0000:3b:00.0, vfio-user:PATH, or softnvme:size=1GiB
    #[arg(value_name = "CONTROLLER")]
    controller: String,
}

impl Opened {
    /// Initializes the controller as for I/O, and queries it. Its data is not touched.
    pub(super) fn open(&self) -> Result<Arc<Controller>> {
        let text = &*self.controller;
        if text.starts_with("/dev/") {
            return Err(Failure::usage(format!("{text} belongs to the kernel's driver")).hint(
                "qpair nvme list shows its address; qpair nvme bind takes it from the kernel",
            ));
        }
        let (driver, name) = match text.split_once(':') {
            Some((driver @ ("nvme" | "softnvme"), name)) => (driver, name),
            _ => ("nvme", text),
        };
        Ok(crate::interrupt::drivers().controller_named(driver, name)?)
    }

    /// Returns the device name of a namespace. Returns `None` if each opening makes another drive.
    pub(super) fn device(&self, nsid: u32) -> Option<String> {
        let text = self.controller.strip_prefix("nvme:").unwrap_or(&self.controller);
        if text.starts_with("softnvme:") {
            return None;
        }
        let is_nsid = |(_, nsid): &(&str, &str)| nsid.bytes().all(|byte| byte.is_ascii_digit());
        let place = text.rsplit_once("/ns").filter(is_nsid).map_or(text, |(place, _)| place);
        Some(format!("nvme:{place}/ns{nsid}"))
    }
}
