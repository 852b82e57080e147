//! Tables and ranges of keys, and the options of transactions.

use std::fmt;
use std::str::FromStr;

/// A table: its position in the list of names that the store was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u8);

impl TableId {
    /// Returns the table's position.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The durability that a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A commit returns when it survives a loss of power.
    #[default]
    Sync,
    /// As [`Durability::Sync`], awaited together with other commits. A store without group commit
    /// treats it as [`Durability::Sync`].
    Group,
    /// A commit returns when other transactions see it, and is durable some time later.
    Async,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sync => "sync",
            Self::Group => "group",
            Self::Async => "async",
        })
    }
}

impl From<Durability> for qpair::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Sync => Self::Sync,
            Durability::Group => Self::Group,
            Durability::Async => Self::Async,
        }
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Sync, Self::Group, Self::Async]
            .into_iter()
            .find(|durability| durability.to_string() == text)
            .ok_or_else(|| format!("'{text}' is no durability: sync, group, async"))
    }
}

/// The options of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Whether the transaction only reads. It reads a snapshot and never conflicts.
    pub read_only: bool,
    /// The durability that the commit waits for.
    pub durability: Durability,
}

impl Begin {
    /// Returns the options of a snapshot.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, durability: Durability::Async }
    }

    /// Returns the options of a transaction that writes.
    #[must_use]
    pub fn read_write(durability: Durability) -> Self {
        Self { read_only: false, durability }
    }
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending, from the least key.
    Forward,
    /// Descending, from the greatest key.
    Backward,
}

/// The keys `from..to`, including `from` and excluding `to`. Both directions scan the same keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'a> {
    /// The least key; empty: the beginning of the table.
    pub from: &'a [u8],
    /// The first key beyond the range; empty: the end of the table.
    pub to: &'a [u8],
}

impl KeyRange<'_> {
    /// The whole table.
    pub const ALL: KeyRange<'static> = KeyRange { from: &[], to: &[] };
}
