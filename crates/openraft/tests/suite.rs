//! The suites that openraft publishes for stores, of both versions. Each case gets a group of its
//! own, and all groups are in one store.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use qpair::{Options, Store};
use qpair_openraft::{Application, Group, State};
use std::sync::atomic::{AtomicUsize, Ordering};

/// An application whose state is the number of its entries.
struct Counter;

impl<E: Sync> Application<E, ()> for Counter {
    fn apply(&self, state: &mut State<'_>, _entry: &E) -> qpair::Result<()> {
        let mut count = [0; 8];
        if let Some(value) = state.get(b"count")? {
            count.copy_from_slice(&value);
        }
        state.put(b"count", &(u64::from_le_bytes(count) + 1).to_le_bytes())
    }
}

struct Groups {
    store: Store,
    made: AtomicUsize,
}

impl Groups {
    fn new(folder: &std::path::Path) -> Self {
        let store = Options::new(folder.join("s.qpair")).memory_bytes(32 << 20).buffered(true);
        Self { store: store.open().unwrap(), made: AtomicUsize::new(0) }
    }

    fn next(&self) -> Group {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        Group::open(&self.store, &format!("group-{number}")).unwrap()
    }
}

mod v0_9 {
    use super::{Counter, Groups};
    use openraft_0_9 as openraft;
    use qpair_openraft::StoredSnapshot;
    use qpair_openraft::v0_9::{LogStore, StateMachine, storage};
    use std::sync::Arc;

    openraft::declare_raft_types!(
        pub(crate) Types: D = (), R = (), SnapshotData = StoredSnapshot,
    );

    struct Builder(Arc<Groups>);

    impl openraft::testing::StoreBuilder<Types, LogStore, StateMachine<Counter>> for Builder {
        async fn build(
            &self,
        ) -> Result<((), LogStore, StateMachine<Counter>), openraft::StorageError<u64>> {
            let (log, machine) = storage(&self.0.next(), Counter);
            Ok(((), log, machine))
        }
    }

    #[test]
    fn the_published_suite_passes() {
        let folder = tempfile::tempdir().unwrap();
        let groups = Arc::new(Groups::new(folder.path()));
        openraft::testing::Suite::test_all(Builder(groups.clone())).unwrap();
        println!("0.9: {} groups", groups.made.load(std::sync::atomic::Ordering::Relaxed));
    }
}

mod v0_10 {
    use super::{Counter, Groups};
    use openraft_0_10 as openraft;
    use qpair_openraft::v0_10::{LogStore, StateMachine, storage};
    use std::sync::Arc;

    openraft::declare_raft_types!(pub(crate) Types: D = String, R = ());

    struct Builder(Arc<Groups>);

    impl openraft::testing::log::StoreBuilder<Types, LogStore, StateMachine<Counter>> for Builder {
        async fn build(
            &self,
        ) -> Result<((), LogStore, StateMachine<Counter>), openraft::StorageError<Types>> {
            let (log, machine) = storage(&self.0.next(), Counter);
            Ok(((), log, machine))
        }
    }

    #[tokio::test]
    async fn the_published_suite_passes() {
        let folder = tempfile::tempdir().unwrap();
        let groups = Arc::new(Groups::new(folder.path()));
        openraft::testing::log::Suite::test_all(Builder(groups.clone())).await.unwrap();
        println!("0.10: {} groups", groups.made.load(std::sync::atomic::Ordering::Relaxed));
    }
}
