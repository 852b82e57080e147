//! The network of openraft 0.9 for a group that has one member.

use openraft_0_9 as openraft;

use openraft::error::{InstallSnapshotError, RPCError, RaftError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, RaftNetwork, RaftNetworkFactory, RaftTypeConfig};
use std::io;

pub(crate) struct Alone;

fn nobody() -> Unreachable {
    Unreachable::new(&io::Error::other("the group has one member"))
}

impl<C: RaftTypeConfig<NodeId = u64, Node = BasicNode>> RaftNetworkFactory<C> for Alone {
    type Network = Alone;

    async fn new_client(&mut self, _target: u64, _node: &BasicNode) -> Alone {
        Alone
    }
}

impl<C: RaftTypeConfig<NodeId = u64, Node = BasicNode>> RaftNetwork<C> for Alone {
    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<C>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Err(nobody().into())
    }

    async fn install_snapshot(
        &mut self,
        _request: InstallSnapshotRequest<C>,
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
