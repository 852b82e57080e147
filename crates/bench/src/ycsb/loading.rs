//! Loads a store, and describes the load.

use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use qpair::{Error, ErrorKind, Result};

use super::keys::{META, USERS, key_of_mixed, mixed, noise};
use crate::harness::{Filler, Job, once, run_job};
use crate::kv::{Begin, Durability, Kv, KvSession};
use crate::progress::Progress;

const LOADED: &[u8] = b"loaded";

/// The store's description of its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loaded {
    records: u64,
    value_bytes: u64,
    /// The number of records, including those that completed runs inserted.
    pub(super) inserted: u64,
}

impl Loaded {
    async fn read<S: KvSession>(mut session: S) -> Result<Option<Self>> {
        let mut record = Vec::new();
        session.begin(Begin::read_only()).await?;
        if !session.get_into(META, LOADED, &mut record).await? {
            return Ok(None);
        }
        let word = |at: usize| -> Result<u64> {
            let bytes = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            let unknown =
                "the store's YCSB data has a layout that this version of qpair does not know";
            let unknown = || Error::new(ErrorKind::Invalid, unknown);
            bytes.map(u64::from_le_bytes).ok_or_else(unknown)
        };
        Ok(Some(Self { records: word(0)?, value_bytes: word(8)?, inserted: word(16)? }))
    }

    pub(super) async fn write<S: KvSession>(&self, session: &mut S) -> Result<()> {
        let words = [self.records, self.value_bytes, self.inserted];
        session.begin(Begin::read_write(Durability::Sync)).await?;
        session.put(META, LOADED, words.map(u64::to_le_bytes).as_flattened()).await?;
        session.commit().await
    }
}

/// Loads the store if it is empty. Returns also the records per second.
pub(super) fn prepare<K: Kv>(
    kv: &K,
    records: u64,
    value_bytes: usize,
    seed: u64,
    progress: &dyn Progress,
) -> Result<(Loaded, Option<f64>)> {
    let found = once(kv, Loaded::read)?;
    if let Some(loaded) = found {
        if loaded.records != records || loaded.value_bytes != value_bytes as u64 {
            let Loaded { records: has, value_bytes: bytes, .. } = loaded;
            return Err(Error::with_hint(
                ErrorKind::Exists,
                format!(
                    "the store was loaded with {has} records of {bytes} bytes; {records} of \
                     {value_bytes} were asked for"
                ),
                format!("choose --records {has}, or another --store"),
            ));
        }
        return Ok((loaded, None));
    }
    let began = Instant::now();
    let loaded = Loaded { records, value_bytes: value_bytes as u64, inserted: records };
    let phase = ("loading (sorted load)", records);
    run_job(kv, 1, phase, progress, move |session, job| load(session, job, loaded, seed))?;
    Ok((loaded, Some(records as f64 / began.elapsed().as_secs_f64())))
}

async fn load<S: KvSession>(
    mut session: S,
    job: Arc<Job>,
    loaded: Loaded,
    seed: u64,
) -> Result<()> {
    // The order takes 8 bytes of memory for each record, and makes the keys ascend.
    let mut order = Vec::new();
    order.try_reserve_exact(loaded.records as usize).map_err(|error| {
        Error::new(
            ErrorKind::Invalid,
            format!("allocating memory to put {} records in order: {error}", loaded.records),
        )
    })?;
    order.extend((0..loaded.records).map(mixed));
    order.sort_unstable();
    let mut filler = Filler::begin(&mut session, USERS, &job).await?;
    let mut random = Rng::with_seed(seed);
    let mut value = vec![0; loaded.value_bytes as usize];
    let outcome = async {
        for mixed in order {
            noise(&mut random, &mut value);
            filler.push(&key_of_mixed(mixed), &value).await?;
        }
        Ok(())
    }
    .await;
    filler.end(outcome).await?;
    loaded.write(&mut session).await
}
