//! The targets behind a controller. A target is identified by its SAS address, and keeps its number
//! for as long as the driver lives.

use qpair_memory::locks::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use qpair_mpi_wire::config::{FLAG_PRESENT, INFO_SATA_DEVICE, INFO_SSP_TARGET, SasDevice};
use qpair_scsi::host::Target;

#[derive(Debug)]
pub(crate) struct TargetState {
    pub(crate) number: u32,
    pub(crate) address: u64,
    /// The controller's current handle for the target; 0: the target is not there.
    handle: AtomicU32,
    refused: Option<String>,
}

impl TargetState {
    #[inline(always)]
    pub(crate) fn handle(&self) -> Option<u16> {
        match self.handle.load(Ordering::Acquire) {
            0 => None,
            handle => Some(handle as u16),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Targets(RwLock<Vec<Arc<TargetState>>>);

impl Targets {
    fn all(&self) -> Vec<Arc<TargetState>> {
        self.0.read().clone()
    }

    pub(crate) fn get(&self, number: u32) -> Option<Arc<TargetState>> {
        self.0.read().get(number as usize).cloned()
    }

    /// Adds a device that was found. Returns its number if it is a target that was not there
    /// before. A device that is not a target gets no number.
    pub(crate) fn found(&self, device: &SasDevice) -> Option<u32> {
        let is_target = device.info & (INFO_SSP_TARGET | INFO_SATA_DEVICE) != 0;
        if !is_target || device.flags & FLAG_PRESENT == 0 || device.handle == 0 {
            return None;
        }
        let mut all = self.0.write();
        if let Some(known) = all.iter().find(|it| it.address == device.address) {
            let before = known.handle.swap(device.handle.into(), Ordering::AcqRel);
            return (before == 0).then_some(known.number);
        }
        let refused = match (device.info & INFO_SSP_TARGET, device.access) {
            (0, _) => Some("a SATA drive: its translation to SCSI is not supported".to_owned()),
            (_, 0) => None,
            (_, access) => {
                Some(format!("the controller cannot use it (access status {access:02x}h)"))
            }
        };
        let number = all.len() as u32;
        all.push(Arc::new(TargetState {
            number,
            address: device.address,
            handle: AtomicU32::new(device.handle.into()),
            refused,
        }));
        Some(number)
    }

    /// Adds a drive behind PCIe that was found. It is listed, and cannot be used.
    pub(crate) fn found_pcie(&self, name: u64, handle: u16) -> Option<u32> {
        let mut all = self.0.write();
        if let Some(known) = all.iter().find(|it| it.address == name) {
            let before = known.handle.swap(handle.into(), Ordering::AcqRel);
            return (before == 0).then_some(known.number);
        }
        let number = all.len() as u32;
        let refused = "a PCIe drive behind a tri-mode controller: it is not driven by SCSI here; attach it to PCIe itself, and it is nvme:ADDRESS";
        all.push(Arc::new(TargetState {
            number,
            address: name,
            handle: AtomicU32::new(handle.into()),
            refused: Some(refused.to_owned()),
        }));
        Some(number)
    }

    /// Removes a device that has gone. Returns its number if it was a target.
    pub(crate) fn lost(&self, handle: u16) -> Option<u32> {
        let all = self.all();
        let target = all.iter().find(|it| it.handle() == Some(handle))?;
        target.handle.store(0, Ordering::Release);
        Some(target.number)
    }

    /// Marks all targets as gone until they are found again.
    pub(crate) fn lose_all(&self) {
        for target in self.all() {
            target.handle.store(0, Ordering::Release);
        }
    }

    pub(crate) fn present(&self) -> Vec<Target> {
        self.all()
            .iter()
            .filter(|target| target.handle().is_some())
            .map(|target| Target {
                number: target.number,
                address: format!("sas.{:016x}", target.address),
                refused: target.refused.clone(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_keeps_its_number() {
        let targets = Targets::default();
        let device = |address, handle, info| SasDevice {
            address,
            handle,
            info,
            flags: FLAG_PRESENT,
            ..SasDevice::default()
        };
        assert_eq!(targets.found(&device(7, 9, INFO_SSP_TARGET)), Some(0));
        assert_eq!(targets.found(&device(8, 10, INFO_SATA_DEVICE)), Some(1));
        assert_eq!(targets.found(&device(8, 10, 0x71)), None, "the controller itself");
        assert_eq!(targets.found(&device(7, 9, INFO_SSP_TARGET)), None, "known");
        assert_eq!(targets.lost(9), Some(0));
        assert_eq!(targets.lost(9), None);
        assert_eq!(
            targets.found(&device(7, 19, INFO_SSP_TARGET)),
            Some(0),
            "back, by another handle"
        );
        assert_eq!(targets.get(0).unwrap().handle(), Some(19));
        let present = targets.present();
        assert!(present[0].refused.is_none());
        assert!(present[1].refused.as_ref().unwrap().contains("SATA"));
        targets.lose_all();
        assert_eq!(targets.present(), []);
    }
}
