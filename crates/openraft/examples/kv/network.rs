//! Messages between members.

use crate::Failure;
use crate::frames::{receive, send};
use crate::member::{Answer, Ask};
use crate::service::Types;
use openraft_0_10 as openraft;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::{SnapshotOf, VoteOf};
use openraft::{BasicNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use qpair_openraft::StoredSnapshot;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The bytes of a snapshot that one message has.
const PART_LEN: u64 = 256 << 10;

/// The addresses under which this member reaches the others.
pub(crate) struct Peers(pub(crate) BTreeMap<u64, String>);

pub(crate) struct Peer {
    address: String,
    stream: Option<TcpStream>,
}

impl Peer {
    async fn ask_once(&mut self, ask: &Ask) -> Result<Answer, Failure> {
        // Taken out: a connection with half an answer is not used again.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => TcpStream::connect(&self.address).await?,
        };
        stream.set_nodelay(true)?;
        send(&mut stream, ask).await?;
        let answer = receive(&mut stream).await?;
        self.stream = Some(stream);
        Ok(answer)
    }

    async fn ask(&mut self, ask: Ask, limit: Duration) -> Result<Answer, Unreachable<Types>> {
        let answer = tokio::time::timeout(limit, self.ask_once(&ask)).await;
        let failure: Failure = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(failure)) => failure,
            Err(late) => late.into(),
        };
        Err(Unreachable::new(&io::Error::other(failure)))
    }
}

fn odd() -> Unreachable<Types> {
    Unreachable::new(&io::Error::other("the member gave another kind of answer, or is stopping"))
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        let address = self.0.get(&target).unwrap_or(&node.addr).clone();
        Peer { address, stream: None }
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = StoredSnapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        match self.ask(Ask::Append(request), option.hard_ttl()).await? {
            Answer::Append(response) => Ok(response),
            _ => Err(odd().into()),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.ask(Ask::Vote(request), option.hard_ttl()).await? {
            Answer::Vote(response) => Ok(response),
            _ => Err(odd().into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Types>,
        mut snapshot: SnapshotOf<Types, StoredSnapshot>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let mut part = Vec::new();
        let mut ask = Ask::SnapshotBegins;
        while !matches!(ask, Ask::SnapshotEnds(..)) {
            match self.ask(ask, option.hard_ttl()).await? {
                Answer::Done => {}
                _ => return Err(odd().into()),
            }
            part.clear();
            let read = (&mut snapshot.snapshot).take(PART_LEN).read_to_end(&mut part).await;
            ask = match read.map_err(|error| Unreachable::new(&error))? {
                0 => Ask::SnapshotEnds(vote, snapshot.meta.clone()),
                _ => Ask::SnapshotPart(part.clone()),
            };
        }
        match self.ask(ask, option.hard_ttl()).await? {
            Answer::Snapshot(response) => Ok(response),
            _ => Err(odd().into()),
        }
    }
}
