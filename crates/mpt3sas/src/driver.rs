//! The driver in the form that a program registers.

use std::sync::Arc;

use qpair_block::Result;
use qpair_pci::PciFunction;
use qpair_scsi::Driver;
use qpair_scsi::host::Host;

use crate::host::{Mpt3sas, check_class};
use crate::options::HbaOptions;

/// Drives SAS controllers, all with the same options.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mpt3sasDriver(pub HbaOptions);

impl Driver<Arc<dyn PciFunction>> for Mpt3sasDriver {
    fn name(&self) -> &str {
        "mpt3sas"
    }

    /// Also takes a function that does not answer, so that opening it reports the error.
    fn takes(&self, function: &Arc<dyn PciFunction>) -> bool {
        !check_class(&**function)
            .is_err_and(|error| error.kind() == qpair_block::ErrorKind::Unsupported)
    }

    fn open(&self, function: Arc<dyn PciFunction>) -> Result<Arc<dyn Host>> {
        Ok(Mpt3sas::open(function, self.0)?)
    }
}
