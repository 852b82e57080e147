//! The storage traits of openraft 0.10, as of alpha 37.
//!
//! openraft 0.10 appends without waiting for the callbacks of earlier appends, so one flush serves
//! the appends of one group too.

use crate::codec::{decode, encode};
use crate::group::{key, run_on_thread};
use crate::log::READ_BYTES_MAX;
use crate::{Application, Fault, Group, StoredSnapshot};

pub use crate::storage::{LogStore, SnapshotBuilder, StateMachine, storage};

use openraft_0_10 as openraft;

use futures_util::{Stream, StreamExt};
use openraft::entry::RaftEntry;
use openraft::storage::{
    EntryResponder, IOFlushed, LogState, RaftLogStorage, RaftStateMachine, Snapshot, SnapshotMeta,
};
use openraft::type_config::alias::{
    LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf,
};
use openraft::{OptionalSend, RaftLogReader, RaftSnapshotBuilder, RaftTypeConfig};
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;

/// The entries that one transaction applies.
const APPLIED_ENTRIES_MAX: usize = 1_000;

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<C::Entry>, io::Error> {
        entries::<C>(&self.group, range, usize::MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<VoteOf<C>>, io::Error> {
        self.group.position(key::VOTE).map_err(io::Error::other)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, io::Error> {
        entries::<C>(&self.group, start..end, READ_BYTES_MAX)
    }
}

fn entries<C: RaftTypeConfig>(
    group: &Group,
    range: impl RangeBounds<u64>,
    bytes_max: usize,
) -> Result<Vec<C::Entry>, io::Error> {
    let found = group.read_log(range, bytes_max).map_err(io::Error::other)?;
    found.iter().map(|bytes| decode("a log entry", bytes).map_err(io::Error::other)).collect()
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, io::Error> {
        let purged = match self.group.purged().map_err(io::Error::other)? {
            Some((_, bytes)) => Some(
                decode::<LogIdOf<C>>("the purged position", &bytes).map_err(io::Error::other)?,
            ),
            None => None,
        };
        let last = match self.group.last_entry().map_err(io::Error::other)? {
            Some(bytes) => {
                let entry: C::Entry = decode("a log entry", &bytes).map_err(io::Error::other)?;
                Some(entry.log_id())
            }
            None => None,
        };
        Ok(LogState { last_log_id: last.max(purged.clone()), last_purged_log_id: purged })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<C>) -> Result<(), io::Error> {
        self.group.save_vote(vote).await.map_err(io::Error::other)
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<C>>) -> Result<(), io::Error> {
        let saved = self.group.put_position(key::COMMITTED, committed.as_ref()).await;
        saved.map(|_| ()).map_err(io::Error::other)
    }

    async fn read_committed(&mut self) -> Result<Option<LogIdOf<C>>, io::Error> {
        self.group.position(key::COMMITTED).map_err(io::Error::other)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encoded: qpair::Result<Vec<_>> = entries
            .into_iter()
            .map(|entry| Ok((entry.index(), encode("a log entry", &entry)?)))
            .collect();
        let encoded = encoded.map_err(io::Error::other)?;
        match self.group.append(encoded).await.map_err(io::Error::other)? {
            Some(commit) if !self.group.has(Fault::EarlyAcknowledgement) => {
                // Dropping the handle does not end the task.
                self.group.store().spawn(move || async move {
                    callback.io_completed(commit.durable().await.map_err(io::Error::other));
                });
            }
            _ => callback.io_completed(Ok(())),
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf<C>>) -> Result<(), io::Error> {
        let from = last_log_id.map_or(0, |log_id| log_id.index + 1);
        self.group.truncate(from).await.map_err(io::Error::other)
    }

    async fn purge(&mut self, log_id: LogIdOf<C>) -> Result<(), io::Error> {
        self.group.purge(log_id.index, &log_id).await.map_err(io::Error::other)
    }
}

impl<C: RaftTypeConfig> RaftSnapshotBuilder<C> for SnapshotBuilder {
    type SnapshotData = StoredSnapshot;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<C, Self::SnapshotData>, io::Error> {
        let group = self.group.clone();
        let view = std::mem::replace(&mut self.view, group.view());
        let built = run_on_thread("raft-snapshot", move || {
            group.build(
                view?,
                |last_log_id: Option<LogIdOf<C>>, last_membership: StoredMembershipOf<C>, _| {
                    SnapshotMeta { last_log_id, last_membership }
                },
            )
        });
        let (meta, snapshot) = built.await.map_err(io::Error::other)?;
        Ok(Snapshot { meta, snapshot })
    }
}

impl<C, A> RaftStateMachine<C> for StateMachine<A>
where
    C: RaftTypeConfig,
    A: Application<C::Entry, C::R>,
{
    type SnapshotData = StoredSnapshot;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogIdOf<C>>, StoredMembershipOf<C>), io::Error> {
        let applied = self.group.position(key::APPLIED).map_err(io::Error::other)?;
        let membership = self.group.position(key::MEMBERSHIP).map_err(io::Error::other)?;
        Ok((applied, membership.unwrap_or_default()))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<C>, io::Error>> + Unpin + OptionalSend,
    {
        let mut parts = entries.ready_chunks(APPLIED_ENTRIES_MAX);
        while let Some(part) = parts.next().await {
            let part = part.into_iter().collect::<Result<Vec<_>, _>>()?;
            let (entries, responders): (Vec<C::Entry>, Vec<_>) = part.into_iter().unzip();
            let describe = |entry: &C::Entry| {
                let membership = entry.get_membership().map(|membership| {
                    StoredMembershipOf::<C>::new(Some(entry.log_id()), membership)
                });
                (entry.log_id(), membership)
            };
            let applied = self.group.apply_entries(&*self.application, &entries, describe).await;
            let responses = applied.map_err(io::Error::other)?;
            for (responder, response) in responders.into_iter().zip(responses) {
                if let Some(responder) = responder {
                    responder.send(response);
                }
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        SnapshotBuilder { view: self.group.view(), group: self.group.clone() }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<C>,
        snapshot: Self::SnapshotData,
    ) -> Result<(), io::Error> {
        let group = self.group.clone();
        let meta = meta.clone();
        let received = snapshot.into_held().await.map_err(io::Error::other)?;
        let outcome = run_on_thread("raft-snapshot", move || {
            let applied = meta.last_log_id.as_ref();
            group.install(applied, &meta.last_membership, &meta, received)
        });
        outcome.await.map_err(io::Error::other)
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<C, Self::SnapshotData>>, io::Error> {
        let group = self.group.clone();
        let current = run_on_thread("raft-snapshot", move || group.current_snapshot()).await;
        let current = current.map_err(io::Error::other)?;
        Ok(current.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}
