//! NVMe controllers by address.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use qpair_block::{Error, ErrorKind, Result};
use qpair_nvme::{Controller, ControllerOptions, NvmeAddress, NvmeDevice, NvmeTarget};
use qpair_pci::PciFunction;
use tracing::warn;

use crate::Drivers;

/// An open controller, its options, and whether it is given only huge pages.
type Known = (Weak<Controller>, ControllerOptions, bool);

/// The open controllers. They are closed with the last device that uses them.
pub(crate) type Controllers = HashMap<NvmeTarget, Known>;

impl Drivers {
    pub(crate) fn namespace(&self, name: &str) -> Result<Arc<NvmeDevice>> {
        let address = NvmeAddress::parse(name)?;
        let controller = self.controller(&address)?;
        Ok(Arc::new(controller.open_default_namespace(address.nsid)?))
    }

    /// Opens the function at an address.
    ///
    /// With `huge_pages`, only memory of reserved huge pages is shared with the process at the
    /// other end of a socket.
    ///
    /// # Errors
    /// The errors of VFIO or of that process.
    pub fn function(&self, target: &NvmeTarget, huge_pages: bool) -> Result<Arc<dyn PciFunction>> {
        match target {
            NvmeTarget::Pci(address) => qpair_pci::vfio::open(address),
            NvmeTarget::VfioUser(path) => {
                let timeout_policy = self.timeout_policy();
                let options = qpair_vfio_user::ClientOptions {
                    timeout_policy,
                    huge_pages,
                    ..Default::default()
                };
                Ok(Arc::new(qpair_vfio_user::Client::connect(path, &options)?))
            }
        }
    }

    /// Returns the controller at an address: an open one, or a new one.
    ///
    /// # Errors
    /// `Busy` if the controller is open with other options; otherwise the driver's errors.
    pub fn controller(&self, address: &NvmeAddress) -> Result<Arc<Controller>> {
        // Held while a controller is set up: another thread that asks for the same one waits for
        // it.
        let mut open = self.controllers().lock();
        open.retain(|_, (controller, ..)| controller.strong_count() > 0);
        let timeout_policy = self.timeout_policy();
        let options = ControllerOptions { timeout_policy, ..address.options() };
        if let Some((controller, its, huge_pages)) = open.get(&address.target)
            && let Some(controller) = controller.upgrade()
        {
            if *its != options || *huge_pages != address.huge_pages {
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!("nvme:{address} is in use by this program with other options"),
                )
                .hint("give all namespaces of a controller the same options"));
            }
            return Ok(controller);
        }
        let controller =
            Controller::open(self.function(&address.target, address.huge_pages)?, options.clone())?;
        if !controller.info().doorbells_mapped && !controller.info().doorbells_shadowed {
            warn!(
                name: "slow",
                "nvme:{address}: its doorbells cannot be mapped; each is a call, which costs most of the IOPS: the other side must offer \
                 the registers from 0x1000 on for mapping, or shadow doorbells"
            );
        }
        let known = (Arc::downgrade(&controller), options, address.huge_pages);
        open.insert(address.target.clone(), known);
        Ok(controller)
    }
}
