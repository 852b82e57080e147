//! One member: a store, a group in it, and a port on which clients and members ask.

use crate::frames::{receive, send};
use crate::network::Peers;
use crate::service::{Change, Machine, Made, Raft, Service, Types, number};
use crate::{Failure, Words};
use openraft_0_10 as openraft;

use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::{SnapshotMetaOf, VoteOf};
use openraft::{BasicNode, ReadPolicy, SnapshotPolicy};
use qpair::Options;
use qpair_openraft::{Fault, Group, StoredSnapshot, v0_10};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

#[derive(Serialize, Deserialize)]
pub(crate) enum Ask {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    /// A snapshot follows on this connection, in parts.
    SnapshotBegins,
    SnapshotPart(Vec<u8>),
    SnapshotEnds(VoteOf<Types>, SnapshotMetaOf<Types>),
    Found(BTreeMap<u64, BasicNode>),
    Get(String),
    /// The first keys from one on, in order, with their numbers.
    Range(String, u32),
    Change(Change),
    Leader,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    Append(AppendEntriesResponse<Types>),
    Vote(VoteResponse<Types>),
    Snapshot(SnapshotResponse<Types>),
    Done,
    Number(u64),
    Records(Vec<(String, u64)>),
    Made(Made),
    Leader(Option<u64>),
    /// Nothing was done, and nothing will be.
    Refused,
    /// The change may have been made, or may be made later.
    Unknown,
}

/// A member's part that answers.
#[derive(Clone)]
struct Desk {
    raft: Raft,
    group: Group,
    stale: bool,
}

impl Desk {
    /// Whether a read of the local state from now on sees all that was acknowledged before.
    async fn is_current(&self) -> bool {
        if self.stale {
            return true;
        }
        match self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
            Ok(linearizer) => linearizer.await_ready(&self.raft).await.is_ok(),
            Err(_) => false,
        }
    }

    /// The answer; `received` is the snapshot that the connection is sending.
    async fn answer(
        &self,
        ask: Ask,
        received: &mut Option<StoredSnapshot>,
    ) -> Result<Answer, Failure> {
        Ok(match ask {
            Ask::Append(request) => Answer::Append(self.raft.append_entries(request).await?),
            Ask::Vote(request) => Answer::Vote(self.raft.vote(request).await?),
            Ask::SnapshotBegins => {
                *received = Some(self.group.receive_snapshot().await?);
                Answer::Done
            }
            Ask::SnapshotPart(bytes) => match received {
                Some(snapshot) => {
                    snapshot.write_all(&bytes).await?;
                    Answer::Done
                }
                None => Answer::Refused,
            },
            Ask::SnapshotEnds(vote, meta) => match received.take() {
                Some(snapshot) => {
                    let snapshot = openraft::Snapshot { meta, snapshot };
                    Answer::Snapshot(self.raft.install_full_snapshot(vote, snapshot).await?)
                }
                None => Answer::Refused,
            },
            Ask::Found(members) => {
                self.raft.initialize(members).await?;
                Answer::Done
            }
            Ask::Get(key) => {
                if !self.is_current().await {
                    return Ok(Answer::Refused);
                }
                Answer::Number(number(self.group.reader().get(key.as_bytes())?))
            }
            Ask::Range(from, limit) => {
                if !self.is_current().await {
                    return Ok(Answer::Refused);
                }
                let mut reader = self.group.reader();
                let records = reader.range(from.into_bytes()..)?.take(limit as usize);
                let records = records.map(|record| {
                    let (key, value) = record?;
                    Ok((String::from_utf8_lossy(&key).into_owned(), number(Some(value))))
                });
                Answer::Records(records.collect::<qpair::Result<_>>()?)
            }
            Ask::Change(change) => {
                if !self.raft.is_leader() {
                    return Ok(Answer::Refused);
                }
                match self.raft.client_write(change).await {
                    Ok(written) => Answer::Made(written.data),
                    // Also where another member leads now: it may commit what this one appended.
                    Err(_) => Answer::Unknown,
                }
            }
            Ask::Leader => Answer::Leader(self.raft.current_leader().await),
        })
    }

    async fn serve(self, mut stream: TcpStream) -> Result<(), Failure> {
        stream.set_nodelay(true)?;
        let mut received = None;
        loop {
            let ask = receive(&mut stream).await?;
            let answer = self.answer(ask, &mut received).await?;
            send(&mut stream, &answer).await?;
        }
    }
}

/// Lets a panic of any task end the process. A member whose Raft task has ended would otherwise
/// run on without serving, and the trial would not see it.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

pub(crate) async fn run(words: &Words) -> Result<(), Failure> {
    abort_on_panic();
    let id = words.number("id", 0)?;
    let mut peers = BTreeMap::new();
    for peer in words.get("peers")?.split(',') {
        let (id, address) = peer.split_once('=').ok_or("--peers has no N=ADDR")?;
        peers.insert(id.parse()?, address.to_owned());
    }
    let fault = words.get("fault").unwrap_or("none");
    let planted = match fault {
        "early" => Some(Fault::EarlyAcknowledgement),
        "lost-vote" => Some(Fault::LostVote),
        _ => None,
    };
    let mut options = Options::new(words.get("store")?).memory_bytes(32 << 20);
    if planted == Some(Fault::EarlyAcknowledgement) {
        // A kill takes such a store back to its last checkpoint, as a power cut does one whose
        // writes are not flushed.
        options = options.log(false).checkpoint_every(Duration::from_millis(300));
    }
    let store = options.open()?;
    let group = Group::open_with_fault(&store, "kv", planted)?;
    let (log, machine) = v0_10::storage(&group, Service);
    let config = openraft::Config {
        heartbeat_interval: 100,
        election_timeout_min: 400,
        election_timeout_max: 800,
        // Few, so that a trial has purges, and members that need a snapshot.
        snapshot_policy: SnapshotPolicy::LogsSinceLast(500),
        max_in_snapshot_log_to_keep: 100,
        purge_batch_size: 64,
        ..Default::default()
    };
    let config = Arc::new(config.validate()?);
    let raft: openraft::Raft<Types, Machine> =
        openraft::Raft::new(id, config, Peers(peers), log, machine).await?;
    let desk = Desk { raft, group, stale: fault == "stale-read" };
    let listener = TcpListener::bind(words.get("listen")?).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let desk = desk.clone();
        // A connection that fails ends alone; the other side asks again.
        tokio::spawn(async move { desk.serve(stream).await });
    }
}
