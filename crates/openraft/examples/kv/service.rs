//! The state machine: keys in order, each with a number.

use openraft_0_10 as openraft;
use qpair_openraft::{Application, State, v0_10};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A change. Each has its own number, so that a history tells which write a read has seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Change {
    Put { key: String, value: u64 },
    Swap { key: String, expected: u64, value: u64 },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Whether the change was made.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Made(pub(crate) bool);

openraft::declare_raft_types!(pub(crate) Types: D = Change, R = Made);

pub(crate) type Machine = v0_10::StateMachine<Service>;
pub(crate) type Raft = openraft::Raft<Types, Machine>;
pub(crate) type Entry = <Types as openraft::RaftTypeConfig>::Entry;

pub(crate) struct Service;

/// The number of a key; 0 if it has none.
pub(crate) fn number(value: Option<Vec<u8>>) -> u64 {
    value.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Application<Entry, Made> for Service {
    fn apply(&self, state: &mut State<'_>, entry: &Entry) -> qpair::Result<Made> {
        let openraft::EntryPayload::Normal(change) = &entry.payload else { return Ok(Made(true)) };
        match change {
            Change::Put { key, value } => state.put(key.as_bytes(), &value.to_le_bytes())?,
            Change::Swap { key, expected, value } => {
                if number(state.get(key.as_bytes())?) != *expected {
                    return Ok(Made(false));
                }
                state.put(key.as_bytes(), &value.to_le_bytes())?;
            }
        }
        Ok(Made(true))
    }
}
