//! Tables and ranges of keys, and the options of transactions.

pub use qpair::Durability;

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

/// Returns the name of a durability, for reports.
pub(crate) fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Sync => "sync",
        Durability::Group => "group",
        Durability::Async => "async",
    }
}

/// The options of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Whether the transaction only reads. It reads a snapshot and never conflicts.
    pub read_only: bool,
    /// The durability that the commit waits for. A store without group commit treats
    /// [`Durability::Group`] as [`Durability::Sync`].
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
