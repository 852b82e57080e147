//! Groups on openraft 0.9, all in one qpair store.

use crate::alone::Alone;
use crate::on_qpair::Set;
use crate::{Failure, Group};
use openraft_0_9 as openraft;

use openraft::{BasicNode, SnapshotPolicy};
use qpair_openraft::{Application, State, StoredSnapshot, v0_9};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

openraft::declare_raft_types!(
    pub(crate) Types: D = Set, R = (), SnapshotData = StoredSnapshot,
);

type Entry = <Types as openraft::RaftTypeConfig>::Entry;

struct Keys;

impl Application<Entry, ()> for Keys {
    fn apply(&self, state: &mut State<'_>, entry: &Entry) -> qpair::Result<()> {
        match &entry.payload {
            openraft::EntryPayload::Normal(set) => set.put_in(state),
            _ => Ok(()),
        }
    }
}

#[derive(Clone)]
pub(crate) struct OnQpair(openraft::Raft<Types>);

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
        let (log, machine) = v0_9::storage(&group, Keys);
        let raft = openraft::Raft::new(1, config.clone(), Alone, log, machine).await?;
        raft.initialize(BTreeMap::from([(1, BasicNode::new("alone"))])).await?;
        let leads = raft.wait(Some(Duration::from_secs(10)));
        leads.metrics(|metrics| metrics.current_leader == Some(1), "it leads").await?;
        made.push(OnQpair(raft));
    }
    Ok(made)
}
