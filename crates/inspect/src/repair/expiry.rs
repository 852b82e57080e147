//! The index of expiry times in a repair: its definitions and its horizon are taken; its entries
//! are made again, as the records are saved.

use std::collections::BTreeMap;
use std::time::Duration;

use qpair_engine::{Store, TableOptions};
use qpair_format::Result;
use qpair_format::codec::Codec;
use qpair_format::expiry::{HORIZON_KEY, TTL_MAX_MS, TTL_MIN_MS, decode_definition, decode_ms};
use qpair_format::values::Compression;

/// The time to live of a table whose definition is lost: records put from now on live that long.
const TTL_UNKNOWN_MS: u64 = 30 * 86_400_000;

/// The content of the damaged store's index.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    /// The tree that is the index.
    pub(super) index: Option<u32>,
    ttls_ms: BTreeMap<u32, u64>,
    horizon_ms: u64,
}

impl Expiry {
    /// Notes a record of the index.
    pub(super) fn note(&mut self, key: &[u8], value: &[u8]) {
        if key == HORIZON_KEY {
            self.horizon_ms = self.horizon_ms.max(decode_ms(value).unwrap_or(0));
        } else if let Some((tree, ttl_ms)) = decode_definition(key, value) {
            self.ttls_ms.insert(tree, ttl_ms.clamp(TTL_MIN_MS, TTL_MAX_MS));
        }
    }

    /// Returns the options of the table that a tree's records are saved into, and whether the
    /// tree's time to live is lost.
    pub(super) fn options(&self, tree: u32) -> (TableOptions, bool) {
        let options = TableOptions::default().compression(Compression::of_tree(tree));
        if !Codec::of_tree(tree).expires() {
            return (options, false);
        }
        let known = self.ttls_ms.get(&tree).copied();
        let ttl = Duration::from_millis(known.unwrap_or(TTL_UNKNOWN_MS));
        (options.ttl(ttl), known.is_none())
    }

    /// Gives the horizon to the new store: what has expired stays so.
    pub(super) fn raise(&self, target: &Store) -> Result<()> {
        target.raise_horizon(self.horizon_ms)
    }
}
