//! The parts that a backup has, and the journal's entries, which add parts and remove them.

use std::collections::{BTreeMap, BTreeSet};

use qpair_engine::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The version of the format that this software writes and reads.
pub(crate) const VERSION: u32 = 1;

/// The level of a full part. Those of other parts say how often they were merged.
pub(crate) const FULL: u8 = u8::MAX;

/// A run of a part's bytes: one record of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) object: String,
    /// The distance from its beginning to the object's end, so that it does not depend on what an
    /// entry has before its pieces.
    pub(crate) from_end: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u64,
}

/// The changes from one point to another, or with [`FULL`] all records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) id: u64,
    pub(crate) level: u8,
    /// Parts of one chain have the changes of one feed without a gap.
    pub(crate) chain: u64,
    pub(crate) from: u64,
    /// The last commit in it. Of a full part: the commit after which changes are needed.
    pub(crate) to: u64,
    /// The first point that can be restored with a full part. Up to it, changes were made while
    /// the records were read.
    pub(crate) usable_from: u64,
    /// The time of the point at its end, in milliseconds since 1970.
    pub(crate) time_ms: u64,
    pub(crate) changes: u64,
    pub(crate) bytes: u64,
    pub(crate) pieces: Vec<Piece>,
}

/// One entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) version: u32,
    pub(crate) number: u64,
    pub(crate) epoch: u64,
    /// A random number of the writer.
    pub(crate) writer: u64,
    pub(crate) time_ms: u64,
    /// The store that is backed up and its page size: in the first entry of an epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) opens: Option<(String, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) add: Vec<Part>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) remove: Vec<u64>,
}

/// The state after some entries of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    /// The number of the last entry; 0 before the first one.
    pub(crate) number: u64,
    pub(crate) epoch: u64,
    pub(crate) writer: u64,
    pub(crate) store: String,
    pub(crate) page_size: u64,
    /// The entries that begin an epoch. They are never removed: each is in the way of the writer
    /// before it.
    pub(crate) openings: BTreeSet<u64>,
    pub(crate) parts: BTreeMap<u64, Part>,
    /// The number that no part had so far.
    pub(crate) next_part: u64,
}

impl Manifest {
    pub(crate) fn check_version(version: u32) -> Result<()> {
        if version == VERSION {
            return Ok(());
        }
        Err(Error::with_hint(
            ErrorKind::Version,
            format!("the backup has format {version}; this software reads {VERSION}"),
            "use a newer version of the software",
        ))
    }

    /// Applies the next entry.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Result<()> {
        Self::check_version(entry.version)?;
        if entry.number != self.number + 1 || entry.epoch < self.epoch {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "the backup's journal has entry {} after entry {}",
                    entry.number, self.number
                ),
            ));
        }
        self.version = VERSION;
        (self.number, self.epoch, self.writer) = (entry.number, entry.epoch, entry.writer);
        if let Some((store, page_size)) = &entry.opens {
            self.openings.insert(entry.number);
            (self.store, self.page_size) = (store.clone(), *page_size);
        }
        for id in &entry.remove {
            self.parts.remove(id);
        }
        for part in &entry.add {
            self.next_part = self.next_part.max(part.id + 1);
            self.parts.insert(part.id, part.clone());
        }
        Ok(())
    }

    /// The parts of a chain that are not full, of this level.
    pub(crate) fn level(&self, chain: u64, level: u8) -> impl Iterator<Item = &Part> {
        self.parts.values().filter(move |part| part.chain == chain && part.level == level)
    }

    pub(crate) fn fulls(&self) -> impl Iterator<Item = &Part> {
        self.parts.values().filter(|part| part.level == FULL)
    }

    /// The names of all objects that parts refer to.
    pub(crate) fn objects(&self) -> BTreeSet<&str> {
        let pieces = self.parts.values().flat_map(|part| &part.pieces);
        pieces.map(|piece| piece.object.as_str()).collect()
    }
}
