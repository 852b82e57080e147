//! Lists that transactions append to, kept in a store, and the history of who asked what: for the judge of isolation. Threads and tasks
//! ask for the same things, on workers with threads and in the simulation.
//!
//! Every element is appended once, and a list only grows. See docs/design/isolation.md.

mod access;
mod actor;
mod kept;
mod layout;
mod recorder;

pub(crate) use access::{Threads, ready};
pub(crate) use actor::Actor;
pub(crate) use kept::{Habits, Level, Lists};
pub(crate) use layout::{Layout, TABLES};
pub(crate) use recorder::{Recorder, Sink};
