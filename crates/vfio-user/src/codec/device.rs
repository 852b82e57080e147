//! What a device is, and its interrupts.

use qpair_socket::{Fields, Writer};

/// Numbers of kinds of interrupts.
pub mod irq_index {
    /// A line.
    pub const INTX: u32 = 0;
    /// MSI.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// How many kinds there are of a PCI function; the others are for errors and for asking for the device back.
    pub const COUNT: u32 = 5;
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Whether it can be reset.
    pub can_reset: bool,
    /// Whether it is a PCI function.
    pub is_pci: bool,
    /// Regions.
    pub regions: u32,
    /// Kinds of interrupts.
    pub irqs: u32,
}

impl DeviceInfo {
    const BYTES: u32 = 16;
    const RESET: u32 = 1;
    const PCI: u32 = 2;

    /// The request.
    #[must_use]
    pub fn request() -> Vec<u8> {
        Writer::default().u32(Self::BYTES).u32(0).u32(0).u32(0).done()
    }

    /// From the bytes of an answer.
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

    /// As bytes.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let flags =
            if self.can_reset { Self::RESET } else { 0 } | if self.is_pci { Self::PCI } else { 0 };
        Writer::default().u32(Self::BYTES).u32(flags).u32(self.regions).u32(self.irqs).done()
    }
}

/// What a kind of interrupts is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqInfo {
    /// Its number.
    pub index: u32,
    /// Vectors; 0: it is not there.
    pub count: u32,
}

impl IrqInfo {
    const BYTES: u32 = 16;
    const EVENTFD: u32 = 1;

    /// From the bytes of an answer; of a request, which looks the same, only the index means something.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        let (_argsz, _flags) = (fields.u32()?, fields.u32()?);
        Some(Self { index: fields.u32()?, count: fields.u32()? })
    }

    /// As bytes.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let flags = if self.count > 0 { Self::EVENTFD } else { 0 };
        Writer::default().u32(Self::BYTES).u32(flags).u32(self.index).u32(self.count).done()
    }
}

/// What comes with a [`SetIrqs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqData {
    /// Nothing.
    None,
    /// A byte for each vector.
    Bools,
    /// A descriptor for each vector, or none for all of them.
    Events,
}

/// What a [`SetIrqs`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// Vectors are masked.
    Mask,
    /// Vectors are unmasked.
    Unmask,
    /// Where vectors signal.
    Trigger,
}

/// Sets interrupts up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs {
    /// What comes with it.
    pub data: IrqData,
    /// What it is about.
    pub action: IrqAction,
    /// The kind of interrupts.
    pub index: u32,
    /// First vector.
    pub start: u32,
    /// Vectors; 0: all of them are turned off.
    pub count: u32,
}

impl SetIrqs {
    const BYTES: u32 = 20;

    /// From bytes; `None` also for flags that mean nothing.
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

    /// As bytes.
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
