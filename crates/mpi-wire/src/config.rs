//! Configuration: the request, and the pages that a disk driver needs.

use crate::function;
use crate::message::{reply as new_reply, request};
use qpair_wire::le::{u16_at, u32_at, u64_at};
use qpair_wire::{put, u8_at};

pub const CONFIG_BYTES: usize = 0x2C;
pub const CONFIG_REPLY_BYTES: usize = 0x18;

pub mod action {
    pub const HEADER: u8 = 0;
    pub const READ_CURRENT: u8 = 1;
    pub const WRITE_CURRENT: u8 = 2;
    pub const WRITE_NVRAM: u8 = 4;
    pub const READ_DEFAULT: u8 = 5;
    pub const READ_NVRAM: u8 = 6;
}

pub mod page_type {
    pub const IO_UNIT: u8 = 0x00;
    pub const IOC: u8 = 0x01;
    pub const BIOS: u8 = 0x02;
    pub const MANUFACTURING: u8 = 0x09;
    pub const EXTENDED: u8 = 0x0F;
    pub const EXT_SAS_IO_UNIT: u8 = 0x10;
    pub const EXT_SAS_EXPANDER: u8 = 0x11;
    pub const EXT_SAS_DEVICE: u8 = 0x12;
    pub const EXT_SAS_PHY: u8 = 0x13;
    pub const EXT_SAS_ENCLOSURE: u8 = 0x15;
    pub const EXT_PCIE_DEVICE: u8 = 0x1D;
}

/// The identity of a page: type, extended type (0 for others), number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageId {
    pub kind: u8,
    pub extended: u8,
    pub number: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigRequest {
    /// The action: one of [`action`].
    pub action: u8,
    pub page: PageId,
    /// The length of the page in dwords.
    pub dwords: u16,
    pub version: u8,
    /// The address of the page among those of its kind (a handle, a phy).
    pub address: u32,
    /// The buffer: bytes and address.
    pub data: (u32, u64),
}

impl ConfigRequest {
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        let kind = u8_at(data, 0x17) & 0x0F;
        let is_extended = kind == page_type::EXTENDED;
        Self {
            action: u8_at(data, 0),
            page: PageId { kind, extended: u8_at(data, 6), number: u8_at(data, 0x16) },
            dwords: if is_extended { u16_at(data, 4) } else { u8_at(data, 0x15).into() },
            version: u8_at(data, 0x14),
            address: u32_at(data, 0x18),
            data: crate::sgl::decode_mpi(data.get(0x1C..).unwrap_or(&[])),
        }
    }

    #[must_use]
    pub fn encode(&self) -> [u8; CONFIG_BYTES] {
        let mut data = request::<CONFIG_BYTES>(function::CONFIG);
        data[0] = self.action;
        data[6] = self.page.extended;
        data[0x14] = self.version;
        data[0x16] = self.page.number;
        data[0x17] = self.page.kind;
        if self.page.kind == page_type::EXTENDED {
            put(&mut data, 4, &self.dwords.to_le_bytes());
        } else {
            data[0x15] = self.dwords as u8;
        }
        put(&mut data, 0x18, &self.address.to_le_bytes());
        put(&mut data, 0x1C, &crate::sgl::encode_mpi(self.data.1, self.data.0, true));
        data
    }

    /// Returns the reply: the page's length and version. It echoes the type whatever the status,
    /// since Linux stops the machine otherwise.
    #[must_use]
    pub fn reply(&self, asked: &[u8], dwords: u16, version: u8, status: u16) -> Vec<u8> {
        let mut data = new_reply(asked, CONFIG_REPLY_BYTES, status);
        data[6] = self.page.extended;
        data[0x14] = version;
        data[0x16] = self.page.number;
        data[0x17] = u8_at(asked, 0x17);
        if self.page.kind == page_type::EXTENDED {
            put(&mut data, 4, &dwords.to_le_bytes());
        } else {
            data[0x15] = dwords as u8;
        }
        data
    }
}

/// Returns the length in dwords and the version of a page, from a reply.
#[must_use]
pub fn decode_header(reply: &[u8]) -> (u16, u8) {
    let is_extended = u8_at(reply, 0x17) & 0x0F == page_type::EXTENDED;
    let dwords = if is_extended { u16_at(reply, 4) } else { u8_at(reply, 0x15).into() };
    (dwords, u8_at(reply, 0x14))
}

#[must_use]
pub fn new_page(id: PageId, version: u8, bytes: usize) -> Vec<u8> {
    let mut page = vec![0; bytes.next_multiple_of(4)];
    let dwords = page.len() / 4;
    page[0] = version;
    page[2] = id.number;
    page[3] = id.kind;
    if id.kind == page_type::EXTENDED {
        put(&mut page, 4, &(dwords as u16).to_le_bytes());
        page[6] = id.extended;
    } else {
        page[1] = dwords as u8;
    }
    page
}

pub const SAS_DEVICE_0: PageId =
    PageId { kind: page_type::EXTENDED, extended: page_type::EXT_SAS_DEVICE, number: 0 };
/// PCIe device page 0 (MPI 2.6), addressed as SAS device pages are.
pub const PCIE_DEVICE_0: PageId =
    PageId { kind: page_type::EXTENDED, extended: page_type::EXT_PCIE_DEVICE, number: 0 };
/// Address form of SAS device pages: the device with this handle.
pub const ADDRESS_HANDLE: u32 = 0x2000_0000;
/// Address form of SAS device pages: the device with the next handle; FFFFh: the first device.
pub const ADDRESS_NEXT_HANDLE: u32 = 0x0000_0000;
/// Device information: an end device that is a SAS target.
pub const INFO_SAS_TARGET: u32 = 0x401;
/// Device information bit: a SATA device.
pub const INFO_SATA_DEVICE: u32 = 0x80;
/// Device information: an edge expander, which accepts SMP.
pub const INFO_EXPANDER: u32 = 0x102;
/// Device information bit: a SAS target.
pub const INFO_SSP_TARGET: u32 = 0x400;
/// Device information of the controller itself: an end device that is an initiator of all
/// protocols.
pub const INFO_CONTROLLER: u32 = 0x71;
pub const FLAG_PRESENT: u16 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SasDevice {
    pub slot: u16,
    /// The enclosure; 0: none.
    pub enclosure: u16,
    pub address: u64,
    /// The handle of the parent device.
    pub parent: u16,
    /// The phy of the parent device.
    pub phy: u8,
    /// The reason why the device cannot be used; 0: it can.
    pub access: u8,
    pub handle: u16,
    /// The device information bits, such as [`INFO_SSP_TARGET`].
    pub info: u32,
    pub flags: u16,
    pub port: u8,
}

impl SasDevice {
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        Self {
            slot: u16_at(data, 0x08),
            enclosure: u16_at(data, 0x0A),
            address: u64_at(data, 0x0C),
            parent: u16_at(data, 0x14),
            phy: u8_at(data, 0x16),
            access: u8_at(data, 0x17),
            handle: u16_at(data, 0x18),
            info: u32_at(data, 0x1C),
            flags: u16_at(data, 0x20),
            port: u8_at(data, 0x22),
        }
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut data = new_page(SAS_DEVICE_0, 9, 0x38);
        put(&mut data, 0x08, &self.slot.to_le_bytes());
        put(&mut data, 0x0A, &self.enclosure.to_le_bytes());
        put(&mut data, 0x0C, &self.address.to_le_bytes());
        put(&mut data, 0x14, &self.parent.to_le_bytes());
        data[0x16] = self.phy;
        data[0x17] = self.access;
        put(&mut data, 0x18, &self.handle.to_le_bytes());
        put(&mut data, 0x1C, &self.info.to_le_bytes());
        put(&mut data, 0x20, &self.flags.to_le_bytes());
        data[0x22] = self.port;
        data
    }
}

/// PCIe device page 0: a drive behind PCIe on a tri-mode controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieDevice {
    /// The worldwide identifier of the drive.
    pub name: u64,
    pub handle: u16,
}

impl PcieDevice {
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        Self { name: u64_at(data, 0x0C), handle: u16_at(data, 0x18) }
    }

    /// Encodes the page of an NVMe drive that is present.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut data = new_page(PCIE_DEVICE_0, 1, 0x38);
        put(&mut data, 0x0C, &self.name.to_le_bytes());
        put(&mut data, 0x18, &self.handle.to_le_bytes());
        put(&mut data, 0x1C, &3u32.to_le_bytes());
        put(&mut data, 0x20, &1u32.to_le_bytes());
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_pages_survive_their_bytes() {
        let asked = ConfigRequest {
            action: action::READ_CURRENT,
            page: SAS_DEVICE_0,
            dwords: 14,
            version: 9,
            address: ADDRESS_HANDLE | 40,
            data: (56, 1 << 33),
        };
        assert_eq!(ConfigRequest::decode(&asked.encode()), asked);
        let reply = asked.reply(&asked.encode(), 14, 9, 0x22);
        assert_eq!(decode_header(&reply), (14, 9));
        assert_eq!(crate::message::status_of(&reply), 0x22);
        assert_eq!(u8_at(&reply, 0x17) & 0x0F, page_type::EXTENDED);
        let device = SasDevice {
            slot: 3,
            enclosure: 5,
            address: 0x5000_0000_0000_0003,
            parent: 1,
            phy: 3,
            access: 0,
            handle: 40,
            info: INFO_SAS_TARGET,
            flags: FLAG_PRESENT,
            port: 3,
        };
        let drive = PcieDevice { name: 0x5000_0000_0000_0004, handle: 99 };
        assert_eq!(PcieDevice::decode(&drive.encode()), drive);
        let page = device.encode();
        assert_eq!(SasDevice::decode(&page), device);
        assert_eq!((page[3], page[6]), (page_type::EXTENDED, page_type::EXT_SAS_DEVICE));
    }
}
