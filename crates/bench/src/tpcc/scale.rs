//! The size of the database, and the record in the store that states it.

use qpair::{Error, ErrorKind, Result};

use super::schema::META;
use crate::kv::{Begin, Durability, KvSession};

/// The key of the record that describes the load.
const LOADED: &[u8] = b"loaded";
/// The first bytes of the record.
const MAGIC: &[u8; 8] = b"tpcc 2\0\0";
const RECORD_BYTES: usize = 32;

/// The cardinalities of the database. Except in tests, only the number of warehouses differs from
/// the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub warehouses: u32,
    /// The number of items; a warehouse has stock of each. The standard has 100,000.
    pub items: u32,
    /// The number of customers of a district, and of its orders at first. The standard has 3000.
    pub customers: u16,
}

/// The number of districts of a warehouse (TPC-C 1.2.1).
pub(crate) const DISTRICTS: u8 = 10;

impl Scale {
    /// Returns the standard's cardinalities.
    #[must_use]
    pub fn standard(warehouses: u32) -> Self {
        Self { warehouses, items: 100_000, customers: 3000 }
    }

    /// Returns the districts of all warehouses in the order of their keys.
    pub(crate) fn districts(&self) -> impl Iterator<Item = (u32, u8)> + use<> {
        (1..=self.warehouses).flat_map(|w| (1..=DISTRICTS).map(move |d| (w, d)))
    }

    /// Returns the number of orders of a district that are delivered when it is loaded: 7 of 10, as
    /// 2100 of the standard's 3000.
    #[must_use]
    pub fn delivered_orders(&self) -> u32 {
        u32::from(self.customers) * 7 / 10
    }

    /// Returns the number of last names: the standard's 1000, or the number of customers if that is
    /// less.
    pub(crate) fn last_names(&self) -> u16 {
        self.customers.min(1000)
    }
}

/// The store's description of its load and its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) scale: Scale,
    pub(crate) seed: u64,
    /// The number of runs so far. Each run has its own keys for rows of history.
    pub(crate) runs: u32,
}

impl Loaded {
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(MAGIC);
        record[8..12].copy_from_slice(&self.scale.warehouses.to_le_bytes());
        record[12..16].copy_from_slice(&self.scale.items.to_le_bytes());
        record[16..18].copy_from_slice(&self.scale.customers.to_le_bytes());
        record[20..24].copy_from_slice(&self.runs.to_le_bytes());
        record[24..32].copy_from_slice(&self.seed.to_le_bytes());
        record
    }

    fn decode(record: &[u8]) -> Result<Self> {
        let unknown =
            "the store's TPC-C data has a layout that this version of qpair does not know";
        let unknown = || Error::new(ErrorKind::Invalid, unknown);
        let record: &[u8; RECORD_BYTES] = record.try_into().map_err(|_| unknown())?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| record[at + byte]));
        if &record[..8] != MAGIC {
            return Err(unknown());
        }
        let scale = Scale {
            warehouses: word(8),
            items: word(12),
            customers: u16::from_le_bytes([record[16], record[17]]),
        };
        let seed = u64::from(word(24)) | u64::from(word(28)) << 32;
        Ok(Self { scale, seed, runs: word(20) })
    }

    /// Reads the description; `None` unless the store was loaded completely.
    pub(crate) async fn read<S: KvSession>(session: &mut S) -> Result<Option<Self>> {
        let mut record = Vec::new();
        session.begin(Begin::read_only()).await?;
        let found = session.get_into(META, LOADED, &mut record).await?;
        session.commit().await?;
        found.then(|| Self::decode(&record)).transpose()
    }

    /// Writes the description.
    pub(crate) async fn write<S: KvSession>(&self, session: &mut S) -> Result<()> {
        session.begin(Begin::read_write(Durability::Sync)).await?;
        session.put(META, LOADED, &self.encode()).await?;
        session.commit().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_says_what_was_written() {
        let loaded =
            Loaded { scale: Scale::standard(7), seed: 0x1234_5678_9abc_def0, runs: 0x0102_0304 };
        assert_eq!(Loaded::decode(&loaded.encode()).unwrap(), loaded);
        assert!(Loaded::decode(&[0; RECORD_BYTES]).is_err());
        assert!(Loaded::decode(&loaded.encode()[1..]).is_err());
    }
}
