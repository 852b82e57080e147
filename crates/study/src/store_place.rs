//! The places of a study's stores: files in its folder, or slices of the given devices.
//!
//! Invariant: no store is made on a device that the study may not write. On devices that have
//! stores, no other point touches the slices of these stores: [`Device::reserved_bytes`].

use qpair_block::{DeviceSpec, Error, ErrorKind, Result, format_bytes};
use qpair_drivers::Drivers;

use crate::lab::{Device, Effort, Lab, STORE_KERNEL, STORE_MODEL, USER_SPACE};
use crate::store::{StoreUse, StoreWork};

/// The bytes of a device before its first slice, and the unit of slices.
const MIB: u64 = 1 << 20;

/// The page sizes that experiments over stores use.
const PAGES_BYTES: [u32; 2] = [4096, 16 << 10];

/// The memory that the soft drives of stores need, in bytes: one for each workload.
const MODEL_MEMORY_BYTES: u64 = 3 << 30;

/// Returns the name of the slice that a store has on each device.
#[must_use]
pub fn slice_name(store: StoreUse) -> String {
    let work = match store.work {
        StoreWork::Lookup => "lookup",
        StoreWork::Tpcc => "tpcc",
    };
    format!("qpair-study-{work}-{}", store.page_bytes)
}

/// Returns the size of a store's slice on each of `devices` devices, in bytes.
#[must_use]
pub fn slice_bytes(work: StoreWork, effort: Effort, devices: u64) -> u64 {
    let mib = match (work, effort) {
        (StoreWork::Lookup, Effort::Quick) => 128,
        (StoreWork::Tpcc, Effort::Quick) => 256,
        (StoreWork::Lookup, _) => 512,
        (StoreWork::Tpcc, Effort::Usual) => 1024,
        (StoreWork::Tpcc, Effort::Full) => 4096,
    };
    // A member of a store has a size from which a store of a few units can be made.
    u64::div_ceil(mib, devices.max(1)).max(16) * MIB
}

/// Whether the stores are on the devices, and not in files of the folder.
#[must_use]
pub fn is_on_devices(devices: &[Device]) -> bool {
    devices.iter().any(|device| device.reserved_bytes > 0)
}

impl Lab {
    /// Finds the place of stores, and the interfaces over which they can be run. If the place is on
    /// the devices, their beginning is reserved.
    pub fn place_stores(&mut self) {
        self.means.stores.clear();
        (self.means.no_stores, self.means.no_user_space_stores) = (None, None);
        let own = self.devices.iter().all(|device| device.own);
        if !own {
            self.means.no_peers = Some(
                "qpair-peers keeps its stores in a folder, and this study is of given devices"
                    .to_owned(),
            );
            if let Err(why) = self.reserve() {
                self.means.no_stores = Some(why);
                return;
            }
        }
        self.means.stores.push(STORE_KERNEL.to_owned());
        if self.has(USER_SPACE) {
            self.means.stores.push(USER_SPACE.to_owned());
            return;
        }
        let available = qpair_machine::Machine::read().memory.available_bytes;
        match available.filter(|bytes| *bytes < MODEL_MEMORY_BYTES) {
            None => self.means.stores.push(STORE_MODEL.to_owned()),
            Some(bytes) => {
                self.means.no_user_space_stores = Some(format!(
                    "the user-space driver has no drive here, and a drive made of software takes {} of memory, of which {} are available",
                    format_bytes(MODEL_MEMORY_BYTES),
                    format_bytes(bytes)
                ));
            }
        }
    }

    fn reserve(&mut self) -> std::result::Result<(), String> {
        if let Some(device) = self.devices.iter().find(|device| !device.may_write) {
            let spec = &device.spec;
            return Err(format!("a store would be written to {spec}, which takes --allow-writes"));
        }
        if let Some(device) = self.means.md.and_then(|at| self.devices.get(at as usize)) {
            let spec = &device.spec;
            return Err(format!(
                "the md array {spec} keeps its drives busy, so no store can be made on them"
            ));
        }
        let count = self.devices.len() as u64;
        let of = |work| PAGES_BYTES.len() as u64 * slice_bytes(work, self.effort, count);
        let reserved_bytes = MIB + of(StoreWork::Lookup) + of(StoreWork::Tpcc);
        for device in &self.devices {
            let spec = &device.spec;
            let size_bytes = size_bytes(device, &self.drivers)
                .map_err(|error| format!("the size of {spec} is not known: {error}"))?;
            if size_bytes < 2 * reserved_bytes {
                return Err(format!(
                    "{spec} has {}, and stores take {} of each device and leave half",
                    format_bytes(size_bytes),
                    format_bytes(reserved_bytes)
                ));
            }
        }
        for device in &mut self.devices {
            device.reserved_bytes = reserved_bytes;
        }
        Ok(())
    }
}

/// Returns the size of a device that keeps its content while it is closed.
fn size_bytes(device: &Device, drivers: &Drivers) -> Result<u64> {
    let spec = device.spec()?;
    let lasts = |lowest: &DeviceSpec| match lowest {
        DeviceSpec::File(_) => true,
        DeviceSpec::Driven { driver, name } => !qpair_drivers::is_volatile(driver, name),
        _ => false,
    };
    if !spec.lowest().into_iter().all(lasts) {
        let what = "its content is lost when it is closed";
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    let open = |path: &std::path::Path| {
        let options = qpair_kernel::FileOptions {
            read_only: true,
            exclusive_lock: false,
            ..qpair_kernel::FileOptions::new(path)
        };
        let device = qpair_kernel::open(&options, qpair_kernel::Interface::Auto)?;
        Ok(std::sync::Arc::new(device) as std::sync::Arc<dyn qpair_block::BlockDevice>)
    };
    Ok(spec.open(&drivers.opening(open))?.size_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::need::Need;

    fn lab(len_bytes: u64, may_write: bool) -> (Lab, tempfile::TempDir) {
        let build = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(build.parent().unwrap()).unwrap();
        let path = folder.path().join("d");
        std::fs::File::create(&path).unwrap().set_len(len_bytes).unwrap();
        let device = Device::of(path.to_str().unwrap(), may_write, false).unwrap();
        let lab = Lab {
            devices: vec![device],
            effort: Effort::Quick,
            ..crate::synthetic::lab(2, 1, &["libaio"])
        };
        (lab, folder)
    }

    #[test]
    fn a_store_needs_room_and_permission() {
        let placed = |len_bytes, may_write| {
            let (mut lab, _folder) = lab(len_bytes, may_write);
            lab.place_stores();
            let why = Need::Stores(STORE_KERNEL).lacking(&lab.here());
            (lab.devices[0].reserved_bytes, why)
        };
        let (reserved_bytes, why) = placed(4 << 30, true);
        assert_eq!((reserved_bytes, why), (769 << 20, None));
        let (reserved_bytes, why) = placed(4 << 30, false);
        assert!(reserved_bytes == 0 && why.unwrap().contains("takes --allow-writes"));
        let (reserved_bytes, why) = placed(1 << 30, true);
        assert!(reserved_bytes == 0 && why.unwrap().contains("leave half"));
    }

    #[test]
    fn memory_keeps_no_store() {
        let mut lab = crate::synthetic::lab(2, 1, &["ram"]);
        lab.place_stores();
        let why = Need::Stores(USER_SPACE).lacking(&lab.here()).unwrap();
        assert!(why.contains("content is lost when it is closed"), "{why}");
        assert!(Need::Peers("tpcc").lacking(&lab.here()).unwrap().contains("in a folder"));
        lab.devices[0].own = true;
        lab.place_stores();
        assert!(lab.means.stores.contains(&STORE_KERNEL.to_owned()));
    }

    #[test]
    fn the_driver_s_own_drive_comes_before_a_model() {
        let (mut lab, _folder) = lab(4 << 30, true);
        lab.place_stores();
        assert!(lab.means.user_space_store_is_model());
        lab.interfaces[0].name = USER_SPACE.to_owned();
        lab.place_stores();
        assert_eq!(lab.means.user_space_store(), Some(USER_SPACE));
    }

    #[test]
    fn slices_get_smaller_with_more_devices() {
        let of = |devices| slice_bytes(StoreWork::Lookup, Effort::Quick, devices) / MIB;
        assert_eq!([of(1), of(2), of(3), of(100)], [128, 64, 43, 16]);
        assert_eq!(slice_name(StoreUse::new(StoreWork::Tpcc)), "qpair-study-tpcc-4096");
    }
}
