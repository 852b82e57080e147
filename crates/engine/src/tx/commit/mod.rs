//! Committing a transaction: its timestamp, the record in the log, and the changes in the trees.
//! After that every reader may see the commit.
//!
//! Invariants: until the timestamp is taken nothing is changed, and the commit may fail. From then
//! on it runs to its end, even if the task that requested it goes away. If the device prevents
//! that, the store becomes read-only.

mod apply;
mod committing;
mod fetching;
mod parts;
mod prepare;
mod progress;
mod reach;
mod record;
mod single;
mod undo;
mod validation;
mod windows;

pub(crate) use committing::{Committing, commit, nothing_to_do};
pub(crate) use reach::Reach;
pub(crate) use record::wait_durable;
pub(crate) use single::{Inline, delete, put, put_inline};
