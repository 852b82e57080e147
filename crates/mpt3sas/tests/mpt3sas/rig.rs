//! A soft HBA and its driver.

use std::sync::Arc;

use qpair_mpt3sas::{HbaOptions, Mpt3sas};
use qpair_pci::InProcess;
use qpair_scsi::host::{Host, Unit};
use qpair_scsi::{ScsiDisk, ScsiOptions};
use qpair_softdev::{SoftHba, SoftHbaOptions};

pub(crate) struct Rig {
    pub(crate) card: Arc<SoftHba>,
    pub(crate) host: Arc<dyn Host>,
}

/// Returns time-outs short enough for a test.
pub(crate) fn hba_options() -> HbaOptions {
    HbaOptions {
        reset_settle_ms: 0,
        reset_timeout_ms: 200,
        message_timeout_ms: 2000,
        watch_ms: 5,
        ..HbaOptions::default()
    }
}

pub(crate) fn scsi_options() -> ScsiOptions {
    ScsiOptions { timeout_ms: 40, task_timeout_ms: 20, ..ScsiOptions::default() }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let violations = self.card.violations();
        if !std::thread::panicking() {
            assert_eq!(violations.count, 0, "{:#?}", violations.told);
        }
    }
}

impl Rig {
    pub(crate) fn new(text: &str) -> Self {
        let card =
            SoftHba::new(SoftHbaOptions { strict: true, ..SoftHbaOptions::parse(text).unwrap() })
                .unwrap();
        let function = Arc::new(InProcess::new("softhba", card.clone()));
        let host = Mpt3sas::open(function, hba_options()).unwrap();
        Self { card, host }
    }

    /// Returns the disk at a phy: numbers follow the order of discovery, which is that of phys.
    pub(crate) fn disk(&self, number: u32, options: ScsiOptions) -> Arc<ScsiDisk> {
        let unit = Unit { target: number, lun: Default::default() };
        Arc::new(ScsiDisk::open(self.host.clone(), unit, "scsi:soft", options).unwrap())
    }
}
