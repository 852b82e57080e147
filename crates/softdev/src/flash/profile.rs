//! The parts of a modelled flash drive, and their times.

/// The parts of a drive and their times. Times are nanoseconds; in text they have the units that
/// their keys name.
///
/// The named profiles are typical of their kind, not of a product;
/// docs/design/soft-nvme-profiles.md says where the numbers come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// The named profile that it started from: `none`, `tlc`, `qlc` or `optane`.
    pub name: &'static str,
    /// The number of channels: buses that dies share.
    pub channels: u32,
    /// The number of dies on each channel. A die does one thing at a time.
    pub dies: u32,
    /// Bytes that a die reads or programs at once, over all of its planes; a multiple of 4096.
    pub page_bytes: u32,
    /// The number of pages that are erased together. A small drive has fewer, so that a die has at
    /// least 16 blocks.
    pub pages_per_block: u32,
    /// The time to read a page from the cells into the die's register (tR).
    pub read_ns: u64,
    /// The time to program a whole page from the die's register into the cells (tPROG).
    pub program_ns: u64,
    /// The time to erase a block (tBERS).
    pub erase_ns: u64,
    /// The time after which a read interrupts a program or an erase. With 0, the read waits for the
    /// end.
    pub suspend_ns: u64,
    /// The rate of a channel, in million bytes a second; 0 for no limit.
    pub channel_mb_per_s: u32,
    /// The rate of the interface to the host, in million bytes a second in each direction; 0 for no
    /// limit.
    pub link_mb_per_s: u32,
    /// The time between the starts of two commands. It limits IOPS when the dies do not.
    pub command_ns: u64,
    /// The time that the controller adds to each command.
    pub controller_ns: u64,
    /// The size of the DRAM cache for writes, in bytes. With 0, writes wait for the medium.
    pub cache_bytes: u64,
    /// Whether the content of the cache survives a power cut, so that a flush has nothing to do.
    pub cache_protected: bool,
    /// The number of bytes that can be programmed with one bit a cell before they must be folded; 0
    /// for no SLC cache.
    pub slc_bytes: u64,
    /// The time to program a page with one bit a cell.
    pub slc_program_ns: u64,
    /// The idle time after which a die folds the content of the SLC cache.
    pub slc_idle_ns: u64,
    /// The flash beyond the capacity that the host sees, as a share of that capacity.
    pub over_provisioning: f64,
    /// The share of the drive that was written in order before time 0.
    pub filled: f64,
    /// Whether cells are written in place, with no erase and no garbage.
    pub in_place: bool,
    /// The maximum deviation of a time of the medium from its mean, as a share: 0.1 is a tenth to
    /// either side.
    pub jitter: f64,
}

impl Profile {
    /// No delays: a command is done when it is executed.
    pub const NONE: Self = Self {
        name: "none",
        channels: 1,
        dies: 1,
        page_bytes: 4096,
        pages_per_block: 64,
        read_ns: 0,
        program_ns: 0,
        erase_ns: 0,
        suspend_ns: 0,
        channel_mb_per_s: 0,
        link_mb_per_s: 0,
        command_ns: 0,
        controller_ns: 0,
        cache_bytes: 0,
        cache_protected: true,
        slc_bytes: 0,
        slc_program_ns: 0,
        slc_idle_ns: 0,
        over_provisioning: 0.0,
        filled: 0.0,
        in_place: true,
        jitter: 0.0,
    };

    /// A drive for data centres: three bits a cell, a cache that survives a power cut.
    pub const TLC: Self = Self {
        name: "tlc",
        channels: 8,
        dies: 8,
        page_bytes: 64 << 10,
        pages_per_block: 384,
        read_ns: 50_000,
        program_ns: 1_000_000,
        erase_ns: 4_000_000,
        suspend_ns: 0,
        channel_mb_per_s: 1200,
        link_mb_per_s: 7000,
        command_ns: 650,
        controller_ns: 10_000,
        cache_bytes: 32 << 20,
        cache_protected: true,
        slc_bytes: 0,
        slc_program_ns: 0,
        slc_idle_ns: 0,
        over_provisioning: 0.15,
        filled: 0.0,
        in_place: false,
        jitter: 0.1,
    };

    /// A drive for desktops: four bits a cell, a limited SLC cache, and a cache whose content is
    /// lost with the power.
    pub const QLC: Self = Self {
        name: "qlc",
        channels: 4,
        dies: 4,
        page_bytes: 64 << 10,
        pages_per_block: 512,
        read_ns: 90_000,
        program_ns: 2_200_000,
        erase_ns: 10_000_000,
        channel_mb_per_s: 1200,
        link_mb_per_s: 3500,
        command_ns: 1500,
        controller_ns: 12_000,
        cache_bytes: 8 << 20,
        cache_protected: false,
        slc_bytes: 4 << 30,
        slc_program_ns: 300_000,
        slc_idle_ns: 50_000_000,
        over_provisioning: 0.07,
        ..Self::TLC
    };

    /// A 3D XPoint drive, written in place: about 10 µs for a read or a write.
    pub const OPTANE: Self = Self {
        name: "optane",
        channels: 7,
        dies: 4,
        page_bytes: 4096,
        read_ns: 4_000,
        program_ns: 5_000,
        channel_mb_per_s: 0,
        link_mb_per_s: 2500,
        command_ns: 1700,
        controller_ns: 4_000,
        over_provisioning: 0.0,
        cache_protected: true,
        in_place: true,
        jitter: 0.1,
        ..Self::NONE
    };

    /// A SAS drive for data centres with one of its two ports in use, modelled on published facts
    /// about the Kioxia KPM71RUG3T84.
    pub const SAS_SSD: Self = Self {
        name: "sas-ssd",
        read_ns: 20_300,
        program_ns: 1_900_000,
        link_mb_per_s: 2100,
        command_ns: 1390,
        controller_ns: 11_800,
        over_provisioning: 0.28,
        ..Self::TLC
    };

    /// All named profiles.
    pub const NAMED: [Self; 5] = [Self::NONE, Self::TLC, Self::QLC, Self::OPTANE, Self::SAS_SSD];

    /// Whether no operation takes time.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.name == "none"
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::NONE
    }
}
