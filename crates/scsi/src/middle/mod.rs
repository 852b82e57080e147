//! The middle layer: commands from beginning to end.

mod ladder;
mod queue;
mod runner;
mod verdict;

pub(crate) use queue::{Command, Done, Place, Queue, UnitState};
pub(crate) use runner::{Runner, scratch};
