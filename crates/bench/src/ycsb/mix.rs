//! The core workloads.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

/// One of YCSB's core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YcsbWorkload {
    /// Update heavy: half reads, half updates.
    A,
    /// Read mostly: 95 % reads, 5 % updates.
    B,
    /// Read only.
    C,
    /// Read latest: 95 % reads of the newest records, 5 % inserts.
    D,
    /// Short ranges: 95 % scans of up to 100 records, 5 % inserts.
    E,
    /// Read-modify-write: half reads, half read-modify-writes.
    F,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read_modify_write",
        }
    }
}

impl YcsbWorkload {
    /// Returns the two kinds of operations of the workload, and how many of 100 are of the first
    /// kind.
    fn kinds(self) -> (u8, Kind, Kind) {
        match self {
            Self::A => (50, Kind::Read, Kind::Update),
            Self::B => (95, Kind::Read, Kind::Update),
            Self::C => (100, Kind::Read, Kind::Read),
            Self::D => (95, Kind::Read, Kind::Insert),
            Self::E => (95, Kind::Scan, Kind::Insert),
            Self::F => (50, Kind::Read, Kind::ReadModifyWrite),
        }
    }

    pub(crate) fn draw(self, random: &mut Rng) -> Kind {
        let (percent, first, second) = self.kinds();
        if random.u8(0..100) < percent { first } else { second }
    }
}

impl fmt::Display for YcsbWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for YcsbWorkload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F]
            .into_iter()
            .find(|workload| workload.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("'{text}' is not a workload: choose A, B, C, D, E or F"))
    }
}
