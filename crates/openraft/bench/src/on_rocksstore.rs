//! Groups on openraft 0.9 and openraft-rocksstore, a RocksDB for each.
//!
//! Appends are not durable when they return; an apply syncs RocksDB's log before it returns.

use crate::alone::Alone;
use crate::{Failure, Group};
use openraft_0_9 as openraft;

use openraft::storage::Adaptor;
use openraft::{BasicNode, SnapshotPolicy};
use openraft_rocksstore::{RocksRequest, RocksStore, TypeConfig};
use std::collections::BTreeMap;
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
