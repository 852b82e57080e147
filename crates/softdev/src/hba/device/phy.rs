//! The phys, and the disks attached to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use qpair_mpi_wire::ioc_status;
use qpair_scsi_wire::sense::Code;

use super::SoftHba;
use crate::hba::lane::Slot;
use crate::hba::timing::Timing;
use crate::hba::topology::{Attached, Topology};
use crate::scsi::Unit;

/// A phy of the topology that has a disk or has room for one.
#[derive(Debug)]
pub(crate) struct Phy {
    pub(crate) unit: Arc<Unit>,
    pub(crate) timing: Arc<Timing>,
    number: u16,
    topology: Topology,
    /// 0 if nothing is attached. Otherwise one more than the number of times that a disk was
    /// plugged in; each time it gets another handle.
    plugged: AtomicU32,
    times: AtomicU32,
    /// Whether the locate lamp at the slot is on.
    pub(crate) is_located: AtomicBool,
    is_empty: bool,
}

impl Phy {
    /// Creates a phy with a disk, or an empty one.
    pub(super) fn new(
        (unit, timing): (Arc<Unit>, Arc<Timing>),
        number: u16,
        topology: Topology,
        is_empty: bool,
    ) -> Self {
        let times = u32::from(!is_empty);
        Self {
            unit,
            timing,
            number,
            topology,
            plugged: AtomicU32::new(times),
            times: AtomicU32::new(times),
            is_located: AtomicBool::new(false),
            is_empty,
        }
    }

    /// Returns the handle of the attached disk.
    pub(crate) fn handle(&self) -> Option<u16> {
        let plugged = self.plugged.load(Ordering::Acquire);
        (plugged > 0).then(|| self.topology.disk_handle(self.number, plugged))
    }
}

impl SoftHba {
    /// Removes disk `number`. Returns `false` if there was no such disk.
    pub fn pull(&self, number: usize) -> bool {
        let Some(phy) = self.phys.get(number) else { return false };
        let Some(handle) = phy.handle() else { return false };
        phy.plugged.store(0, Ordering::Release);
        self.end_parked(|it| it.handle == handle, ioc_status::SCSI_DEVICE_NOT_THERE);
        self.tell_change(number, handle, false);
        true
    }

    /// Inserts disk `number` again after [`Self::pull`], in the state after power on. Returns
    /// `false` if the disk is already there, or does not exist.
    pub fn plug(&self, number: usize) -> bool {
        let Some(phy) = self.phys.get(number) else { return false };
        if phy.is_empty || phy.handle().is_some() {
            return false;
        }
        phy.unit.power_cut(0);
        phy.plugged.store(phy.times.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Release);
        if let Some(handle) = phy.handle() {
            self.tell_change(number, handle, true);
        }
        true
    }

    pub(crate) fn pull_later(&self, number: usize) {
        self.pulls.lock().push(number);
        self.has_pulls.store(true, Ordering::Release);
    }

    pub(super) fn run_pulls(&self) {
        self.has_pulls.store(false, Ordering::Release);
        let pulls = std::mem::take(&mut *self.pulls.lock());
        for number in pulls {
            self.pull(number);
        }
    }

    /// Whether the locate lamp at the slot of disk `number` is on.
    #[must_use]
    pub fn is_located(&self, number: usize) -> bool {
        self.phys.get(number).is_some_and(|phy| phy.is_located.load(Ordering::Relaxed))
    }

    /// Cuts the power of all disks, and restores it. Each sector that is only in a volatile cache
    /// is lost or kept, as `seed` decides.
    pub fn power_cut(&self, seed: u64) {
        // All queues are locked, so the cut falls between two commands: no command is reported as
        // done after the cache lost its data.
        let _idle: Vec<_> = self.slots.iter().map(Slot::lock).collect();
        for (phy, number) in self.phys.iter().zip(0u64..) {
            if !phy.is_empty {
                phy.unit.power_cut(seed.wrapping_add(number));
            }
        }
    }

    /// Returns the handle of an attached device, if it is present.
    pub(crate) fn attached_handle(&self, attached: Option<Attached>) -> Option<u16> {
        match attached? {
            Attached::Other(handle) => Some(handle),
            Attached::Disk(number) => self.phys.get(number)?.handle(),
        }
    }

    #[inline]
    pub(crate) fn phy_of(&self, handle: u16) -> Option<(usize, &Phy)> {
        let number = self.topology.disk_of(handle)?;
        let phy = self.phys.get(number)?;
        (phy.handle() == Some(handle)).then_some((number, phy))
    }

    /// Whether a disk has, had or could have this handle.
    pub(crate) fn is_old_handle(&self, handle: u16) -> bool {
        self.topology.is_disk(handle)
    }

    /// Resets all units, as when the links to all disks go down and come back.
    pub(crate) fn reset_units(&self) {
        for phy in self.phys.iter().filter(|phy| !phy.is_empty) {
            phy.unit.reset(Code::NEXUS_LOSS);
            phy.is_located.store(false, Ordering::Relaxed);
        }
    }
}
