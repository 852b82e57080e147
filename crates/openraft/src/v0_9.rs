//! The storage traits of openraft 0.9 (feature `storage-v2`).
//!
//! openraft 0.9 waits for the callback of each append before the next one, so a group writes one
//! batch at a time; the flushes of several groups still are one.

use crate::codec::{decode, encode};
use crate::group::{key, run_on_thread};
use crate::log::READ_BYTES_MAX;
use crate::{Application, Fault, Group, StoredSnapshot};

pub use crate::storage::{LogStore, SnapshotBuilder, StateMachine, storage};

use openraft_0_9 as openraft;

use openraft::entry::RaftPayload;
use openraft::log_id::RaftLogId;
use openraft::storage::{LogFlushed, LogState, RaftLogStorage, RaftStateMachine, Snapshot};
use openraft::{
    LogId, OptionalSend, RaftLogReader, RaftSnapshotBuilder, RaftTypeConfig, SnapshotMeta,
    StorageError, StorageIOError, StoredMembership, Vote,
};
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        entries::<C>(&self.group, range, usize::MAX)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        entries::<C>(&self.group, start..end, READ_BYTES_MAX)
    }
}

#[allow(clippy::result_large_err, reason = "it is the error of openraft's traits")]
fn entries<C: RaftTypeConfig>(
    group: &Group,
    range: impl RangeBounds<u64>,
    bytes_max: usize,
) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
    let found = group.read_log(range, bytes_max).and_then(|found| {
        found.iter().map(|bytes| decode("a log entry", bytes)).collect::<qpair::Result<Vec<_>>>()
    });
    found.map_err(|error| StorageIOError::read_logs(&error).into())
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<C::NodeId>> {
        let state = || -> qpair::Result<LogState<C>> {
            let purged = match self.group.purged()? {
                Some((_, bytes)) => {
                    Some(decode::<LogId<C::NodeId>>("the purged position", &bytes)?)
                }
                None => None,
            };
            let last = match self.group.last_entry()? {
                Some(bytes) => {
                    Some(decode::<C::Entry>("a log entry", &bytes)?.get_log_id().clone())
                }
                None => None,
            };
            Ok(LogState { last_log_id: last.max(purged.clone()), last_purged_log_id: purged })
        };
        state().map_err(|error| StorageIOError::read_logs(&error).into())
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        self.group.save_vote(vote).await.map_err(|error| StorageIOError::write_vote(&error).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        self.group.position(key::VOTE).map_err(|error| StorageIOError::read_vote(&error).into())
    }

    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let saved = self.group.put_position(key::COMMITTED, committed.as_ref()).await;
        saved.map(|_| ()).map_err(|error| StorageIOError::write(&error).into())
    }

    async fn read_committed(
        &mut self,
    ) -> Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        self.group.position(key::COMMITTED).map_err(|error| StorageIOError::read(&error).into())
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<C>,
    ) -> Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encoded: qpair::Result<Vec<_>> = entries
            .into_iter()
            .map(|entry| Ok((entry.get_log_id().index, encode("a log entry", &entry)?)))
            .collect();
        let appended = match encoded {
            Ok(encoded) => self.group.append(encoded).await,
            Err(error) => Err(error),
        };
        match appended.map_err(|error| StorageIOError::write_logs(&error))? {
            Some(commit) if !self.group.has(Fault::EarlyAcknowledgement) => {
                // Dropping the handle does not end the task.
                self.group.store().spawn(move || async move {
                    callback.log_io_completed(commit.durable().await.map_err(io::Error::other));
                });
            }
            _ => callback.log_io_completed(Ok(())),
        }
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let truncated = self.group.truncate(log_id.index).await;
        truncated.map_err(|error| StorageIOError::write_logs(&error).into())
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let purged = self.group.purge(log_id.index, &log_id).await;
        purged.map_err(|error| StorageIOError::write_logs(&error).into())
    }
}

impl<C> RaftSnapshotBuilder<C> for SnapshotBuilder
where
    C: RaftTypeConfig<SnapshotData = StoredSnapshot>,
{
    async fn build_snapshot(&mut self) -> Result<Snapshot<C>, StorageError<C::NodeId>> {
        let group = self.group.clone();
        let view = std::mem::replace(&mut self.view, group.view());
        let built = run_on_thread("raft-snapshot", move || {
            group.build(
                view?,
                |last_log_id: Option<LogId<C::NodeId>>,
                 last_membership: StoredMembership<C::NodeId, C::Node>,
                 number| {
                    let snapshot_id = match &last_log_id {
                        Some(id) => format!("{}-{}-{number}", id.leader_id, id.index),
                        None => format!("--{number}"),
                    };
                    SnapshotMeta { last_log_id, last_membership, snapshot_id }
                },
            )
        });
        let (meta, snapshot) =
            built.await.map_err(|error| StorageIOError::write_snapshot(None, &error))?;
        Ok(Snapshot { meta, snapshot: Box::new(snapshot) })
    }
}

impl<C, A> RaftStateMachine<C> for StateMachine<A>
where
    C: RaftTypeConfig<SnapshotData = StoredSnapshot>,
    A: Application<C::Entry, C::R>,
{
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(
        &mut self,
    ) -> Result<
        (Option<LogId<C::NodeId>>, StoredMembership<C::NodeId, C::Node>),
        StorageError<C::NodeId>,
    > {
        let state = || -> qpair::Result<_> {
            let membership = self.group.position(key::MEMBERSHIP)?.unwrap_or_default();
            Ok((self.group.position(key::APPLIED)?, membership))
        };
        state().map_err(|error| StorageIOError::read_state_machine(&error).into())
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<C::R>, StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<C::Entry> = entries.into_iter().collect();
        let applied = self.group.apply_entries(&*self.application, &entries, |entry: &C::Entry| {
            let log_id = entry.get_log_id().clone();
            let membership = entry
                .get_membership()
                .map(|membership| StoredMembership::new(Some(log_id.clone()), membership.clone()));
            (log_id, membership)
        });
        applied.await.map_err(|error| StorageIOError::write_state_machine(&error).into())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        SnapshotBuilder { view: self.group.view(), group: self.group.clone() }
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> Result<Box<StoredSnapshot>, StorageError<C::NodeId>> {
        let received = self.group.receive_snapshot().await;
        received.map(Box::new).map_err(|error| StorageIOError::write_snapshot(None, &error).into())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: Box<StoredSnapshot>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let group = self.group.clone();
        let installed = meta.clone();
        let install = async {
            let received = snapshot.into_held().await?;
            run_on_thread("raft-snapshot", move || {
                let applied = installed.last_log_id.as_ref();
                group.install(applied, &installed.last_membership, &installed, received)
            })
            .await
        };
        let signature = Some(meta.signature());
        install.await.map_err(|error| StorageIOError::write_snapshot(signature, &error).into())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<Snapshot<C>>, StorageError<C::NodeId>> {
        let group = self.group.clone();
        let current = run_on_thread("raft-snapshot", move || group.current_snapshot()).await;
        let current = current.map_err(|error| StorageIOError::read_snapshot(None, &error))?;
        Ok(current.map(|(meta, snapshot)| Snapshot { meta, snapshot: Box::new(snapshot) }))
    }
}
