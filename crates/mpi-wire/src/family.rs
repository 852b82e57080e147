//! The families of controllers by their PCI ids, for properties that the controllers do not report.

pub const VENDOR: u16 = 0x1000;
/// A 9500-8e: MPI 2.6, of the last family ("Sea").
pub const SAS3816: u16 = 0x00E6;
/// A SAS3008: MPI 2.5.
pub const SAS3008: u16 = 0x0097;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Family {
    pub device: u16,
    pub revision: u8,
}

impl Family {
    /// Whether a register may read as zero by mistake ("Aero" and "Sea").
    #[must_use]
    pub fn misreads(self) -> bool {
        matches!(self.device, 0x00E0..=0x00E7)
    }

    /// Whether the controller is of a SAS 3.5 family.
    fn is_later(self) -> bool {
        self.misreads() || matches!(self.device, 0x00AA..=0x00AF | 0x00D0..=0x00D2)
    }

    /// Whether a controller with this interface version and number of vectors accepts the indices
    /// of reply queues by the combined registers.
    #[must_use]
    pub fn combines(self, version: u16, vectors: u8) -> bool {
        let has_registers = version >= crate::init::VERSION_26 || self.revision >= 2;
        has_registers && vectors > if self.is_later() { 16 } else { 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::{VERSION, VERSION_26};

    #[test]
    fn combined_registers() {
        let of = |device, revision| Family { device, revision };
        assert!(!of(SAS3008, 1).combines(VERSION, 96));
        assert!(of(SAS3008, 2).combines(VERSION, 9) && !of(SAS3008, 2).combines(VERSION, 8));
        assert!(
            of(SAS3816, 0).combines(VERSION_26, 17) && !of(SAS3816, 0).combines(VERSION_26, 16)
        );
        // SAS3216: 2.6, and not of the later families.
        assert!(of(0x00C9, 0).combines(VERSION_26, 9));
        assert!(of(SAS3816, 0).misreads() && !of(0x00AC, 0).misreads());
    }
}
