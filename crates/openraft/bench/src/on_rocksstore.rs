//! Groups on openraft 0.9 and openraft-rocksstore, a RocksDB for each.
//!
//! Appends are not durable when they return; an apply syncs RocksDB's log before it returns.

use crate::{Failure, Group};
use openraft_0_9 as openraft;

use openraft::error::{InstallSnapshotError, RPCError, RaftError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::storage::Adaptor;
use openraft::{BasicNode, RaftNetwork, RaftNetworkFactory, SnapshotPolicy};
use openraft_rocksstore::{RocksRequest, RocksStore, TypeConfig};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct OnRocksStore(openraft::Raft<TypeConfig>);

impl Group for OnRocksStore {
    async fn write(&self, key: String, value: String) -> Result<(), Failure> {
        self.0.client_write(RocksRequest::Set { key, value }).await?;
        Ok(())
    }
}

pub(crate) async fn groups(folder: &Path, number: usize) -> Result<Vec<OnRocksStore>, Failure> {
    let config = openraft::Config { snapshot_policy: SnapshotPolicy::Never, ..Default::default() };
    let config = Arc::new(config.validate()?);
    let mut made = Vec::new();
    for group in 0..number {
        let store = RocksStore::new(folder.join(format!("group-{group}.rocksdb"))).await;
        let (log, machine) = Adaptor::new(store);
        let raft = openraft::Raft::new(1, config.clone(), Alone, log, machine).await?;
        raft.initialize(BTreeMap::from([(1, BasicNode::new("alone"))])).await?;
        let leads = raft.wait(Some(Duration::from_secs(10)));
        leads.metrics(|metrics| metrics.current_leader == Some(1), "it leads").await?;
        made.push(OnRocksStore(raft));
    }
    Ok(made)
}

/// The network of a group that has one member.
struct Alone;

fn nobody() -> Unreachable {
    Unreachable::new(&io::Error::other("the group has one member"))
}

impl RaftNetworkFactory<TypeConfig> for Alone {
    type Network = Alone;

    async fn new_client(&mut self, _target: u64, _node: &BasicNode) -> Alone {
        Alone
    }
}

impl RaftNetwork<TypeConfig> for Alone {
    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Err(nobody().into())
    }

    async fn install_snapshot(
        &mut self,
        _request: InstallSnapshotRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, BasicNode, RaftError<u64, InstallSnapshotError>>,
    > {
        Err(nobody().into())
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<u64>,
        _option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Err(nobody().into())
    }
}
