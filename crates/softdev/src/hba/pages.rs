//! Configuration pages: those that lead a driver to disks. All others are refused, as a driver may find on any card.

use qpair_mpi_wire::config::{
    ADDRESS_HANDLE, ADDRESS_NEXT_HANDLE, ConfigRequest, FLAG_PRESENT, INFO_CONTROLLER,
    INFO_SAS_TARGET, PCIE_DEVICE_0, PageId, PcieDevice, SAS_DEVICE_0, SasDevice, action, new_page,
    page_type,
};
use qpair_mpi_wire::ioc_status;

use super::device::SoftHba;

/// The controller's own handle.
pub(crate) const CONTROLLER_HANDLE: u16 = 1;
/// 12 Gbit/s, as rates are written: negotiated, and programmed with its minimum.
const RATE: u8 = 0xBB;

const fn extended(extended: u8, number: u8) -> PageId {
    PageId { kind: page_type::EXTENDED, extended, number }
}
const SAS_IO_UNIT_0: PageId = extended(page_type::EXT_SAS_IO_UNIT, 0);
const SAS_IO_UNIT_1: PageId = extended(page_type::EXT_SAS_IO_UNIT, 1);
const SAS_PHY_0: PageId = extended(page_type::EXT_SAS_PHY, 0);

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = page.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

impl SoftHba {
    /// A page; or why there is none.
    pub(crate) fn page(&self, asked: &ConfigRequest) -> Result<Vec<u8>, u16> {
        match asked.action {
            action::HEADER | action::READ_CURRENT | action::READ_DEFAULT | action::READ_NVRAM => {}
            action::WRITE_CURRENT | action::WRITE_NVRAM => return Err(ioc_status::INVALID_FIELD),
            _ => return Err(ioc_status::CONFIG_INVALID_ACTION),
        }
        let page = match asked.page {
            SAS_IO_UNIT_0 => Some(self.sas_io_unit_0()),
            SAS_IO_UNIT_1 => Some(self.sas_io_unit_1()),
            // The head says nothing of a device, and there need be none.
            SAS_PHY_0 if asked.action == action::HEADER => Some(self.sas_phy_0(0)),
            SAS_PHY_0 => {
                let phy = asked.address & 0xFF;
                ((phy as usize) < self.phys().len()).then(|| self.sas_phy_0(phy as u8))
            }
            SAS_DEVICE_0 if asked.action == action::HEADER => Some(SasDevice::default().encode()),
            SAS_DEVICE_0 => self.sas_device(asked.address).map(|device| device.encode()),
            PCIE_DEVICE_0 => {
                let form = asked.address & 0xF000_0000;
                let handle = (asked.address & 0xFFFF) as u16;
                let is_it = |it: &PcieDevice| match form {
                    _ if asked.action == action::HEADER => true,
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
        let phys = self.phys();
        let mut page = new_page(SAS_IO_UNIT_0, 5, 0x10 + 20 * phys.len());
        page[0x0C] = phys.len() as u8;
        for (number, phy) in phys.iter().enumerate() {
            let at = 0x10 + 20 * number;
            let handle = phy.handle();
            page[at] = number as u8;
            page[at + 3] = if handle.is_some() { RATE } else { 0 };
            let info = if handle.is_some() { INFO_CONTROLLER } else { 0 };
            put(&mut page, at + 4, &info.to_le_bytes());
            put(&mut page, at + 8, &handle.unwrap_or(0).to_le_bytes());
            put(&mut page, at + 10, &CONTROLLER_HANDLE.to_le_bytes());
        }
        page
    }

    fn sas_io_unit_1(&self) -> Vec<u8> {
        let phys = self.phys().len();
        let mut page = new_page(SAS_IO_UNIT_1, 9, 0x14 + 12 * phys);
        page[0x10] = phys as u8;
        for number in 0..phys {
            let at = 0x14 + 12 * number;
            page[at] = number as u8;
            // From 1.5 to 12 Gbit/s.
            page[at + 3] = 0xB8;
            put(&mut page, at + 4, &INFO_CONTROLLER.to_le_bytes());
        }
        page
    }

    fn sas_phy_0(&self, number: u8) -> Vec<u8> {
        let handle = self.phys().get(usize::from(number)).and_then(super::device::Phy::handle);
        let mut page = new_page(SAS_PHY_0, 3, 0x20);
        put(&mut page, 0x08, &CONTROLLER_HANDLE.to_le_bytes());
        put(&mut page, 0x0C, &handle.unwrap_or(0).to_le_bytes());
        page[0x14] = 0xB8;
        page[0x15] = 0xB8;
        page[0x1C] = if handle.is_some() { RATE } else { 0 };
        page
    }

    fn sas_device(&self, address: u32) -> Option<SasDevice> {
        let handle = (address & 0xFFFF) as u16;
        match address & 0xF000_0000 {
            ADDRESS_HANDLE if handle == CONTROLLER_HANDLE => Some(SasDevice {
                address: self.address(),
                handle,
                info: INFO_CONTROLLER,
                flags: FLAG_PRESENT,
                ..SasDevice::default()
            }),
            ADDRESS_HANDLE => self.disk(handle),
            ADDRESS_NEXT_HANDLE => {
                let handles = self.phys().iter().filter_map(super::device::Phy::handle);
                let next = handles.filter(|it| handle == 0xFFFF || *it > handle).min()?;
                self.disk(next)
            }
            _ => None,
        }
    }

    fn disk(&self, handle: u16) -> Option<SasDevice> {
        let (number, phy) = self.phy_of(handle)?;
        let number = number as u8;
        Some(SasDevice {
            // Without an enclosure there are no slots: Linux takes such a disk for another one after a reset if it has a number here.
            slot: 0,
            address: phy.unit.options.port,
            parent: CONTROLLER_HANDLE,
            phy: number,
            access: 0,
            handle,
            info: INFO_SAS_TARGET,
            flags: FLAG_PRESENT,
            port: number,
        })
    }
}
