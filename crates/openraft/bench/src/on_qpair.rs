//! Groups on openraft 0.10, all in one qpair store.

use crate::{Failure, Group};
use openraft_0_10 as openraft;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::{SnapshotOf, VoteOf};
use openraft::{BasicNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2, SnapshotPolicy};
use qpair_openraft::{Application, State, StoredSnapshot, v0_10};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Set {
    pub(crate) key: String,
    pub(crate) value: String,
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)
    }
}

impl Set {
    pub(crate) fn put_in(&self, state: &mut State<'_>) -> qpair::Result<()> {
        state.put(self.key.as_bytes(), self.value.as_bytes())
    }
}

openraft::declare_raft_types!(pub(crate) Types: D = Set, R = ());

type Entry = <Types as openraft::RaftTypeConfig>::Entry;

pub(crate) struct Keys;

impl Application<Entry, ()> for Keys {
    fn apply(&self, state: &mut State<'_>, entry: &Entry) -> qpair::Result<()> {
        match &entry.payload {
            openraft::EntryPayload::Normal(set) => set.put_in(state),
            _ => Ok(()),
        }
    }
}

#[derive(Clone)]
pub(crate) struct OnQpair(openraft::Raft<Types, v0_10::StateMachine<Keys>>);

impl Group for OnQpair {
    async fn write(&self, key: String, value: String) -> Result<(), Failure> {
        self.0.client_write(Set { key, value }).await?;
        Ok(())
    }
}

pub(crate) async fn groups(folder: &Path, number: usize) -> Result<Vec<OnQpair>, Failure> {
    let store = qpair::Options::new(folder.join("raft.qpair")).memory_bytes(256 << 20).open()?;
    let config = openraft::Config { snapshot_policy: SnapshotPolicy::Never, ..Default::default() };
    let config = Arc::new(config.validate()?);
    let mut made = Vec::new();
    for group in 0..number {
        let group = qpair_openraft::Group::open(&store, &format!("group-{group}"))?;
        let (log, machine) = v0_10::storage(&group, Keys);
        let raft = openraft::Raft::new(1, config.clone(), Alone, log, machine).await?;
        raft.initialize(BTreeMap::from([(1, BasicNode::new("alone"))])).await?;
        let leads = raft.wait(Some(Duration::from_secs(10)));
        leads.metrics(|metrics| metrics.current_leader == Some(1), "it leads").await?;
        made.push(OnQpair(raft));
    }
    Ok(made)
}

/// The network of a group that has one member.
struct Alone;

fn nobody() -> Unreachable<Types> {
    Unreachable::new(&io::Error::other("the group has one member"))
}

impl RaftNetworkFactory<Types> for Alone {
    type Network = Alone;

    async fn new_client(&mut self, _target: u64, _node: &BasicNode) -> Alone {
        Alone
    }
}

impl RaftNetworkV2<Types> for Alone {
    type SnapshotData = StoredSnapshot;

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(nobody().into())
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(nobody().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: VoteOf<Types>,
        _snapshot: SnapshotOf<Types, StoredSnapshot>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(nobody().into())
    }
}
