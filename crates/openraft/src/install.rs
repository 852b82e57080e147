//! Building and installing snapshots. A snapshot is built from one view of the store. An
//! installed one fills another table, and one transaction makes that table the state.

use crate::codec::{decode, encode};
use crate::group::{Data, Group, data_name, key};
use crate::snapshot::{self, Records};
use qpair::{Error, ErrorKind, Result, Snapshot, WriteBatch};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The bytes of one record of a stored snapshot.
const CHUNK_BYTES: usize = 1 << 20;
/// The bytes of records that one transaction installs.
const INSTALL_BYTES: usize = 4 << 20;

/// A view of the state from which a snapshot is built.
#[derive(Debug)]
pub(crate) struct View {
    snapshot: Snapshot,
    data: Data,
}

impl Group {
    /// A view of the state as of now; called between two applies.
    pub(crate) fn view(&self) -> Result<View> {
        Ok(View { data: self.data(), snapshot: self.store().snapshot()? })
    }

    /// The bytes of a snapshot of the view, stored as the current one with what `describe` makes
    /// of the position and the membership. Blocks.
    pub(crate) fn build<P: DeserializeOwned, M: DeserializeOwned + Default, S: Serialize>(
        &self,
        view: &View,
        describe: impl FnOnce(Option<P>, M, u64) -> S,
    ) -> Result<(S, Vec<u8>)> {
        let position = |key: &[u8]| view.snapshot.get(self.positions(), key);
        let applied =
            position(key::APPLIED)?.map(|bytes| decode("the position", &bytes)).transpose()?;
        let membership = match position(key::MEMBERSHIP)? {
            Some(bytes) => decode("the membership", &bytes)?,
            None => M::default(),
        };
        let mut bytes = Vec::new();
        snapshot::begin(&mut bytes);
        let mut records = 0;
        for record in view.snapshot.range(&view.data.table, ..)? {
            let (key, value) = record?;
            snapshot::push(&mut bytes, &key, &value);
            records += 1;
        }
        snapshot::end(&mut bytes, records);
        let number = self.snapshot_number()? + 1;
        let meta = describe(applied, membership, number);
        self.store_chunks(number, &bytes)?;
        let mut batch = WriteBatch::default();
        self.put_current(&mut batch, number, &meta)?;
        self.store().write(&batch)?;
        self.remove_unfinished_snapshots()?;
        Ok((meta, bytes))
    }

    /// Replaces the state with a snapshot's. Until the last transaction the state is the one
    /// before; its commit is durable when the call returns. Blocks.
    pub(crate) fn install<P: Serialize, M: Serialize, S: Serialize>(
        &self,
        applied: Option<&P>,
        membership: &M,
        meta: &S,
        bytes: &[u8],
    ) -> Result<()> {
        snapshot::check(bytes)?;
        let old = self.data();
        let generation = old.generation + 1;
        let name = data_name(self.name(), generation);
        // Left by an installation that failed.
        self.store().drop_table(&name).or_else(unless_missing)?;
        let table = self.store().table(&name)?;
        let mut batch = WriteBatch::default();
        let mut batch_bytes = 0;
        for record in Records::new(bytes)? {
            let (key, value) = record?;
            batch.put(&table, key, value);
            batch_bytes += key.len() + value.len() + 64;
            if batch_bytes >= INSTALL_BYTES {
                self.store().write(&batch)?;
                batch.clear();
                batch_bytes = 0;
            }
        }
        self.store().write(&batch)?;
        let number = self.snapshot_number()? + 1;
        self.store_chunks(number, bytes)?;

        batch.clear();
        let positions = self.positions();
        batch.put(positions, key::GENERATION, &encode("the generation", &generation)?);
        batch.put(positions, key::MEMBERSHIP, &encode("the membership", membership)?);
        match applied {
            Some(applied) => batch.put(positions, key::APPLIED, &encode("the position", applied)?),
            None => batch.delete(positions, key::APPLIED),
        };
        self.put_current(&mut batch, number, meta)?;
        self.store().write(&batch)?;
        self.replace_data(Data { generation, table });
        self.store().drop_table(&data_name(self.name(), old.generation)).or_else(unless_missing)?;
        self.remove_unfinished_snapshots()
    }

    /// The current snapshot's description and bytes. Blocks.
    pub(crate) fn current_snapshot<S: DeserializeOwned>(&self) -> Result<Option<(S, Vec<u8>)>> {
        let view = self.store().snapshot()?;
        let Some(current) = view.get(self.positions(), key::SNAPSHOT)? else { return Ok(None) };
        let (number, meta): (u64, Vec<u8>) = decode("the current snapshot", &current)?;
        let mut bytes = Vec::new();
        for chunk in view.range(self.snapshots(), chunk_key(number, 0)..chunk_key(number + 1, 0))? {
            bytes.extend_from_slice(&chunk?.1);
        }
        Ok(Some((decode("the snapshot's position", &meta)?, bytes)))
    }

    fn snapshot_number(&self) -> Result<u64> {
        let current: Option<(u64, Vec<u8>)> = self.position(key::SNAPSHOT)?;
        Ok(current.map_or(0, |(number, _)| number))
    }

    fn put_current<S: Serialize>(
        &self,
        batch: &mut WriteBatch,
        number: u64,
        meta: &S,
    ) -> Result<()> {
        let meta = encode("the snapshot's position", meta)?;
        let current = encode("the current snapshot", &(number, meta))?;
        batch.put(self.positions(), key::SNAPSHOT, &current);
        Ok(())
    }

    fn store_chunks(&self, number: u64, bytes: &[u8]) -> Result<()> {
        self.snapshots().delete_range(chunk_key(number, 0)..)?;
        for (part, chunk) in (0..).zip(bytes.chunks(CHUNK_BYTES)) {
            self.snapshots().put(&chunk_key(number, part), chunk)?;
        }
        Ok(())
    }

    /// Removes the chunks of all snapshots but the current one.
    pub(crate) fn remove_unfinished_snapshots(&self) -> Result<()> {
        let current = self.snapshot_number()?;
        self.snapshots().delete_range(..chunk_key(current, 0))?;
        self.snapshots().delete_range(chunk_key(current + 1, 0)..)?;
        Ok(())
    }
}

fn chunk_key(number: u64, part: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key[8..].copy_from_slice(&part.to_be_bytes());
    key
}

fn unless_missing(error: Error) -> Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
