//! The log and the state machine of a group, for which both versions implement openraft's traits.

use crate::Group;
use crate::install::View;
use std::sync::Arc;

/// The log of a group.
#[derive(Clone, Debug)]
pub struct LogStore {
    pub(crate) group: Group,
}

/// The state machine of a group. `A` is the application, an
/// [`Application<C::Entry, C::R>`](Application).
#[derive(Debug)]
pub struct StateMachine<A> {
    pub(crate) group: Group,
    pub(crate) application: Arc<A>,
}

/// A view of the state, from which a snapshot is built.
#[derive(Debug)]
pub struct SnapshotBuilder {
    pub(crate) group: Group,
    pub(crate) view: qpair::Result<View>,
}

/// Returns the log and the state machine of a group, for `Raft::new`.
pub fn storage<A>(group: &Group, application: A) -> (LogStore, StateMachine<A>) {
    let machine = StateMachine { group: group.clone(), application: Arc::new(application) };
    (LogStore { group: group.clone() }, machine)
}
