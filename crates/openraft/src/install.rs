//! Building and installing snapshots. A snapshot is built from one view of the store. An
//! installed one fills another table, and one transaction makes that table the state. Neither is in
//! memory as a whole.

use crate::chunks::{ChunkReader, ChunkWriter, Held, unless_missing};
use crate::codec::{decode, encode};
use crate::group::{Data, Group, data_name, key};
use crate::snapshot::{self, Records, from_io};
use crate::stored::StoredSnapshot;
use qpair::{Error, ErrorKind, Result, Snapshot, Table, WriteBatch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

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

    /// A snapshot of the view, stored as the current one with what `describe` makes of the position
    /// and the membership. Blocks.
    pub(crate) fn build<P: DeserializeOwned, M: DeserializeOwned + Default, S: Serialize>(
        &self,
        view: View,
        describe: impl FnOnce(Option<P>, M, u64) -> S,
    ) -> Result<(S, StoredSnapshot)> {
        self.sweep()?;
        let position = |key: &[u8]| view.snapshot.get(self.positions(), key);
        let applied =
            position(key::APPLIED)?.map(|bytes| decode("the position", &bytes)).transpose()?;
        let membership = match position(key::MEMBERSHIP)? {
            Some(bytes) => decode("the membership", &bytes)?,
            None => M::default(),
        };
        let held = self.hold_new();
        let len = write_records(&held, &view)?;
        let meta = describe(applied, membership, held.number);
        // If a snapshot was installed meanwhile, that one stays the current one.
        self.make_current(&held, &meta, WriteBatch::default(), view.data.generation, None)?;
        drop(view);
        self.sweep()?;
        Ok((meta, StoredSnapshot::new(held, len)))
    }

    /// Replaces the state with a snapshot's. Until the last transaction the state is the one
    /// before; its commit is durable when the call returns. Blocks.
    pub(crate) fn install<P: Serialize, M: Serialize, S: Serialize>(
        &self,
        applied: Option<&P>,
        membership: &M,
        meta: &S,
        received: Held,
    ) -> Result<()> {
        let held = if self.is_same(&received.group) { received } else { self.copy(&received)? };
        let old = self.data().generation;
        let generation = old + 1;
        let name = data_name(self.name(), generation);
        // Left by an installation that failed.
        self.store().drop_table(&name).or_else(unless_missing)?;
        let table = self.store().table(&name)?;
        if let Err(error) = self.load(&table, &held) {
            // The first error says more than one of the removal, which the next open does again.
            let _ = self.store().drop_table(&name);
            return Err(error);
        }
        let mut batch = WriteBatch::default();
        let positions = self.positions();
        batch.put(positions, key::GENERATION, &encode("the generation", &generation)?);
        batch.put(positions, key::MEMBERSHIP, &encode("the membership", membership)?);
        match applied {
            Some(applied) => batch.put(positions, key::APPLIED, &encode("the position", applied)?),
            None => batch.delete(positions, key::APPLIED),
        };
        let state = Data { generation, table, in_use: Arc::default() };
        if !self.make_current(&held, meta, batch, old, Some(state))? {
            return Err(Error::with_hint(
                ErrorKind::Invalid,
                format!("group {:?} has installed another snapshot at the same time", self.name()),
                "install one snapshot after the other",
            ));
        }
        drop(held);
        self.sweep()
    }

    fn load(&self, table: &Table, held: &Held) -> Result<()> {
        let mut batch = WriteBatch::default();
        let mut batch_bytes = 0;
        let mut records = Records::new(ChunkReader::new(held))?;
        while let Some((key, value)) = records.next_record()? {
            batch.put(table, key, value);
            batch_bytes += key.len() + value.len() + 64;
            if batch_bytes >= INSTALL_BYTES {
                self.store().write(&batch)?;
                batch.clear();
                batch_bytes = 0;
            }
        }
        self.store().write(&batch)?;
        Ok(())
    }

    /// Copies a snapshot of another group, or of another store.
    fn copy(&self, other: &Held) -> Result<Held> {
        let held = self.hold_new();
        let mut out = ChunkWriter::new(&held);
        std::io::copy(&mut ChunkReader::new(other), &mut out).map_err(from_io)?;
        out.finish()?;
        Ok(held)
    }

    /// The current snapshot and its description. Blocks.
    pub(crate) fn current_snapshot<S: DeserializeOwned>(
        &self,
    ) -> Result<Option<(S, StoredSnapshot)>> {
        let current = self.hold_current()?;
        Ok(current.map(|(meta, held, len)| (meta, StoredSnapshot::new(held, len))))
    }
}

/// Writes the bytes of a snapshot of the view; returns their number.
fn write_records(held: &Held, view: &View) -> Result<u64> {
    let mut out = ChunkWriter::new(held);
    snapshot::begin(&mut out).map_err(from_io)?;
    let mut records = 0;
    for record in view.snapshot.range(&view.data.table, ..)? {
        let (key, value) = record?;
        snapshot::push(&mut out, &key, &value).map_err(from_io)?;
        records += 1;
    }
    snapshot::end(&mut out, records).map_err(from_io)?;
    out.finish()
}
