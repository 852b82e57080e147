//! Loads a store, and tells what was loaded into it.

use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use qpair::{Error, ErrorKind, Result};

use super::keys::{META, USERS, key_of_mixed, mixed, noise};
use super::options::YcsbOptions;
use crate::harness::{Filler, Job, once, run_job};
use crate::kv::{Kv, KvError, KvLoader, KvResult, KvSession, read_record, write_record};
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
    async fn read<S: KvSession>(mut session: S) -> KvResult<Option<Self>> {
        let Some(record) = read_record(&mut session, META, LOADED).await? else { return Ok(None) };
        let word = |at: usize| -> KvResult<u64> {
            let bytes = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            let unknown = || KvError::Other("the store's YCSB data is not known here".to_owned());
            bytes.map(u64::from_le_bytes).ok_or_else(unknown)
        };
        Ok(Some(Self { records: word(0)?, value_bytes: word(8)?, inserted: word(16)? }))
    }

    pub(super) async fn write<S: KvSession>(&self, session: &mut S) -> KvResult<()> {
        let words = [self.records, self.value_bytes, self.inserted];
        write_record(session, META, LOADED, words.map(u64::to_le_bytes).as_flattened()).await
    }
}

/// Loads the store if it is empty. Returns also the records per second.
pub(super) fn prepare<K: Kv>(
    kv: &K,
    options: &YcsbOptions,
    value_bytes: usize,
    progress: &dyn Progress,
) -> Result<(Loaded, Option<f64>)> {
    let found = once(kv, Loaded::read)?;
    if let Some(loaded) = found {
        if loaded.records != options.records || loaded.value_bytes != value_bytes as u64 {
            let Loaded { records, value_bytes: bytes, .. } = loaded;
            return Err(Error::with_hint(
                ErrorKind::Exists,
                format!(
                    "the store was loaded with {records} records of {bytes} bytes; {} of \
                     {value_bytes} were asked for",
                    options.records
                ),
                format!("--records {records}, or another --store"),
            ));
        }
        return Ok((loaded, None));
    }
    let began = Instant::now();
    let records = options.records;
    let loaded = Loaded { records, value_bytes: value_bytes as u64, inserted: records };
    let seed = options.seed;
    let phase = ("loading (sorted load)", records);
    run_job(kv, 1, phase, progress, move |session, job| load(session, job, loaded, seed))?;
    Ok((loaded, Some(records as f64 / began.elapsed().as_secs_f64())))
}

async fn load<S: KvSession>(
    mut session: S,
    job: Arc<Job>,
    loaded: Loaded,
    seed: u64,
) -> KvResult<()> {
    // 8 bytes of memory a record, so that keys come in order.
    let mut order = Vec::new();
    order.try_reserve_exact(loaded.records as usize).map_err(|error| {
        KvError::Other(format!("memory to put {} records in order: {error}", loaded.records))
    })?;
    order.extend((0..loaded.records).map(mixed));
    order.sort_unstable();
    let mut filler = Filler::begin(&mut session, USERS, &job).await?;
    let outcome = fill(&mut filler, &order, loaded.value_bytes as usize, seed).await;
    filler.end(outcome).await?;
    loaded.write(&mut session).await
}

async fn fill<L: KvLoader>(
    filler: &mut Filler<L>,
    order: &[u64],
    value_bytes: usize,
    seed: u64,
) -> KvResult<()> {
    let mut random = Rng::with_seed(seed);
    let mut value = vec![0; value_bytes];
    for mixed in order {
        noise(&mut random, &mut value);
        filler.push(&key_of_mixed(*mixed), &value).await?;
    }
    Ok(())
}
