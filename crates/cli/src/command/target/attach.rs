//! The drivers of this program, as calls ask for them.

use std::sync::Arc;

use qpair_block::{BlockDevice, Result};
use qpair_drivers::{Drivers, ScsiController};
use qpair_nvme::NvmeAddress;
use qpair_scsi::host::{Change, Unit};
use qpair_scsi_wire::luns::Lun;
use qpair_serve::{Attach, ScsiHost, ScsiNews, ScsiPlace};

pub(super) fn attach(drivers: &Drivers) -> Attach {
    let (nvme, scsi, vhost_user) = (drivers.clone(), drivers.clone(), drivers.clone());
    Attach {
        nvme: Box::new(move |address| {
            let controller = nvme.controller(&NvmeAddress::parse(address)?)?;
            let usable = controller.namespaces().iter().filter(|it| it.unusable.is_none());
            let open = |nsid: u32| Ok((nsid, Arc::new(controller.open_namespace(nsid)?) as _));
            usable.map(|namespace| open(namespace.nsid)).collect()
        }),
        scsi: Box::new(move |address| Ok(Arc::new(Scsi(scsi.scsi_controller(address)?)))),
        vhost_user: Box::new(move |socket| vhost_user.open("vhost-user", socket)),
    }
}

struct Scsi(ScsiController);

impl ScsiHost for Scsi {
    fn about(&self) -> String {
        let info = self.0.host().info();
        format!("{}: {}", info.driver, info.about)
    }

    fn units(&self) -> Result<Vec<(ScsiPlace, Option<String>)>> {
        let place = |unit: Unit| ScsiPlace {
            target: unit.target,
            lun: unit.lun.number().unwrap_or(u16::MAX),
        };
        Ok(self.0.units()?.into_iter().map(|(unit, why)| (place(unit), why)).collect())
    }

    fn open(&self, place: ScsiPlace) -> Result<Arc<dyn BlockDevice>> {
        let lun = Lun::of(place.lun).unwrap_or_default();
        Ok(self.0.open(Unit { target: place.target, lun })?)
    }

    fn news(&self) -> ScsiNews {
        let changes = self.0.host().changes();
        let gone = |change: &Change| match change {
            Change::Removed(target) => Some(*target),
            _ => None,
        };
        ScsiNews { is_news: !changes.is_empty(), gone: changes.iter().filter_map(gone).collect() }
    }
}
