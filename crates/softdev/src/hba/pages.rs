//! The configuration pages that lead a driver to disks. All other pages are refused, as on some
//! real cards.

use qpair_mpi_wire::config::{
    ADDRESS_HANDLE, ADDRESS_NEXT_HANDLE, ConfigRequest, FLAG_PRESENT, INFO_CONTROLLER,
    INFO_EXPANDER, INFO_SAS_TARGET, PCIE_DEVICE_0, PageId, PcieDevice, SAS_DEVICE_0, SasDevice,
    action, new_page, page_type,
};
use qpair_mpi_wire::ioc_status;

use super::device::SoftHba;
use super::topology::Attached;

/// The controller's own handle.
pub(crate) const CONTROLLER_HANDLE: u16 = 1;
/// The code of 12 Gbit/s as the negotiated rate, and as the programmed rate with its minimum.
const RATE: u8 = 0xBB;

const fn extended(extended: u8, number: u8) -> PageId {
    PageId { kind: page_type::EXTENDED, extended, number }
}
const SAS_IO_UNIT_0: PageId = extended(page_type::EXT_SAS_IO_UNIT, 0);
const SAS_IO_UNIT_1: PageId = extended(page_type::EXT_SAS_IO_UNIT, 1);
const SAS_PHY_0: PageId = extended(page_type::EXT_SAS_PHY, 0);
const EXPANDER_0: PageId = extended(page_type::EXT_SAS_EXPANDER, 0);
const EXPANDER_1: PageId = extended(page_type::EXT_SAS_EXPANDER, 1);
const ENCLOSURE_0: PageId = extended(page_type::EXT_SAS_ENCLOSURE, 0);
/// The forms of addresses that name a phy of an expander, or an enclosure by its handle.
const ADDRESS_PHY: u32 = 0x1000_0000;
const ADDRESS_ENCLOSURE: u32 = 0x1000_0000;

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = page.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

impl SoftHba {
    /// Returns a page, or the IOC status that says why the page does not exist.
    pub(crate) fn page(&self, asked: &ConfigRequest) -> Result<Vec<u8>, u16> {
        match asked.action {
            action::HEADER | action::READ_CURRENT | action::READ_DEFAULT | action::READ_NVRAM => {}
            action::WRITE_CURRENT | action::WRITE_NVRAM => return Err(ioc_status::INVALID_FIELD),
            _ => return Err(ioc_status::CONFIG_INVALID_ACTION),
        }
        // A page header does not depend on a device, so the device need not exist.
        let is_head = asked.action == action::HEADER;
        let page = match asked.page {
            SAS_IO_UNIT_0 => Some(self.sas_io_unit_0()),
            SAS_IO_UNIT_1 => Some(self.sas_io_unit_1()),
            SAS_PHY_0 if is_head => Some(self.sas_phy_0(0)),
            SAS_PHY_0 => {
                let phy = asked.address & 0xFF;
                (phy < self.topology.phys.into()).then(|| self.sas_phy_0(phy as u8))
            }
            SAS_DEVICE_0 if is_head => Some(SasDevice::default().encode()),
            SAS_DEVICE_0 => self.sas_device(asked.address).map(|device| device.encode()),
            EXPANDER_0 | EXPANDER_1 | ENCLOSURE_0 if !self.topology.has_expanders() => None,
            EXPANDER_0 if is_head => Some(new_page(EXPANDER_0, 6, 0x3C)),
            EXPANDER_0 => self.expander_0(asked.address),
            EXPANDER_1 if is_head => Some(new_page(EXPANDER_1, 2, 0x2C)),
            EXPANDER_1 => self.expander_1(asked.address),
            ENCLOSURE_0 if is_head => Some(new_page(ENCLOSURE_0, 4, 0x28)),
            ENCLOSURE_0 => self.enclosure_0(asked.address),
            PCIE_DEVICE_0 => {
                let form = asked.address & 0xF000_0000;
                let handle = (asked.address & 0xFFFF) as u16;
                let is_it = |it: &PcieDevice| match form {
                    _ if is_head => true,
                    ADDRESS_HANDLE => it.handle == handle,
                    ADDRESS_NEXT_HANDLE => handle == 0xFFFF || it.handle > handle,
                    _ => false,
                };
                self.pcie_device().filter(is_it).map(|device| device.encode())
            }
            _ => None,
        };
        page.ok_or(ioc_status::CONFIG_INVALID_PAGE)
    }

    fn sas_io_unit_0(&self) -> Vec<u8> {
        let phys = self.topology.phys;
        let mut page = new_page(SAS_IO_UNIT_0, 5, 0x10 + 20 * usize::from(phys));
        page[0x0C] = phys as u8;
        for phy in 0..phys {
            let at = 0x10 + 20 * usize::from(phy);
            let handle = self.attached_handle(self.topology.at_phy(phy));
            page[at] = if self.topology.has_expanders() { 0 } else { phy as u8 };
            page[at + 3] = if handle.is_some() { RATE } else { 0 };
            let info = if handle.is_some() { INFO_CONTROLLER } else { 0 };
            put(&mut page, at + 4, &info.to_le_bytes());
            put(&mut page, at + 8, &handle.unwrap_or(0).to_le_bytes());
            put(&mut page, at + 10, &CONTROLLER_HANDLE.to_le_bytes());
        }
        page
    }

    fn sas_io_unit_1(&self) -> Vec<u8> {
        let phys = usize::from(self.topology.phys);
        let mut page = new_page(SAS_IO_UNIT_1, 9, 0x14 + 12 * phys);
        page[0x10] = phys as u8;
        for number in 0..phys {
            let at = 0x14 + 12 * number;
            page[at] = number as u8;
            // The supported rates: 1.5 to 12 Gbit/s.
            page[at + 3] = 0xB8;
            put(&mut page, at + 4, &INFO_CONTROLLER.to_le_bytes());
        }
        page
    }

    fn sas_phy_0(&self, number: u8) -> Vec<u8> {
        let handle = self.attached_handle(self.topology.at_phy(number.into()));
        let mut page = new_page(SAS_PHY_0, 3, 0x20);
        put(&mut page, 0x08, &CONTROLLER_HANDLE.to_le_bytes());
        put(&mut page, 0x0C, &handle.unwrap_or(0).to_le_bytes());
        page[0x14] = 0xB8;
        page[0x15] = 0xB8;
        page[0x1C] = if handle.is_some() { RATE } else { 0 };
        page
    }

    /// Returns the handle that a page address names, directly or as the next one after a handle.
    /// `handles` must be in ascending order.
    fn named(address: u32, by_handle: u32, mut handles: impl Iterator<Item = u16>) -> Option<u16> {
        let handle = (address & 0xFFFF) as u16;
        match address & 0xF000_0000 {
            ADDRESS_NEXT_HANDLE => handles.find(|it| handle == 0xFFFF || *it > handle),
            form if form == by_handle => handles.find(|it| *it == handle),
            _ => None,
        }
    }

    fn expander_0(&self, address: u32) -> Option<Vec<u8>> {
        let handles = self.topology.expanders().map(|it| it.handle);
        let it = self.topology.expander(Self::named(address, ADDRESS_HANDLE, handles)?)?;
        let mut page = new_page(EXPANDER_0, 6, 0x3C);
        put(&mut page, 0x0A, &it.enclosure.to_le_bytes());
        put(&mut page, 0x0C, &self.expander_address(it.handle).to_le_bytes());
        put(&mut page, 0x18, &it.handle.to_le_bytes());
        put(&mut page, 0x1A, &it.parent.to_le_bytes());
        page[0x20] = it.phys;
        page[0x21] = it.level;
        Some(page)
    }

    /// Returns SAS expander page 1, which describes one phy of an expander.
    fn expander_1(&self, address: u32) -> Option<Vec<u8>> {
        let phy = (address >> 16 & 0xFF) as u8;
        let expander = self.topology.expander(address as u16)?;
        if address & 0xF000_0000 != ADDRESS_PHY || phy >= expander.phys {
            return None;
        }
        let attached = self.topology.attached(&expander, phy);
        let handle = self.attached_handle(attached);
        let info = match (attached, handle) {
            (_, None) => 0,
            (Some(Attached::Disk(_)), _) => INFO_SAS_TARGET,
            (_, Some(CONTROLLER_HANDLE)) => INFO_CONTROLLER,
            _ => INFO_EXPANDER,
        };
        let mut page = new_page(EXPANDER_1, 2, 0x2C);
        page[0x0C] = expander.phys;
        page[0x0D] = phy;
        page[0x10] = 0xB8;
        page[0x11] = 0xB8;
        put(&mut page, 0x12, &handle.unwrap_or(0).to_le_bytes());
        put(&mut page, 0x18, &info.to_le_bytes());
        put(&mut page, 0x1C, &expander.handle.to_le_bytes());
        page[0x1F] = if handle.is_some() { RATE } else { 0 };
        page[0x20] = phy;
        Some(page)
    }

    /// Returns SAS enclosure page 0, which describes the slots of one leaf expander's disks.
    fn enclosure_0(&self, address: u32) -> Option<Vec<u8>> {
        let leaves = || self.topology.expanders().filter(|it| it.enclosure > 0);
        let enclosure = Self::named(address, ADDRESS_ENCLOSURE, leaves().map(|it| it.enclosure))?;
        let leaf = leaves().find(|it| it.enclosure == enclosure)?;
        let mut page = new_page(ENCLOSURE_0, 4, 0x28);
        put(&mut page, 0x0C, &(self.expander_address(leaf.handle) + 1).to_le_bytes());
        put(&mut page, 0x16, &enclosure.to_le_bytes());
        put(&mut page, 0x18, &u16::from(leaf.phys - 1).to_le_bytes());
        Some(page)
    }

    fn sas_device(&self, address: u32) -> Option<SasDevice> {
        let handle = (address & 0xFFFF) as u16;
        if address == ADDRESS_HANDLE | u32::from(CONTROLLER_HANDLE) {
            return Some(SasDevice {
                address: self.address(),
                handle,
                info: INFO_CONTROLLER,
                flags: FLAG_PRESENT,
                ..SasDevice::default()
            });
        }
        // The handles of expanders are below those of disks. The handles of disks are not in order.
        let mut handles: Vec<u16> = self.topology.expanders().map(|it| it.handle).collect();
        handles.extend(self.phys.iter().filter_map(super::device::Phy::handle));
        handles.sort_unstable();
        let handle = Self::named(address, ADDRESS_HANDLE, handles.into_iter())?;
        match self.topology.expander(handle) {
            Some(expander) => Some(SasDevice {
                address: self.expander_address(handle),
                enclosure: expander.enclosure,
                parent: expander.parent,
                phy: expander.parent_phy,
                handle,
                info: INFO_EXPANDER,
                flags: FLAG_PRESENT,
                ..SasDevice::default()
            }),
            None => self.disk(handle),
        }
    }

    fn disk(&self, handle: u16) -> Option<SasDevice> {
        let (number, phy) = self.phy_of(handle)?;
        let place = self.topology.place(number);
        Some(SasDevice {
            // Without an enclosure there are no slots: if such a disk has a slot number, Linux
            // takes it for another disk after a reset.
            slot: place.expander.map_or(0, |_| place.phy.into()),
            enclosure: place.expander.map_or(0, |it| it.enclosure),
            address: phy.unit.logical.facts().port.unwrap_or_default(),
            parent: place.expander.map_or(CONTROLLER_HANDLE, |it| it.handle),
            phy: place.phy,
            access: 0,
            handle,
            info: INFO_SAS_TARGET,
            flags: FLAG_PRESENT,
            port: place.port,
        })
    }
}
