//! Messages about the device and its interrupts.

use qpair_socket::{Fields, Writer};

pub mod irq_index {
    pub const INTX: u32 = 0;
    pub const MSI: u32 = 1;
    pub const MSIX: u32 = 2;
    /// The number of kinds of a PCI function; the others are for errors and for requests to release
    /// the device.
    pub const COUNT: u32 = 5;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    pub can_reset: bool,
    pub is_pci: bool,
    pub regions: u32,
    pub irqs: u32,
}

impl DeviceInfo {
    const BYTES: u32 = 16;
    const RESET: u32 = 1;
    const PCI: u32 = 2;

    #[must_use]
    pub fn request() -> Vec<u8> {
        Writer::default().u32(Self::BYTES).u32(0).u32(0).u32(0).done()
    }

    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        let (_argsz, flags) = (fields.u32()?, fields.u32()?);
        Some(Self {
            can_reset: flags & Self::RESET != 0,
            is_pci: flags & Self::PCI != 0,
            regions: fields.u32()?,
            irqs: fields.u32()?,
        })
    }

    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let flags =
            if self.can_reset { Self::RESET } else { 0 } | if self.is_pci { Self::PCI } else { 0 };
        Writer::default().u32(Self::BYTES).u32(flags).u32(self.regions).u32(self.irqs).done()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqInfo {
    /// The index of the kind: one of [`irq_index`].
    pub index: u32,
    /// The number of vectors; 0 if the device does not have this kind.
    pub count: u32,
}

impl IrqInfo {
    const BYTES: u32 = 16;
    const EVENTFD: u32 = 1;

    /// Decodes an answer, or a request, of which only the index is meaningful.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        let (_argsz, _flags) = (fields.u32()?, fields.u32()?);
        Some(Self { index: fields.u32()?, count: fields.u32()? })
    }

    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let flags = if self.count > 0 { Self::EVENTFD } else { 0 };
        Writer::default().u32(Self::BYTES).u32(flags).u32(self.index).u32(self.count).done()
    }
}

/// The kind of data in a [`SetIrqs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqData {
    None,
    /// A byte for each vector.
    Bools,
    /// A descriptor for each vector, or none for all of them.
    Events,
}

/// The action of a [`SetIrqs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    Mask,
    Unmask,
    /// Sets the events that vectors signal.
    Trigger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs {
    pub data: IrqData,
    pub action: IrqAction,
    /// The index of the kind of interrupts: one of [`irq_index`].
    pub index: u32,
    /// The first vector.
    pub start: u32,
    /// The number of vectors; 0: all of them are turned off.
    pub count: u32,
}

impl SetIrqs {
    const BYTES: u32 = 20;

    /// Decodes a command; also `None` for flags without a meaning.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        let (_argsz, flags) = (fields.u32()?, fields.u32()?);
        let data = match flags & 0x7 {
            1 => IrqData::None,
            2 => IrqData::Bools,
            4 => IrqData::Events,
            _ => return None,
        };
        let action = match flags & !0x7 {
            0x8 => IrqAction::Mask,
            0x10 => IrqAction::Unmask,
            0x20 => IrqAction::Trigger,
            _ => return None,
        };
        let (index, start, count) = (fields.u32()?, fields.u32()?, fields.u32()?);
        Some(Self { data, action, index, start, count })
    }

    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let data = match self.data {
            IrqData::None => 1,
            IrqData::Bools => 2,
            IrqData::Events => 4,
        };
        let action = match self.action {
            IrqAction::Mask => 0x8,
            IrqAction::Unmask => 0x10,
            IrqAction::Trigger => 0x20,
        };
        Writer::default()
            .u32(Self::BYTES)
            .u32(data | action)
            .u32(self.index)
            .u32(self.start)
            .u32(self.count)
            .done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let info = DeviceInfo { can_reset: true, is_pci: true, regions: 9, irqs: 5 };
        assert_eq!(info.payload(), [16, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(DeviceInfo::parse(&info.payload()), Some(info));
        assert_eq!(DeviceInfo::parse(&[0; 15]), None);

        let info = IrqInfo { index: 2, count: 33 };
        assert_eq!(IrqInfo::parse(&info.payload()), Some(info));
        assert_eq!(IrqInfo::parse(&[0; 15]), None);
    }

    #[test]
    fn interrupts_as_peers_set_them() {
        let bytes = |flags: u8, count: u8| {
            [20, 0, 0, 0, flags, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, count, 0, 0, 0]
        };
        let assign = SetIrqs {
            data: IrqData::Events,
            action: IrqAction::Trigger,
            index: 2,
            start: 0,
            count: 1,
        };
        assert_eq!(SetIrqs::parse(&bytes(0x24, 1)), Some(assign));
        assert_eq!(assign.payload(), bytes(0x24, 1));
        let off = SetIrqs { data: IrqData::None, count: 0, ..assign };
        assert_eq!(SetIrqs::parse(&bytes(0x21, 0)), Some(off));
        for wrong in [0, 0x4, 0x20, 0x26, 0x2C, 0x64] {
            assert_eq!(SetIrqs::parse(&bytes(wrong, 1)), None, "{wrong:#x}");
        }
        assert_eq!(SetIrqs::parse(&bytes(0x24, 1)[..19]), None);
    }
}
